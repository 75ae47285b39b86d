import pytest
import torch

from torchferry.capturer.rewrite.subgraph import (
    Body,
    copy_apart,
    copy_tensors,
    is_graph,
    look_ahead,
    note_read,
)

X = torch.ones(2, 3)
FOUND = []


def test_copies():
    copied = copy_tensors({"a": X, "n": 3})
    assert copied["n"] == 3
    assert copied["a"] is not X
    one, other = copy_apart([X, X])
    assert one is X
    assert other is not X
    assert copy_apart([X.T])[0].is_contiguous()


class Looks(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        y, k = x * 2, x.sum().item()

        def inner(h):
            assert is_graph()
            return self.linear(h) + y * k, y

        body = look_ahead(inner, [x])
        FOUND[:] = [(len(body.outer), len(body.floats), body.result[0].shape[1])]
        FOUND.append(body.knows((2, x.shape[0])))
        note_read(x.shape[0])
        return y


def test_what_a_function_reads_of_outside_is_found():
    model = Looks()
    assert not is_graph()
    torch.export.export(model, (X,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},), strict=False)
    assert FOUND == [(5, 1, 3), True]  # y, weight, bias, k, a size


class SetsAnAttribute(torch.nn.Module):
    def forward(self, x):
        def inner(h):
            self.n = 3
            return h

        return look_ahead(inner, [x]).result


def test_an_attribute_that_is_set_is_an_error():
    with pytest.raises(TypeError, match=r"SetsAnAttribute\.n is set in it"):
        torch.export.export(SetsAnAttribute(), (X,), strict=False)
    assert Body(len, []).outer == []
