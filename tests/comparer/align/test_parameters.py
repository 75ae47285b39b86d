"""Which parameter an initializer may stand for."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch

from torchferry.comparer.align.parameters import Parameters, module_of
from torchferry.comparer.setting import set_up


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        up, down = torch.nn.Linear(3, 5), torch.nn.Linear(5, 3)
        self.block = torch.nn.ModuleDict({"up": up, "down": down})
        self.norm = torch.nn.BatchNorm1d(3)
        self.scale = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.block["down"](self.block["up"](x))) * self.scale


def node(op_type: str, *path: str) -> ir.Node:
    made = ir.node(op_type, [ir.val("x"), ir.val("w")], name="n")
    made.metadata_props["pkg.torch.onnx.name_scopes"] = repr(["", *path, "call"])
    return made


@pytest.fixture(scope="module")
def parameters() -> Parameters:
    from torchferry.comparer.run.piece import Runner
    from torchferry.converter import convert

    net = Net().eval()
    inputs = (torch.randn(2, 3),)
    model = convert(torch.export.export(net, inputs, strict=False))
    (setting,), _ = set_up(net, model, inputs, against="eager", runner=Runner())
    return Parameters(setting)


CASES = [
    # initializer, its shape, reader → parameters and how sure that is
    ("block.up.weight", (5, 3), node("Gemm"), ["block.up.weight name"]),
    ("block.up.weight.T", (3, 5), node("MatMul"), ["block.up.weight name"]),
    ("block.up.weight_quantized", (3, 5), node("MatMul"), ["block.up.weight name"]),
    ("block.up.weight_fused", (3, 5), node("MatMul"), ["block.up.weight shape"]),
    ("block.up.weights", (3, 5), node("MatMul"), []),  # another word
    ("block.up.weight_fused.1", (3, 5), node("MatMul", "block", "block.up"),
     ["block.up.weight shape"]),
    ("block.up.weight_scale", (5,), node("MatMul", "block", "block.up"), []),
    ("scale", (3,), node("Mul"), ["scale name"]),
    ("scale", (1, 3, 1), node("Mul"), ["scale name"]),
    ("scale", (7,), node("Mul"), []),
    ("onnx::MatMul_7", (3, 5), node("MatMul", "block", "block.up"), ["block.up.weight shape"]),
    ("onnx::MatMul_7", (3, 5), node("MatMul", "block", "block.up", "block.up.MatMul"),
     ["block.up.weight shape"]),
    ("onnx::MatMul_7", (5, 5), node("MatMul", "block", "block.down"), []),
    ("onnx::MatMul_7", (5, 3), node("MatMul", "block", "block.down"), ["block.down.weight shape"]),
    ("onnx::Add_7", (5,), node("Add", "block", "block.up"), ["block.up.bias shape"]),
    ("packed", (8,), node("Add", "block"), ["block.up.bias,block.down.bias numbers"]),
    ("onnx::Mul_7", (3,), node("Mul"), ["scale shape"]),
    ("val_3", (), node("Mul"), []),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape", "reader", "wanted"), CASES)
def test_candidates(parameters, name, shape, reader, wanted):
    found = parameters.candidates(name, shape, reader, reader)
    assert [f"{','.join(form.names)} {level}" for form, level in found] == wanted


def test_a_view_has_the_numbers_of_the_module(parameters):
    reader = node("MatMul")
    ((form, _),) = parameters.candidates("block.up.weight.T", (3, 5), reader, reader)
    assert torch.equal(parameters.view(form), parameters.tensor("block.up.weight").T)


def test_the_normalization_that_scales_channels(parameters):
    factors = 1 / (torch.ones(3, 1) + 1e-5).sqrt().double()
    found = parameters.normalization(factors)
    assert found.shape == (3, 1)
    assert torch.allclose(found, factors)
    assert parameters.normalization(factors * 2) is None
    assert parameters.normalization(torch.ones(4, 1)) is None


def test_module_of():
    assert [module_of(name) for name in ("a.b.weight", "weight")] == ["a.b", ""]
