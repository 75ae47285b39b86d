from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.ties import equal_up_to_ties
from torchferry.converter import convert

VALUES = torch.tensor([9, 7, 7, 7, 2, 1, 1])
PLACES = torch.tensor([4, 0, 2, 5, 6, 1, 3])


@pytest.mark.parametrize(
    ("got", "equal"),
    [
        ([4, 0, 2, 5, 6, 1, 3], True),
        ([4, 5, 0, 2, 6, 1, 3], True),
        ([4, 0, 2, 5, 6, 3, 1], True),
        ([0, 4, 2, 5, 6, 1, 3], False),
        ([4, 0, 2, 2, 6, 1, 3], False),
        ([4, 0, 2, 5, 6, 9, 8], True),  # others may have been cut off
        ([6, 0, 2, 5, 4, 1, 3], False),
    ],
)
def test_only_equal_numbers_may_change_places(got, equal):
    got = torch.tensor(got)
    assert equal_up_to_ties(VALUES, PLACES, got, 0) is equal
    rows = [torch.stack([t, t]) for t in (VALUES, PLACES, got)]
    assert equal_up_to_ties(*rows, -1) is equal
    assert equal_up_to_ties(*(t.T for t in rows), 0) is equal


def test_other_shapes_and_nothing_are_not_equal():
    assert not equal_up_to_ties(VALUES, PLACES, PLACES[:3], 0)
    empty = torch.zeros(0)
    assert not equal_up_to_ties(empty, empty, empty, 0)


class Sorts(torch.nn.Module):
    def forward(self, x):
        numbers, places = x.sort(-1)
        return numbers, (places * 2).sum(-1)


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_places_of_equal_numbers_are_no_divergence(feed, monkeypatch):
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0, 1.0] * 8])
    program = torch.export.export(Sorts(), (x,))
    found = compare(program, convert(program), feed=feed)
    assert found.first is None
    # The same with places that are wrong in more than the order of equal numbers.
    monkeypatch.setattr("torchferry.comparer.walk.equal_up_to_ties", lambda *_: False)
    strict = compare(program, convert(program), feed=feed)
    places = next(row for row in strict.rows if row.origin.endswith(":1"))
    assert (places.verdict == "ok") == (places.said.abs == 0)


@pytest.mark.parametrize("feed", ["own", "torch"])
def test_memory_that_is_not_set_is_no_divergence(feed):
    class Empty(torch.nn.Module):
        def forward(self, x):
            y = torch.ops.aten.new_empty.default(x, [3])
            return torch.where(x > 1e9, y, x) * 2

    x = torch.rand(3)
    program = torch.export.export(Empty(), (x,))
    found = compare(program, convert(program), feed=feed)
    assert found.ok


@pytest.mark.parametrize("feed", ["own", "torch"])
@pytest.mark.parametrize("largest", [True, False])
def test_what_topk_leaves_unsorted_may_stand_in_any_order(feed, largest):
    class Top(torch.nn.Module):
        def forward(self, x):
            numbers, places = x.topk(5, largest=largest, sorted=False)
            return numbers.sum(-1), places.sum(-1)

    x = torch.rand(4, 40, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(Top(), (x,))
    model = convert(program)
    found = compare(program, model, feed=feed)
    assert found.first is None
    assert not found.differing
    top = next(node for node in model.graph if node.op_type == "TopK")
    top.attributes["largest"] = ir.AttrInt64("largest", int(not largest))
    found = compare(program, model, feed=feed)
    assert found.suspects[-1] == found.first.node == top.name
