"""If, Loop and Scan around bodies written by hand."""

import onnx_ir as ir
import pytest
import torch
from op_case import run

from torchferry.converter.block import Block
from torchferry.converter.write.control_flow import branch, inlined, loop, scan

FLOAT = ir.DataType.FLOAT


def value(name, shape, dtype=FLOAT):
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def model(b, inputs, outputs):
    for number, output in enumerate(outputs):
        output.name = f"out_{number}"
    graph = ir.Graph(inputs, outputs, nodes=b.nodes, opset_imports={"": b.opset}, name="g")
    made = ir.Model(graph, ir_version=10)
    for constant in b.constants.values.values():
        made.graph.register_initializer(constant)
    return made


def test_a_branch_may_return_what_is_outside():
    b, x = Block(20), value("x", ["n"])
    total = b.ReduceSum(x, keepdims=0)
    results = branch(
        b, b.Greater(total, 0), lambda inner: [x, inner.Neg(x)], lambda inner: [total, total]
    )
    made = model(b, [x], [b.Identity(r) for r in results])
    positive, negative = torch.tensor([1.0, 2.0]), torch.tensor([-1.0, -2.0])
    one, other = run(made, (positive,))
    assert one.tolist() == [1, 2]
    assert other.tolist() == [-1, -2]
    assert [r.tolist() for r in run(made, (negative,))] == [-3.0, -3.0]


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_carries_and_keeps(trips):
    b, x = Block(20), value("x", [2])

    def step(inner, index, state):
        following = inner.Mul(state, 2)
        return [following], [inner.Add(following, inner.Cast(index, to=FLOAT))]

    last, kept = loop(b, trips, [x], step)
    assert (last.dtype, list(last.shape)) == (FLOAT, [2])
    assert (kept.dtype, len(kept.shape)) == (FLOAT, 2)
    given = torch.tensor([1.0, 3.0])
    got, rows = run(model(b, [x], [last, kept]), (given,))
    torch.testing.assert_close(got, given * 2**trips)
    expected = [given * 2 ** (i + 1) + i for i in range(trips)]
    torch.testing.assert_close(rows, torch.stack(expected) if trips else torch.zeros(0, 2))


def test_a_loop_asks_its_condition():
    b, x = Block(20), value("x", [])

    def step(inner, index, state):
        following = inner.Mul(state, 2)
        return [inner.Less(following, 100), following], []

    (last,) = loop(b, None, [x], step, condition=b.Less(x, 100))
    made = model(b, [x], [last])
    assert run(made, (torch.tensor(3.0),))[0] == 192
    assert run(made, (torch.tensor(500.0),))[0] == 500


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_along_another_axis(reverse):
    b, x, start = Block(20), value("x", [2, "n"]), value("start", [2])

    def step(inner, state, column):
        following = inner.Add(state, column)
        return [following], [following]

    last, kept = scan(b, [start], [x], step, axes=[1], kept_axes=[1], reverse=reverse)
    given = torch.arange(6.0).reshape(2, 3)
    sums = given.flip(1).cumsum(1).flip(1) if reverse else given.cumsum(1)
    got, rows = run(model(b, [x, start], [last, kept]), (given, torch.zeros(2)))
    torch.testing.assert_close(rows, sums)
    torch.testing.assert_close(got, given.sum(1))


def test_loops_in_loops_have_names_of_their_own():
    b, x = Block(20), value("x", [2])

    def inner_step(inner, index, state):
        return [inner.Add(state, 1)], []

    def step(inner, index, state):
        first = loop(inner, 2, [state], inner_step)
        return loop(inner, 3, first, inner_step), []

    once = loop(b, 2, [x], step)
    (last,) = loop(b, 2, once, step)
    made = model(b, [x], [last])
    names = [v.name for node in made.graph.all_nodes() for v in node.outputs]
    assert len(names) == len(set(names)) > 10
    assert run(made, (torch.zeros(2),))[0].tolist() == [20, 20]


def test_what_is_inlined_is_renamed():
    b, x = Block(20), value("x", [2])
    outer = b.Neg(x)
    outer.name = "y"

    def body(inner, v):
        made = inner.Abs(v)
        made.name = "y"
        return [made]

    (result,) = inlined(b, body, (outer,))
    assert result.name != "y"
    assert run(model(b, [x], [result]), (torch.tensor([-1.0, 2.0]),))[0].tolist() == [1, 2]
