"""Models to draw: branches, a loop and a local function; and what is made of them."""

from __future__ import annotations

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(
    name: str, kind: int = FLOAT, shape: list[int | str] | None = None
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, ["n", 4] if shape is None else shape)


def control_model() -> onnx.ModelProto:
    """If with a value of the graph around, Loop with a function inside, a node of two outputs."""
    node = helper.make_node
    weight = helper.make_tensor("w", FLOAT, [4], [1, 2, 3, 4])
    then = helper.make_graph(
        [node("Add", ["x", "w"], ["t1"]), node("Relu", ["t1"], ["t"])],
        "then", [], [value("t")], initializer=[weight],
    )  # fmt: skip
    other = helper.make_graph([node("Mul", ["x", "scale"], ["e"])], "else", [], [value("e")])
    body = helper.make_graph(
        [
            node("Identity", ["c_in"], ["c_out"]),
            node("Add", ["h", "z"], ["h1"]),
            node("fn", ["h1"], ["h2"], domain="my"),
        ],
        "body",
        [value("i", INT64, []), value("c_in", BOOL, []), value("h")],
        [value("c_out", BOOL, []), value("h2")],
    )
    zero = helper.make_tensor("zero", FLOAT, [], [0.0])
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Constant", [], ["zero"], value=zero),
        node("Greater", ["s", "zero"], ["c"]),
        node("Sqrt", ["x"], ["scale"]),
        node("If", ["c"], ["z"], then_branch=then, else_branch=other),
        node("Loop", ["trip", "", "x"], ["y"], body=body),
        node("Split", ["y"], ["a", "b"], axis=1, num_outputs=2),
        node("Concat", ["b", "a"], ["out"], axis=1),
    ]
    trip = helper.make_tensor("trip", INT64, [], [3])
    graph = helper.make_graph(nodes, "main", [value("x")], [value("out")], initializer=[trip])
    opset = helper.make_opsetid("", 20)
    inside = [node("Sin", ["a"], ["q"]), node("Add", ["q", "a"], ["b"])]
    function = helper.make_function("my", "fn", ["a"], ["b"], inside, [opset])
    return helper.make_model(
        graph, functions=[function], opset_imports=[opset, helper.make_opsetid("my", 1)],
        ir_version=10,
    )  # fmt: skip


@pytest.fixture(scope="session")
def control() -> onnx.ModelProto:
    model = control_model()
    onnx.checker.check_model(model)
    return model


def chain_model(*operators: str, name: str = "g") -> ir.Model:
    """Operators of one input, one after the other."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 2]))
    nodes, last = [], x
    for operator in operators:
        nodes.append(ir.Node("", operator, [last]))
        last = nodes[-1].outputs[0]
    return ir.Model(
        ir.Graph([x], [last], nodes=nodes, opset_imports={"": 20}, name=name), ir_version=10
    )


@pytest.fixture
def chain():
    return chain_model
