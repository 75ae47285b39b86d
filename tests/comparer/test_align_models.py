from __future__ import annotations

import onnx_ir as ir

from torchferry.comparer.align_models import align_models
from torchferry.converter import convert


def keys(found):
    return {name: origin.key for name, origin in found.items()}


def test_two_onnx_models_are_aligned_by_names_and_outputs(small):
    other = convert(small.program)
    other.graph.outputs[0].name = "scores"
    next(n for n in other.graph if n.op_type == "Sigmoid").outputs[0].name = "unknown"
    found = align_models(other.graph, small.onnx.graph)
    assert keys(found)["logits"] == "scores"
    assert keys(found)["add"] == "add"
    assert len(found) == sum(len(node.outputs) for node in small.onnx.graph) - 1


def names_of(first, second):
    head = '<ir_version: 10, opset_import: ["" : 20]>\n'
    return set(align_models(*(ir.from_onnx_text(head + text).graph for text in (first, second))))


def test_numbers_for_names_count_only_in_graphs_that_come_from_one():
    one = "g (float[a] x) => (float[a] y) { val_0 = Exp(x) val_1 = Neg(val_0) y = Log(val_1) }"
    other = "g (float[a] x) => (float[a] y) { val_0 = Abs(x) val_1 = Exp(val_0) y = Log(val_1) }"
    changed = "g (float[a] x) => (float[a] y) { val_0 = Exp(x) val_1 = Abs(val_0) y = Log(val_1) }"
    assert names_of(one, other) == {"y"}
    assert names_of(one, changed) == {"val_0", "val_1", "y"}


def test_values_declared_with_other_shapes_are_not_one():
    graph = "g (float[a,3] x) => (float[a] y) <float[{}] s> {{ s = Neg(x) y = ReduceSum(s) }}"
    assert names_of(graph.format("a,3"), graph.format("b,3")) == {"s", "y"}
    assert names_of(graph.format("a,3"), graph.format("a,4")) == {"y"}
    assert names_of(graph.format("a,3"), graph.format("a,3,1")) == {"y"}


def test_fx_names_of_another_capture_are_not_trusted(small):
    other = convert(small.program)
    linear = next(n for n in other.graph if n.outputs[0].name == "linear_1")
    text = linear.metadata_props["pkg.torch.onnx.fx_node"]
    assert "linear_1" in align_models(other.graph, small.onnx.graph)
    linear.metadata_props["pkg.torch.onnx.fx_node"] = text.replace("%linear_1 ", "%linear_9 ")
    assert "linear_1" not in align_models(other.graph, small.onnx.graph)
