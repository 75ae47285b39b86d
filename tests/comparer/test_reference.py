from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.comparer.piece import Runner
from torchferry.comparer.reference import of_model, of_module, of_program, random_values
from torchferry.converter import convert


def test_a_program_gives_only_the_values_asked_for(small):
    reference = of_program(small.program, small.args, {}, small.onnx.graph)
    found = dict(reference.values({"linear", "argmax"}))
    assert list(found) == ["linear", "argmax"]
    assert reference.origins["logits"].key == "linear_2"
    assert reference.program is small.program
    assert reference.drawn == reference.tainted == frozenset()


def test_a_program_that_writes_in_place_is_compared_without(small):
    class InPlace(torch.nn.Module):
        def forward(self, x):
            y = x * 2
            y.add_(1)
            return y.relu_() + x

    x = torch.tensor([-3.0, 1.0])
    program = torch.export.export(InPlace(), (x,), strict=False)
    graph = convert(program).graph
    reference = of_program(program, (x,), {}, graph)
    values = dict(reference.values({origin.key for origin in reference.origins.values()}))
    assert len(reference.origins) == len(graph)
    by_name = {name: values[origin.key].tolist() for name, origin in reference.origins.items()}
    assert list(by_name.values()) == [[-6, 2], [-5, 3], [0, 3], [-3, 4]]


def random_names(module, *args):
    program = torch.export.export(module, args, strict=False)
    reference = of_program(program, args, {}, convert(program).graph)
    return reference.drawn, reference.tainted


class Noisy(torch.nn.Module):
    def forward(self, x):
        return torch.randn_like(x) + 1, x * 2


def test_values_that_depend_on_random_numbers_are_known():
    drawn, tainted = random_names(Noisy(), torch.rand(3))
    assert drawn == {"randn_like"}
    assert tainted == {"randn_like", "add"}


def test_dropout_that_does_nothing_is_not_random():
    layers = torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.0))
    assert random_names(layers.eval(), torch.rand(3)) == (frozenset(), frozenset())
    assert random_names(layers[1:].train(), torch.rand(3)) == (frozenset(), frozenset())
    attention = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()
    x = torch.rand(1, 3, 4)
    assert random_names(attention, x, x, x) == (frozenset(), frozenset())


def test_modules_in_eager_mode_are_a_reference(small):
    reference = of_module(small.module, small.args, {}, small.onnx.graph)
    found = dict(reference.values({"blocks.0", "output:0", "output:1"}))
    expected = small.module(*small.args)
    torch.testing.assert_close(found["blocks.0"], small.module.blocks[0](*small.args))
    torch.testing.assert_close(found["output:0"], expected["logits"])
    torch.testing.assert_close(found["output:1"], expected["top"])
    assert reference.program is None


def test_another_onnx_model_is_a_reference(small):
    feeds = {"x": small.args[0]}
    reference = of_model(convert(small.program), feeds, small.onnx.graph, Runner())
    found = dict(reference.values({"logits"}))
    torch.testing.assert_close(found["logits"], small.module(*small.args)["logits"])


@pytest.mark.parametrize("op_type", ["RandomUniformLike", "RandomNormalLike", "Bernoulli"])
def test_random_onnx_operators_are_known(op_type):
    text = f"""<ir_version: 10, opset_import: ["" : 20]>
    main (float[N] x) => (float[N] y, float[N] z)
    {{ r = {op_type}(x)
       y = Add(r, x)
       z = Neg(x) }}"""
    drawn, tainted = random_values(ir.from_onnx_text(text).graph)
    assert drawn == {"r"}
    assert tainted == {"r", "y"}


class Turn(torch.nn.Module):
    def forward(self, x):
        return x.cos(), x.sin()


class Turned(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turn, self.act = Turn(), torch.nn.Tanh()

    def forward(self, x):
        cos, sin = self.turn(x)
        return self.act(x * cos + x.flip(-1) * sin)


def test_a_module_with_two_tensors_is_not_compared_with_the_last_of_them():
    model, x = Turned().eval(), torch.randn(3, 4)
    onnx = convert(torch.export.export(model, (x,)))
    found = compare(model, onnx, (x,), against="eager")
    assert found.ok
    assert [row.origin for row in found.rows] == ["output:0"]
