"""A loop around a few values."""

import onnx_ir as ir
import torch
from op_case import run

from torchferry.converter.block import Block
from torchferry.converter.ops.control.repetition import repeated


def model(write, dtype=ir.DataType.INT64):
    b = Block(20)
    x = ir.Value(name="x", type=ir.TensorType(dtype), shape=ir.Shape([3]))
    outputs = write(b, x)
    for number, value in enumerate(outputs):
        value.name = f"out_{number}"
    for number, node in enumerate(b.nodes):
        for value in node.outputs:
            value.name = value.name or f"value_{number}"
    graph = ir.Graph([x], outputs, nodes=b.nodes, opset_imports={"": 20}, name="main")
    for value in b.constants.values.values():
        graph.register_initializer(value)
    return ir.Model(graph, ir_version=10)


def test_a_number_of_steps():
    """The count is the step's, from 0."""

    def write(b, x):
        return repeated(b, "sum", (x,), lambda b, count, s: [b.Add(s, count)], times=4)

    assert run(model(write), [torch.tensor([1, 2, 3])])[0].tolist() == [7, 8, 9]


def test_until_a_condition_fails_and_twice():
    """Two loops in one graph, each with names of its own."""

    def step(b, count, s):
        doubled = b.Mul(s, 2)
        return b.Less(b.ReduceMax(doubled, keepdims=0), 20), doubled

    def write(b, x):
        going = b.constant(True)
        once = repeated(b, "double", (x,), step, going=going)
        return [*once, *repeated(b, "double", (b.Sub(x, 1),), step, going=going)]

    first, second = run(model(write), [torch.tensor([1, 2, 3])])
    assert first.tolist() == [8, 16, 24]
    assert second.tolist() == [0, 16, 32]
