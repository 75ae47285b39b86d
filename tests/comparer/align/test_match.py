from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.align.match import match_numbers
from torchferry.comparer.reference.reference import of_program
from torchferry.converter import convert


@pytest.fixture
def nameless(small):
    """The same model as if another tool had written it: its nodes say nothing of themselves."""
    for number, node in enumerate(small.onnx.graph):
        node.metadata_props.clear()
        node.name = f"n{number}"
        for index, value in enumerate(node.outputs):
            if not value.is_graph_output():
                value.name = f"t{number}_{index}"
    return small


def test_values_are_matched_by_their_numbers(nameless):
    reference = of_program(nameless.program, nameless.args, {}, nameless.onnx.graph)
    assert {o.how for o in reference.origins.values()} == {"output"}
    found = match_numbers(reference, nameless.onnx, {"x": nameless.args[0]})
    keys = [origin.key for origin in found.values()]
    assert keys == [
        "layer_norm", "linear", "silu", "add", "layer_norm_1", "linear_1", "silu_1", "add_1",
        "linear_2", "argmax",
    ]  # fmt: skip
    assert found["t0_0"].how == "number"


def test_such_a_file_is_compared(nameless):
    found = compare(nameless.program, nameless.onnx)
    assert found.ok
    assert len(found.rows) == 10


def test_two_such_files_are_compared(nameless):
    other = convert(nameless.program)
    assert len(compare(other, nameless.onnx).rows) == 12  # all but numbers of argmax
    node = nameless.spoil(nameless.node("LayerNormalization", 1), 1)
    assert compare(other, nameless.onnx).suspects[0] == node  # all before it agrees


def test_weights_that_a_program_returns_are_matched_without_a_gradient():
    """A node that hands on a parameter hands on that it requires a gradient."""
    program = torch.export.export(Weight(), (torch.rand(3),))
    onnx = ir.from_onnx_text("""<ir_version: 10, opset_import: ["" : 20]>
    g (float[3] x) => (float[3] y) { a = Neg(x) b = Neg(a) y = Neg(b) }""")
    reference = of_program(program, (torch.rand(3),), {}, onnx.graph)
    values = dict(reference.values({n.name for n in program.graph.nodes}))
    assert any(torch.equal(value, torch.ones(3)) for value in values.values())
    assert not any(value.requires_grad for value in values.values())


class Weight(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x + self.weight.view(3)


def test_a_fault_in_such_a_file_is_the_first_of_the_suspects(nameless):
    node = nameless.spoil(nameless.node("Gemm", 1), 1)
    found = compare(nameless.program, nameless.onnx)
    assert not found.ok
    assert found.suspects[0] == node  # all before it agrees
    assert found.first.name == "logits"
    assert {row.name for row in found.rows} >= {"t0_0", "logits"}


def test_what_only_looks_alike_is_no_difference(nameless):
    """Reversed rows have the same mean and spread."""
    value = nameless.node("LayerNormalization").outputs[0]
    reverse = ir.node(
        "Slice",
        [
            value,
            *(constant(nameless, n, v) for n, v in (("s", -1), ("e", -99), ("a", 0), ("t", -1))),
        ],
        name="reverse",
    )
    users = list(value.uses())[:-1]
    for user, index in users:
        user.replace_input_with(index, reverse.outputs[0])
    nameless.onnx.graph.insert_after(value.producer(), [reverse])
    reverse.outputs[0].name = "reversed"
    found = compare(nameless.program, nameless.onnx)
    assert "reversed" not in {row.name for row in found.rows}


def constant(small, name, number):
    value = ir.Value(name=name, const_value=ir.tensor([number]))
    small.onnx.graph.register_initializer(value)
    return value


def test_constants_are_not_matched():
    class Constant(torch.nn.Module):
        def forward(self, x):
            return x + torch.ones(3), x.sum()

    x = torch.rand(3)
    program = torch.export.export(Constant(), (x,))
    text = """<ir_version: 10, opset_import: ["" : 20]>
    main (float[3] x) => (float[3] y, float z)
    { o = Sub(x, x)
      p = Exp(o)
      y = Add(x, p)
      z = ReduceSum<keepdims=0>(x) }"""
    model = ir.from_onnx_text(text)
    reference = of_program(program, (x,), {}, model.graph)
    assert list(match_numbers(reference, model, {"x": x})) == ["y", "z"]
