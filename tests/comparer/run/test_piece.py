from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.run.piece import (
    LEVELS,
    Runner,
    cut,
    ort_value,
    outside,
    reads,
    tensor_of_ort,
)
from torchferry.errors import RunError, UsageError

TENSORS = [
    torch.rand(2, 3), torch.rand(()), torch.rand(0, 3), torch.tensor([True, False]),
    torch.rand(3).half(), torch.rand(3).bfloat16(), torch.arange(3), torch.rand(3).double(),
    torch.rand(3, 2).t(), torch.rand(4).to(torch.float8_e4m3fn),
]  # fmt: skip


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}-{list(t.shape)}")
def test_a_tensor_goes_to_onnxruntime_and_back(tensor):
    back = tensor_of_ort(ort_value(tensor))
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert torch.equal(back.float(), tensor.float())


def test_a_complex_tensor_becomes_pairs_of_numbers():
    tensor = torch.tensor([1 + 2j, 3 - 1j]).conj()
    assert tensor_of_ort(ort_value(tensor)).tolist() == [[1, -2], [3, 1]]


def test_the_value_is_a_copy():
    tensor = torch.zeros(3)
    value = ort_value(tensor)
    tensor.fill_(1)
    assert tensor_of_ort(value).tolist() == [0, 0, 0]


def test_a_dtype_that_onnx_does_not_have_is_refused():
    with pytest.raises(RunError, match=r"onnxruntime takes no torch\.bits8"):
        ort_value(torch.empty(2, dtype=torch.bits8))


MODEL = """<ir_version: 10, opset_import: ["" : 20]>
main (float[N] x, bool c) => (float[N] y)
{
  a = Relu(x)
  b = Neg(a)
  y = If (c) <
    then_branch = yes () => (float[N] t) { t = Add(a, x) },
    else_branch = no () => (float[N] e) { e = Identity(b) }
  >
}"""


@pytest.fixture
def model() -> ir.Model:
    return ir.from_onnx_text(MODEL)


def names(values):
    return [value.name for value in values]


def test_what_a_subgraph_reads_counts(model):
    nodes = list(model.graph)
    assert names(reads(nodes[2])) == ["c", "a", "x", "b"]
    assert names(outside(nodes[2:])) == ["c", "a", "x", "b"]
    assert names(outside(nodes)) == ["x", "c"]


def test_a_piece_computes_what_the_whole_does(model):
    x = torch.tensor([-1.0, 2.0])
    feeds = {"x": ort_value(x), "c": ort_value(torch.tensor(True)), "a": ort_value(x.relu())}
    nodes = list(model.graph)[1:]
    inputs = outside(nodes)
    piece = cut(model, inputs, [nodes[-1].outputs[0]], feeds)
    assert names(piece.graph.inputs) == ["a", "c", "x"]
    assert len(piece.graph) == 2
    found = Runner()(piece, feeds)
    assert tensor_of_ort(found["y"]).tolist() == [-1.0, 4.0]


def test_the_model_stays_as_it_was(model):
    before = ir.to_proto(model).SerializeToString()
    x = ort_value(torch.tensor([-1.0, 2.0]))
    cut(model, [model.graph.inputs[0]], [model.graph[1].outputs[0]], {"x": x, "a": x}, ["a"])
    assert ir.to_proto(model).SerializeToString() == before


def test_readers_of_a_fed_value_are_given_the_reference(model):
    x, a = torch.tensor([-1.0, 2.0]), torch.tensor([10.0, 20.0])
    feeds = {"x": ort_value(x), "a": ort_value(a)}
    first, second = list(model.graph)[:2]
    outputs = [first.outputs[0], second.outputs[0]]
    piece = cut(model, [model.graph.inputs[0]], outputs, feeds, ["a"])
    found = Runner()(piece, feeds)
    assert tensor_of_ort(found["a"]).tolist() == [0.0, 2.0]
    assert tensor_of_ort(found["b"]).tolist() == [-10.0, -20.0]


def test_large_weights_are_used_where_they_lie():
    weight = torch.rand(40, 40)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, 40]))
    w = ir.Value(name="w", const_value=ir.tensor(weight.numpy()))
    node = ir.node("MatMul", [x, w])
    node.outputs[0].name = "y"
    unused = ir.Value(name="unused", const_value=ir.tensor(weight.numpy() + 1))
    graph = ir.Graph(
        [x], node.outputs, nodes=[node], initializers=[w, unused], opset_imports={"": 20}
    )
    graph.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    model = ir.Model(graph, ir_version=10)
    given = torch.rand(1, 40)
    found = tensor_of_ort(Runner()(model, {"x": ort_value(given)})["y"])
    torch.testing.assert_close(found, given @ weight)
    assert w.const_value.numpy() is not None
    assert (w.const_value.numpy() == weight.numpy()).all()


def test_weights_of_any_size_and_type_may_lie_in_a_file(tmp_path):
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    small, scale = (
        ir.tensor(v, ir.DataType.FLOAT, name=n)
        for v, n in (([3.0, 4.0], "small"), ([0.5], "scale"))
    )
    fours = ir.tensor([1, -2] * 2000, ir.DataType.INT4, name="fours")
    weights = [ir.Value(name=t.name, const_value=t) for t in (small, scale, fours)]
    added = ir.node("Add", [x, weights[0]])
    whole = ir.node("DequantizeLinear", [weights[2], weights[1]])
    added.outputs[0].name, whole.outputs[0].name = "y", "z"
    for value in (added.outputs[0], whole.outputs[0]):
        value.type = ir.TensorType(ir.DataType.FLOAT)
    graph = ir.Graph(
        [x], [added.outputs[0], whole.outputs[0]], nodes=[added, whole], initializers=weights,
        opset_imports={"": 21},
    )  # fmt: skip
    path = tmp_path / "model.onnx"
    ir.save(ir.Model(graph, ir_version=10), path, external_data="w", size_threshold_bytes=0)
    model = ir.load(path)
    assert all(
        isinstance(v.const_value, ir.ExternalTensor) for v in model.graph.initializers.values()
    )
    found = Runner()(model, {"x": ort_value(torch.ones(2))})
    assert tensor_of_ort(found["y"]).tolist() == [4, 5]
    assert tensor_of_ort(found["z"])[:2].tolist() == [0.5, -1]
    assert all(
        isinstance(v.const_value, ir.ExternalTensor) for v in model.graph.initializers.values()
    )


def test_a_failure_tells_what_onnxruntime_says(model):
    feeds = {"x": ort_value(torch.zeros(2)), "c": ort_value(torch.zeros(2, dtype=torch.bool))}
    with pytest.raises(RunError, match="onnxruntime: "):
        Runner()(model, feeds)


@pytest.mark.parametrize(("level", "providers"), [("most", None), ("all", ["NoSuchProvider"])])
def test_what_onnxruntime_does_not_have_is_refused(level, providers):
    with pytest.raises(UsageError, match="choose from"):
        Runner(level, providers)


def test_the_levels_go_from_none_to_all():
    assert list(LEVELS) == ["none", "basic", "extended", "all"]
    assert sorted(map(int, LEVELS.values())) == [int(level) for level in LEVELS.values()]
