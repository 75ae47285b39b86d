import numpy as np
import onnx_ir as ir
from rewriting import HEAD

from torchferry.optimizer.facts import is_constant
from torchferry.optimizer.inference import infer_missing, infer_node, light
from torchferry.optimizer.place import all_nodes


def named(op_type, inputs, **attributes):
    node = ir.node(op_type, inputs, attributes)
    node.outputs[0].name = "out"
    return node


def test_a_new_node_gets_type_and_shape():
    x = ir.val("x", ir.DataType.FLOAT, ["a", 3])
    axes = ir.val("axes", const_value=ir.tensor([1], name="axes"), type=ir.TensorType(
        ir.DataType.INT64), shape=[1])  # fmt: skip
    node = named("Unsqueeze", [x, axes])
    infer_node(node, {"": 20})
    assert node.outputs[0].dtype == ir.DataType.FLOAT
    assert [str(d) for d in node.outputs[0].shape] == ["a", "1", "3"]


def test_what_does_not_follow_stays_open():
    x = ir.val("x", ir.DataType.FLOAT, ["a", 3])
    unknown, other = named("Relu", [ir.Value(name="y")]), named("NoSuchOperator", [x])
    fixed = ir.val("z", ir.DataType.FLOAT, [2, 3])
    wrong = named("MatMul", [fixed, fixed])
    for node in (unknown, other, wrong):
        infer_node(node, {"": 20})
        assert node.outputs[0].shape is None


def test_a_model_without_shapes():
    text = "g (float[a,3] x) => (float[a,3] y) { s = Neg(x) y = Relu(s) }"
    model = ir.from_onnx_text(HEAD.format(opset=20) + text)
    assert infer_missing(model, all_nodes(model))
    assert [str(d) for d in model.graph[0].outputs[0].shape] == ["a", "3"]
    assert not infer_missing(model, all_nodes(model))


def test_large_initializers_are_inputs_for_a_while():
    weight = ir.tensor(np.zeros((64, 64), np.float32), name="w")
    value = ir.val("w", const_value=weight)
    x = ir.val("x", ir.DataType.FLOAT, ["a", 64])
    node = ir.node("MatMul", [x, value])
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[value], opset_imports={"": 20})
    with light(ir.Model(graph, ir_version=10)):
        assert [v.name for v in graph.inputs] == ["x", "w"]
        assert not graph.initializers
    assert list(graph.inputs) == [x]
    assert graph.initializers["w"] is value
    assert is_constant(value)


def test_an_output_that_is_left_out_is_no_hindrance():
    text = "g (float[a,3] x) => (float[a,3] y) { s, m = Dropout(x) y = Relu(s) }"
    model = ir.from_onnx_text(HEAD.format(opset=20) + text)
    model.graph[0].outputs[1].name = ""
    assert infer_missing(model, all_nodes(model))
    assert [str(d) for d in model.graph[0].outputs[0].shape] == ["a", "3"]


BRANCHES = """
g (bool c, float[a,3] x, float[a,b,3] z) => (float[] y) {
  y = If (c) <
    then_branch = one () => (float[] p) {
      s = Shape(x) o = ConstantOfShape(s) p = ReduceSum<keepdims=0>(o)
    },
    else_branch = other () => (float[] p) {
      s = Shape(z) t = Shape(s) o = ConstantOfShape(t) p = ReduceSum<keepdims=0>(o)
    }
  >
}"""


def test_branches_may_use_the_same_names():
    """onnx's own inference takes the shape of one for that of the other."""
    model = ir.from_onnx_text(HEAD.format(opset=20) + BRANCHES)
    assert infer_missing(model, all_nodes(model))
    nodes = [node for node in all_nodes(model) if node.op_type == "ConstantOfShape"]
    assert [node.outputs[0].name for node in nodes] == ["o", "o"]
    assert sorted(len(node.outputs[0].shape) for node in nodes) == [1, 2]
