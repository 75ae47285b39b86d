"""Axes in another order."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten
THREE = [(torch.randn(2, 3, 4),), (torch.randn(1, 3, 4),), (torch.randn(0, 3, 4),)]
TWO = [(torch.randn(2, 3),), (torch.randn(5, 3),)]
SCALAR = [(torch.tensor(1.5),)]

CASES = [
    (aten.transpose.int, lambda x: x.transpose(-1, 0), THREE),
    (aten.transpose.int, lambda x: x.transpose(0, -1), SCALAR),
    (aten.swapaxes.default, lambda x: x.swapaxes(0, 1), THREE),
    (aten.swapdims.default, lambda x: x.swapdims(0, 2), THREE),
    (aten.permute.default, lambda x: x.permute(2, -3, 1), THREE),
    (aten.permute.default, lambda x: x.permute(()), SCALAR),
    (aten.movedim.int, lambda x: x.movedim(0, -1), THREE),
    (aten.movedim.intlist, lambda x: x.movedim((0, 1), (2, 0)), THREE),
    (aten.moveaxis.int, lambda x: torch.moveaxis(x, 1, 0), THREE),
    (aten.t.default, lambda x: x.t(), TWO),
    (aten.t.default, lambda x: x.t(), [(torch.randn(3),)]),
    (aten.mT.default, lambda x: x.mT, THREE),
    (aten.mH.default, lambda x: x.mH, THREE),
    (aten.matrix_H.default, lambda x: x.H, TWO),
    (aten.adjoint.default, lambda x: x.adjoint(), THREE),
    (aten.numpy_T.default, lambda x: x.T, TWO),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.bfloat16, torch.complex64])
def test_any_dtype(dtype):
    def function(x):
        return x.transpose(0, -1), x.permute(1, 2, 0), x.movedim(-1, 0)

    check(function, *[(x.to(dtype),) for (x,) in THREE[:2]])


def test_a_weight_is_stored_transposed():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.randn(3, 2))

        def forward(self, x):
            return x @ self.weight.t()

    model = translate(export(Model(), (torch.randn(4, 2),)), 20)
    assert [node.op_type for node in model.graph] == ["MatMul"]
