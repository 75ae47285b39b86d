"""Differences of neighbours."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
ROWS = [(torch.randn(4, 6),), (torch.randn(7, 6),), (torch.randn(2, 6),)]
CASES = [
    lambda x: x.diff(),
    lambda x: x.diff(2, 1),
    lambda x: x.diff(n=0),
    lambda x: x.diff(dim=0),
    lambda x: x.diff(n=7),
    lambda x: (x > 0).diff(),
    lambda x: x.diff(prepend=x[:, :2], append=x[:, -1:].long()),
]


@pytest.mark.parametrize("function", CASES)
def test_diff(function):
    check(function, *ROWS, target=aten.diff.default)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int64, torch.uint8])
def test_any_dtype(dtype):
    check(lambda x: x.diff(), *[((x * 9).to(dtype),) for (x,) in ROWS])
