from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer import compare
from torchferry.converter import convert


def made(module, *args):
    program = torch.export.export(module, args)
    return program, convert(program)


class Cancels(torch.nn.Module):
    def forward(self, x):
        return (x * 1.1 + 16000) - 16000, x * 2


EXACT = """<ir_version: 10, opset_import: ["" : 20]>
main (float[9] x) => (float[9] output_0, float[9] output_1) {
  c = Constant<value_float = FACTOR>()
  output_0 = Mul(x, c)
  two = Constant<value_float = 2.0>()
  output_1 = Mul(x, two) }"""


@pytest.mark.parametrize(("factor", "kind"), [("1.1", "rounding"), ("1.2", "differs")])
@pytest.mark.parametrize("against", ["program", "eager"])
def test_rounding_of_the_reference_itself_is_no_divergence(factor, kind, against):
    x = torch.linspace(0.1, 0.9, 9)
    module = Cancels()
    reference = module if against == "eager" else torch.export.export(module, (x,))
    onnx = ir.from_onnx_text(EXACT.replace("FACTOR", factor))
    found = compare(reference, onnx, (x,), against=against)
    assert (found.verdict.kind, found.ok) == (kind, kind == "rounding")
    if found.ok:
        assert any("equals PyTorch's up to rounding" in note for note in found.notes)
        assert found.first is None


def test_the_limits_that_a_user_sets_excuse_nothing():
    x = torch.linspace(0.1, 0.9, 9)
    onnx = ir.from_onnx_text(EXACT.replace("FACTOR", "1.1"))
    program = torch.export.export(Cancels(), (x,))
    assert not compare(program, onnx, atol=1e-6, rtol=1e-6).ok


def test_a_fault_inside_that_no_output_shows_is_the_verdict(small):
    model = convert(small.program)
    node = next(n for n in model.graph if n.op_type == "LayerNormalization")
    node.attributes["epsilon"] = ir.AttrFloat32("epsilon", 0.01)
    found = compare(small.program, model)
    assert found.verdict.kind == "differs"
    assert not found.ok


def test_draws_that_are_shared_and_constants_in_their_place():
    class Noisy(torch.nn.Module):
        def forward(self, x):
            return x + torch.rand_like(x)

    x = torch.rand(40)
    program, model = made(Noisy(), x)
    found = compare(program, model)
    assert (found.ok, found.verdict.kind) == (True, "random")
    assert found.verdict.evidence.endswith("equal once both sides take the reference's choice")
    _, plain = made(torch.nn.Identity(), x)
    found = compare(program, plain)
    assert (found.ok, found.verdict.kind, found.open) == (False, "differs", ())


def test_a_model_without_pytorch_has_a_verdict_too(small):
    assert compare(small.onnx, convert(small.program)).verdict.kind == "equal"
