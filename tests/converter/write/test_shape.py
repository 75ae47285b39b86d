"""Shapes of what lowerings make on their way, against ONNX's own shape inference."""

import onnx
import onnx_ir as ir
import pytest

from torchferry.converter.block import Block


def tensor(name, *shape, dtype=ir.DataType.FLOAT):
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))


class Inputs:
    """Fresh values: each belongs to one graph."""

    def __init__(self):
        self.x, self.y = tensor("x", "n", 3, 4), tensor("y", 4, 5)
        self.z, self.a = tensor("z", 1, 3, 1), tensor("a", 1, 2, 4, 3)
        self.i = tensor("i", 2, "k", dtype=ir.DataType.INT64)


@pytest.mark.parametrize(
    "make",
    [
        lambda b, v: b.Relu(v.x),
        lambda b, v: b.Add(v.x, v.z),
        lambda b, v: b.Where(b.Equal(v.z, v.z), v.x, 1.0),
        lambda b, v: b.Transpose(v.x, perm=[2, 0, 1]),
        lambda b, v: b.Transpose(v.y),
        lambda b, v: b.Unsqueeze(v.x, [0, -1]),
        lambda b, v: b.Squeeze(v.z, [0, -1]),
        lambda b, v: b.MatMul(v.x, v.y),
        lambda b, v: b.MatMul(v.a, v.x),
        lambda b, v: b.ReduceSum(v.x, [-1], keepdims=0),
        lambda b, v: b.ReduceSum(v.x, [1, 2], keepdims=1),
        lambda b, v: b.ReduceMax(v.x, keepdims=0),
        lambda b, v: b.Reshape(v.x, [0, 2, 6]),
        lambda b, v: b.Reshape(v.y, [20]),
        lambda b, v: b.Expand(v.z, [7, 3, 2]),
        lambda b, v: b.Concat(v.x, v.x, axis=1),
        lambda b, v: b.Concat(v.y, v.y, axis=-2),
        lambda b, v: b.Gather(v.x, v.i, axis=1),
        lambda b, v: b.Gather(v.x, 0, axis=-1),
        lambda b, v: b.GatherElements(v.y, v.i, axis=1),
        lambda b, v: b.Shape(v.x),
        lambda b, v: b.Shape(v.x, start=-2),
        lambda b, v: b.Softmax(v.x, axis=1),
    ],
)
def test_agrees_with_onnx(make):
    b, inputs = Block(20), Inputs()
    mine = make(b, inputs)
    graph = ir.Graph(
        list(vars(inputs).values()), [mine], nodes=b.nodes, opset_imports={"": 20}, name="g"
    )
    for value in b.constants.values.values():
        graph.register_initializer(value)
    proto = ir.to_proto(ir.Model(graph, ir_version=10))
    proto.graph.output[0].ClearField("type")
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    dims = inferred.graph.output[0].type.tensor_type.shape.dim
    theirs = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in dims]
    assert [s if isinstance(s, int) else s.value for s in mine.shape] == theirs


def test_what_is_not_plain_stays_unknown():
    b = Block(20)
    assert b.NonZero(tensor("x", "n", 3)).shape is None
    unknown = b.Add(tensor("a", "n"), tensor("b", "m"))
    assert unknown.shape == ir.Shape([None])
