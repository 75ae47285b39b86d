from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.align.align_models import align_models
from torchferry.converter import convert
from torchferry.converter.torch_onnx import Flat, export_script


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


def test_a_few_numbers_that_happen_to_be_the_same_say_nothing():
    """Two exporters may both begin with the shape of something."""
    text = """g (float[a] x, float[b] z) => (float[c] y)
    {{ val_0 = Shape({0}) {1} = Exp(x) {2} = Neg({1}) {3} = Sin(z)
       y = Concat<axis=0>({2}, {3}) }}"""
    one = text.format("x", "val_1", "val_2", "val_3")
    other = text.format("z", "val_4", "val_5", "val_6")
    assert names_of(one, other) == {"y"}
    assert names_of(one, text.format("z", "val_1", "s", "t")) == {"val_0", "val_1", "y"}


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


class Called(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.once, self.twice = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
        self.conv, self.norm = torch.nn.Conv1d(3, 3, 1), torch.nn.BatchNorm1d(3)

    def forward(self, x):
        x = self.norm(self.conv(self.once(x)))
        return self.twice(self.twice(x)).tanh()


@pytest.fixture(scope="module")
def called():
    """One model in files of two exporters; that of TorchScript has its norm in the convolution."""
    torch.manual_seed(0)
    module, x = Called(), torch.rand(2, 3, 4)
    module(5 * x)  # moves the averages
    module.eval()
    flat = Flat(module, ((x,), {}))
    ours = convert(torch.export.export(module, (x,)))
    return ours, export_script(flat, ["x"], {"x": {0: "b"}}, 18)


def test_files_of_two_exporters_are_aligned_by_what_leaves_their_modules(called):
    ours, theirs = called
    assert "BatchNormalization" not in {node.op_type for node in theirs.graph}
    there = "/inner/once/Add_output_0", "/inner/conv/Conv_output_0"
    # Its second call stands in twice_1, so that no call of twice is known there.
    found = align_models(ours.graph, theirs.graph)
    assert {name: (o.key, o.how) for name, o in found.items()} == {
        there[0]: ("linear", "scope"),
        there[1]: ("batch_norm", "scope"),
        theirs.graph.outputs[0].name: ("output", "output"),
    }
    found = align_models(theirs.graph, ours.graph)
    assert {name: (o.key, o.how) for name, o in found.items()} == {
        "linear": (there[0], "scope"),
        "batch_norm": (there[1], "scope"),
        "output": (theirs.graph.outputs[0].name, "output"),
    }


def test_such_files_agree_and_a_fault_is_found_from_either_side(called):
    for one, other in (called, called[::-1]):
        found = compare(one, other)
        assert found.ok
        assert found.unaligned <= 2
        spoiled = ir.from_proto(ir.to_proto(other))
        *_, node = (node for node in spoiled.graph if node.op_type == "LayerNormalization")
        node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.5)
        assert compare(one, spoiled).suspects == (node.name,)


def test_what_leaves_a_module_in_several_values_is_not_known_by_its_module():
    text = """<ir_version: 10, opset_import: ["" : 20]> g (float[4] x) => (float[4] y, float[4] z)
    {{ {0} = Exp(x) {1} = Neg({0}) y = Log({1}) z = Abs({0}) }}"""
    graphs = [ir.from_onnx_text(text.format(*names)).graph for names in (("p", "q"), ("r", "s"))]
    for graph in graphs:
        for node, name in zip(graph, ("/a/Exp", "/a/Neg", "/b/Log", "/Abs"), strict=True):
            node.name = name
    assert keys(align_models(*graphs)) == {"y": "y", "z": "z"}


def test_outputs_of_one_name_are_one_in_any_order():
    one = "g (float[a] x) => (float[a] y, float[a] z) { y = Exp(x) z = Neg(x) }"
    other = "g (float[a] x) => (float[a] z, float[a] y) { z = Neg(x) y = Exp(x) }"
    head = '<ir_version: 10, opset_import: ["" : 20]>\n'
    graphs = (ir.from_onnx_text(head + text).graph for text in (one, other))
    assert keys(align_models(*graphs)) == {"z": "z", "y": "y"}
