from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.diagnoser.replace.segment import cut_at, open_segment, plain_signature
from torchferry.errors import UsageError

TWO = """
<ir_version: 10, opset_import: ["" : 20, "far" : 1]>
agraph (float[N, 3] x) => (float[N, 3] y, float[N, 3] z)
<float one = {1.0}>
{
    a = Abs(x)
    z = Add(a, one)
    b = far.First(a)
    c = Mul(b, a)
    y = far.Second(c, one)
}
"""
BRANCH = """
<ir_version: 10, opset_import: ["" : 20, "far" : 1]>
agraph (bool c, float[N] x) => (float[N] y)
{
    y = If(c) <
        then_branch = g () => (float[N] s) { s = Abs(x) },
        else_branch = h () => (float[N] t) { t = far.First(x) }
    >
}
"""


def names(values: tuple[ir.Value, ...]) -> list[str | None]:
    return [value.name for value in values]


def test_each_segment_runs_before_the_operators_it_feeds() -> None:
    model = ir.from_onnx_text(TWO)
    first, second = cut_at(model.graph, "far")
    assert (names(first.inputs), names(first.outputs)) == (["x"], ["a", "z"])
    assert [node.op_type for node in first.operators] == ["First"]
    assert (names(second.inputs), names(second.outputs)) == (["b", "a"], ["c"])
    assert [node.op_type for node in second.operators] == ["Second"]


def test_a_segment_has_its_weights() -> None:
    model = ir.from_onnx_text(TWO)
    session = open_segment(model, cut_at(model.graph, "far")[0])
    made = session.run({"x": torch.tensor([[-1.0, 0.0, 2.0]])})
    assert made["z"].tolist() == [[2.0, 1.0, 3.0]]
    assert made["a"].tolist() == [[1.0, 0.0, 2.0]]


def test_a_graph_without_such_operators_is_one_segment() -> None:
    model = ir.from_onnx_text(TWO)
    stages = cut_at(model.graph, "nobody")
    assert [names(stage.outputs) for stage in stages] == [["z", "y"]]


def test_what_branches_read_counts() -> None:
    model = ir.from_onnx_text(BRANCH)
    (stage,) = cut_at(model.graph, "nobody")
    assert sorted(map(str, names(stage.inputs))) == ["c", "x"]


def test_an_operator_in_a_branch_is_refused() -> None:
    with pytest.raises(UsageError, match="First stands in a branch"):
        cut_at(ir.from_onnx_text(BRANCH).graph, "far")


def test_a_graph_that_nothing_is_known_of_takes_one_argument_for_each_input() -> None:
    signature = plain_signature(ir.from_onnx_text(TWO).graph)
    assert [slot.name for slot in signature.inputs] == ["x"]
    y, z = torch.ones(1), torch.zeros(1)
    assert signature.nest({"y": y, "z": z}) == [y, z]
