"""Arithmetic of two operands against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
FLOATS = (torch.randn(2, 3), torch.randn(3)), (torch.randn(4, 3), torch.randn(3))

CASES = [
    (aten.add.Tensor, lambda x, y: x + y, FLOATS),
    (aten.add.Tensor, lambda x, y: torch.add(x, y, alpha=2.5), FLOATS),
    (aten.add.Tensor, lambda x: x + 1.5, [(torch.arange(6),), (torch.arange(1),)]),
    (aten.sub.Tensor, lambda x, y: x - y, FLOATS),
    (aten.mul.Tensor, lambda x, y: x * y, FLOATS),
    (aten.mul.Tensor, lambda x: x * x.shape[0], [(torch.randn(3),), (torch.randn(1),)]),
    (aten.mul.Tensor, lambda x: x * (x > 0), [(torch.tensor([1, -1]),)]),
    (aten.div.Tensor, lambda x, y: x / y, [(torch.arange(5), torch.arange(1, 6))]),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)
