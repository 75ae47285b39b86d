from __future__ import annotations

import onnx_ir as ir
import torch

from torchferry.comparer.align.align import (
    Origin,
    align_modules,
    align_program,
)
from torchferry.comparer.align.provenance import all_scopes
from torchferry.converter import convert


def keys(found):
    return {name: origin.key for name, origin in found.items()}


def test_every_value_of_our_own_graph_has_its_fx_node(small):
    found = align_program(small.program, small.onnx.graph)
    # SiLU is Sigmoid and Mul: the interior value stands for nothing.
    assert keys(found) == {
        "layer_norm": "layer_norm", "linear": "linear", "silu": "silu", "add": "add",
        "layer_norm_1": "layer_norm_1", "linear_1": "linear_1", "silu_1": "silu_1",
        "add_1": "add_1", "logits": "linear_2", "top": "argmax",
    }  # fmt: skip
    assert found["add"].how == "name"
    assert found["logits"].how == found["top"].how == "output"
    order = [v.name for node in small.onnx.graph for v in node.outputs if v.name in found]
    assert list(found) == order


def test_items_of_a_node_are_aligned():
    class Split(torch.nn.Module):
        def forward(self, x):
            a, b = x.split(2, dim=-1)
            return a * b

    program = torch.export.export(Split(), (torch.rand(3, 4),))
    found = keys(align_program(program, convert(program).graph))
    assert found == {"split_0": "split:0", "split_1": "split:1", "output": "mul"}


def test_other_numbers_in_names_are_paired_by_module_and_operator(small):
    for node in small.onnx.graph:
        text = node.metadata_props["pkg.torch.onnx.fx_node"]
        for kind in ("layer_norm", "linear", "add"):  # as if another capture had counted on
            text = text.replace(f"%{kind}_1 ", f"%{kind}_17 ").replace(f"%{kind} ", f"%{kind}_9 ")
        node.metadata_props["pkg.torch.onnx.fx_node"] = text
        for value in node.outputs:
            for kind in ("layer_norm", "linear", "add"):
                if value.name in (kind, f"{kind}_1"):
                    value.name = f"{kind}_17" if value.name.endswith("_1") else f"{kind}_9"
    found = keys(align_program(small.program, small.onnx.graph))
    assert found["layer_norm_9"] == "layer_norm"
    assert found["layer_norm_17"] == "layer_norm_1"
    assert found["linear_9"] == "linear"
    assert found["add_17"] == "add_1"


def test_a_name_with_another_operator_is_not_believed(small):
    node = small.node("LayerNormalization")
    text = node.metadata_props["pkg.torch.onnx.fx_node"]
    node.metadata_props["pkg.torch.onnx.fx_node"] = text.replace("layer_norm.default", "gelu.x")
    found = align_program(small.program, small.onnx.graph)
    assert "layer_norm" not in found
    assert found["layer_norm_1"].key == "layer_norm_1"


def test_a_value_that_was_rounded_and_back_has_its_fx_node(small):
    node = small.node("Add")
    value = node.outputs[0]
    rounded = ir.node("Cast", [value], {"to": ir.DataType.FLOAT16})
    back = ir.node("Cast", [rounded.outputs[0]], {"to": ir.DataType.FLOAT})
    for user, index in tuple(value.uses()):
        if user is not rounded:
            user.replace_input_with(index, back.outputs[0])
    small.onnx.graph.insert_after(node, [rounded, back])
    value.name, rounded.outputs[0].name, back.outputs[0].name = "whole", "half", "add"
    found = align_program(small.program, small.onnx.graph)
    assert found["add"] == Origin("add", "name")
    assert not found.keys() & {"whole", "half"}


def test_a_module_ends_in_the_last_value_anywhere_inside_that_is_read_outside(small):
    found = align_modules(small.onnx.graph, all_scopes(small.onnx.graph))
    assert found["add"] == Origin("blocks.0", "scope")  # not the activation, which is inside
    assert found["silu"].key == "blocks.0.act"
    assert found["layer_norm_1"].key == "blocks.1.norm"
    assert found["logits"] == Origin("output:0", "output")
    assert found["top"] == Origin("output:1", "output")


TORCH_SCRIPT = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 2] x, float[2, 2] w) => (float[2, 2] y)
{
  a = MatMul(x, w)
  b = Add(a, x)
  c = Relu(b)
  y = Mul(c, a)
}"""


def torch_script() -> ir.Model:
    model = ir.from_onnx_text(TORCH_SCRIPT)
    for node, name in zip(
        model.graph, ["/body/lin/MatMul", "/body/Add", "/body/act/Relu", "/Mul"], strict=True
    ):
        node.name = name
    return model


def test_modules_of_the_torchscript_exporter_end_in_values():
    model = torch_script()
    found = keys(align_modules(model.graph, all_scopes(model.graph)))
    # body and body.act end in one value: the outermost is named
    assert found == {"a": "body.lin", "c": "body", "y": "output:0"}


def test_a_program_is_aligned_with_such_a_file_by_modules():
    class Body(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.act = torch.nn.Linear(2, 2, bias=False), torch.nn.ReLU()

        def forward(self, x):
            a = self.lin(x)
            return self.act(a + x), a

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = Body()

        def forward(self, x):
            c, a = self.body(x)
            return c * a

    program = torch.export.export(Model(), (torch.rand(2, 2),))
    found = keys(align_program(program, torch_script().graph))
    assert found == {"a": "linear", "c": "relu", "y": "mul"}


def test_values_that_a_tool_has_renamed_are_known_by_their_nodes(small):
    names = {}
    for number, node in enumerate(small.onnx.graph):
        for index, value in enumerate(node.outputs):
            if not value.is_graph_output():
                names[f"t{number}_{index}"] = value.name
                value.name = f"t{number}_{index}"
    found = align_program(small.program, small.onnx.graph)
    keys = {names.get(name, name): origin.key for name, origin in found.items()}
    assert keys.pop("logits") == "linear_2"
    assert keys.pop("top") == "argmax"
    assert len(keys) == 8
    assert all(name == key for name, key in keys.items())


def test_a_name_whose_value_is_declared_otherwise_is_that_of_another_program():
    class Twice(torch.nn.Module):
        def forward(self, x):
            return x.sin().sum(0).sin().exp()

    program = torch.export.export(Twice(), (torch.rand(2, 3),))
    model = convert(program)
    first, second = (node for node in model.graph if node.op_type == "Sin")
    assert align_program(program, model.graph)["sin_1"].key == "sin_1"
    key = "pkg.torch.onnx.fx_node"
    first.metadata_props[key] = second.metadata_props.pop(key)
    second.outputs[0].name, first.outputs[0].name = "unnamed", "sin_1"
    found = align_program(program, model.graph)
    assert [origin.key for origin in found.values()] == ["sum_1", "exp"]


class Top(torch.nn.Module):
    def forward(self, x):
        return x.topk(2)


class Uses(torch.nn.Module):
    def __init__(self, both):
        super().__init__()
        self.top, self.both = Top(), both

    def forward(self, x):
        values, places = self.top(x)
        return (values.exp(), places * 2) if self.both else values.exp()


def test_a_module_ends_in_what_is_read_of_it_and_not_in_one_of_two():
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]>\n'
        "g (float[4,3] x) => (float[4,2] y) { a = Neg(x) b = Neg(a) y = Exp(b) }"
    )
    for node, name in zip(model.graph, ["/top/A", "/top/B", "/Exp"], strict=True):
        node.name = name
    x = (torch.rand(4, 3),)
    one = torch.export.export(Uses(False), x)
    values = {name: origin.key for name, origin in align_program(one, model.graph).items()}
    assert values == {"b": "getitem", "y": "exp"}
    # Which of two is the last in another graph is not known.
    two = torch.export.export(Uses(True), x)
    made = ir.node("Identity", [model.graph[1].outputs[0]], name="/Mul")
    made.outputs[0].name = "z"
    model.graph.append(made)
    model.graph.outputs.append(made.outputs[0])
    assert list(align_program(two, model.graph)) == ["y", "z"]


def test_sizes_that_a_module_computes_are_not_what_it_returns():
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[2,n] x) => (float[2,n] z) <float[2,n] y, int64[1] s, int64 k, float f> {
        y = Exp(x) s = Shape<start = 1>(x) k = ReduceMax<keepdims = 0>(s)
        f = Cast<to = 1>(k) z = Mul(y, f)
    }"""
    model = ir.from_onnx_text(text)
    for node, scope in zip(model.graph, ("/part/", "/part/", "/part/", "/", "/"), strict=True):
        node.name = f"{scope}{node.op_type}"
    model.graph[2].outputs[0].type = ir.TensorType(ir.DataType.INT64)
    model.graph[2].outputs[0].shape = ir.Shape([])
    assert keys(align_modules(model.graph, {"part"})) == {"y": "part", "z": "output:0"}
