from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import pytest
import torch

from families import in_turn
from torchferry.comparer import compare
from torchferry.comparer.align.segment import segment_of
from torchferry.comparer.reference.twin import twin_values
from torchferry.comparer.run.piece import Runner
from torchferry.comparer.setting import set_up
from torchferry.converter.torch_onnx import Flat, export_program, export_script

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
RIGHT = """g (float[2,3] x) => (float[2,3] y) {
    a = Exp(x)
    b = Softmax<axis = -1>(a)
    c = Sin(b)
    y = Sub(c, b)
}"""


def model_of(text: str, prefix: str = "") -> ir.Model:
    model = ir.from_onnx_text(HEAD + text)
    for node in model.graph:
        node.name = node.op_type
        if not node.outputs[0].is_graph_output():
            node.outputs[0].name = f"{prefix}{node.outputs[0].name}"
    return model


def suspects(text: str) -> tuple[str, ...]:
    """What is named where the two models have no names in common but the output's."""
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    return compare(model_of(RIGHT), model_of(text, "other_"), {"x": x}).suspects


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("axis = -1", "axis = 0", ("Softmax",)),
        ("Sin(b)", "Cos(b)", ("Cos",)),
        ("Sub(c, b)", "Sub(b, c)", ("Sub",)),
        ("Sub(c, b)", "Sub(c, a)", ("Sub",)),
        ("c = Sin(b)", "d = Cos(b) e = Ceil(d) c = Sin(e)", ("Cos", "Ceil")),
        ("c = Sin(b)\n", "e = Floor(b) c = Sin(e)\n", ("Floor",)),
    ],
)
def test_nodes_are_paired_with_those_of_a_twin_without_their_names(right, wrong, named):
    assert right in RIGHT
    assert suspects(RIGHT.replace(right, wrong)) == named


def test_another_graph_is_no_twin():
    other = """g (float[2,3] x) => (float[2,3] y) {
        a = Abs(x) b = Softmax<axis = -1>(x) c = Sin(a) y = Sub(b, a)
    }"""
    assert suspects(other) == ("Abs", "Softmax", "Sub")  # all that the output is made of


def values_of(onnx: ir.Model, expected: torch.Tensor) -> dict[str, torch.Tensor]:
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    settings, _ = set_up(model_of(RIGHT), onnx, {"x": x}, against="program", runner=Runner())
    segment = segment_of(onnx, "y", {})
    return twin_values(segment, settings[0], expected, lambda _, found: found.abs < 1e-6)


def test_a_twin_says_what_interior_values_should_be_in_their_precision():
    x = torch.linspace(-1, 1, 6).reshape(2, 3)
    a = x.exp()
    b = a.softmax(-1)
    onnx = model_of(RIGHT.replace("axis = -1", "axis = 0"), "other_")
    onnx.graph[2].outputs[0].dtype = ir.DataType.FLOAT16
    found = values_of(onnx, b.sin() - b)
    assert list(found) == ["other_a", "other_b", "other_c", "y"]
    torch.testing.assert_close(found["other_b"], b)
    assert found["other_c"].dtype == torch.float16
    torch.testing.assert_close(found["other_c"].float(), b.sin(), atol=1e-3, rtol=0)


def test_a_twin_that_is_wrong_itself_says_nothing():
    assert values_of(model_of(RIGHT, "other_"), torch.zeros(2, 3)) == {}


class Attention(torch.nn.Module):
    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, k)


@pytest.mark.slow
def test_one_node_of_what_torch_onnx_makes_of_attention_is_named():
    args = (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 5, 8))
    program = torch.export.export(Attention(), args)
    model = torch.onnx.export(program, dynamo=True, verbose=False).model
    softmax = next(node for node in model.graph if node.op_type == "Softmax")
    softmax.attributes["axis"] = ir.AttrInt64("axis", 2)
    found = compare(program, model, args)
    assert found.first.origin == "scaled_dot_product_attention"
    assert len(model.graph) > 5
    assert found.suspects == (softmax.name,)


@pytest.mark.slow
def test_a_file_that_was_not_optimized_has_a_twin_of_its_kind():
    args = (torch.randn(1, 2, 4, 8), torch.randn(1, 2, 5, 8))
    program = torch.export.export(Attention(), args)
    model = torch.onnx.export(program, dynamo=True, optimize=False, verbose=False).model
    assert sum(node.op_type == "Constant" for node in model.graph) > 3
    node = next(node for node in model.graph if node.op_type == "Sqrt")
    node.op_type = "Abs"
    assert compare(program, model, args).suspects == (node.name,)


def test_a_graph_with_many_other_nodes_is_no_twin():
    more = RIGHT.replace("b = Soft", "e = Ceil(x) f = Floor(e) h = Round(f) b = Soft")
    wrong = more.replace("Softmax<axis = -1>(a)", "Softmax<axis = 0>(h)")
    assert suspects(wrong) == ("Ceil", "Floor", "Round", "Softmax", "Sin", "Sub")


class Attends(torch.nn.Module):
    """Heads in one line: the exporters make several nodes of it, which no module tells apart."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(mask == 0, -1e4)
        return self.out(scores.softmax(-1) @ v)


def script(model: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> ir.Model:
    axes = {name: {0: "b", 1: "n"} for name in ("tokens", "hidden")}
    return export_script(Flat(model, (args, {})), ["tokens", "hidden"], axes, 18)


def dynamo(model: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> ir.Model:
    made = export_program(torch.export.export(model, args), 20, optimize=False)
    for value, name in zip(made.graph.inputs, ("tokens", "hidden"), strict=True):
        value.name = name
    return made


@pytest.mark.parametrize(("export", "against"), in_turn([script, dynamo], ["program", "eager"]))
def test_a_node_is_told_from_others_of_its_module_also_where_no_program_is_compared(
    export: Callable[..., ir.Model], against: str
) -> None:
    model = Attends().train()
    model.out.eval()
    args = (torch.randn(2, 5, 8), torch.ones(2, 5, 5).tril())
    onnx = export(model, args)
    assert [part.training for part in model.modules()] == [True, True, False]
    assert compare(model, onnx, args, against=against).ok
    node = next(node for node in onnx.graph if node.op_type == "Softmax")
    node.attributes["axis"] = ir.AttrInt64("axis", 1)
    found = compare(model, onnx, args, against=against)
    assert found.suspects == (node.name,)
    assert [part.training for part in model.modules()] == [True, True, False]


def test_of_a_program_a_conversion_is_the_twin_where_the_file_is_one_of_torchscript() -> None:
    class Gated(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(torch.softmax(torch.exp(x), -1))

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = Gated()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.gate(tokens) * 2

    model, tokens = Model(), torch.randn(2, 5)
    onnx = export_script(Flat(model, ((tokens,), {})), ["tokens"], {}, 18)
    for node in onnx.graph:  # but for the last of a module nothing says what a node makes
        node.outputs[0].name = f"v_{node.name}"
    node = next(node for node in onnx.graph if node.op_type == "Softmax")
    node.attributes["axis"] = ir.AttrInt64("axis", 0)
    program = torch.export.export(model, (tokens,))
    assert compare(program, onnx, (tokens,)).suspects == (node.name,)
