from __future__ import annotations

import onnx_ir as ir
import torch

from torchferry.comparer.align.segment import segment_of
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up


def made(small, name, known):
    return segment_of(small.onnx, name, {value: value for value in known})


def names(values):
    return [value.name for value in values]


def test_a_segment_goes_back_to_what_is_known(small):
    segment = made(small, "add", ["linear", "layer_norm"])
    assert [node.op_type for node in segment.nodes] == ["Sigmoid", "Mul", "Add"]
    assert sorted(names(segment.inputs)) == ["linear", "x"]
    assert segment.keys == {"linear": "linear"}
    assert segment.output.name == "add"


def test_the_value_itself_is_not_taken_as_known(small):
    assert len(made(small, "linear", ["linear", "layer_norm"]).nodes) == 1


def test_with_nothing_known_it_goes_back_to_the_inputs(small):
    segment = made(small, "linear_1", [])
    assert names(segment.inputs) == ["x"]
    assert len(segment.nodes) == list(small.onnx.graph).index(segment.nodes[-1]) + 1


def test_it_is_run_on_reference_values(small):
    segment = made(small, "add", ["linear"])
    (setting,), _ = set_up(small.program, small.onnx, None, against="program", runner=Runner())
    linear = torch.rand(3, 6)
    feeds = segment.feeds(setting.feeds, {"linear": linear})
    found, failed = segment.run(feeds)
    x = small.args[0]
    torch.testing.assert_close(found["add"], x + torch.nn.functional.silu(linear))
    torch.testing.assert_close(found["silu"], torch.nn.functional.silu(linear))
    assert failed == set()


def test_what_fails_is_told_and_the_rest_computed(small):
    segment = made(small, "add", ["linear"])
    segment.nodes[1].attributes["nonsense"] = ir.AttrInt64("nonsense", 1)
    (setting,), _ = set_up(small.program, small.onnx, None, against="program", runner=Runner())
    found, failed = segment.run(segment.feeds(setting.feeds, {"linear": torch.rand(3, 6)}))
    assert list(found) == ["val_0"]
    assert failed == {segment.nodes[1]}
