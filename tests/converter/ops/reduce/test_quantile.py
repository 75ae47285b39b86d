"""Quantiles against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")

FLOATS = (torch.randn(4, 7),), (torch.randn(1, 7),), (torch.randn(6, 7),)
ROWS = (torch.randn(4, 3),), (torch.randn(1, 3),), (torch.randn(9, 3),)
HOLES = (
    (torch.tensor([[1.0, NAN, 3.0, 2.0], [INF, 2.0, -INF, 7.0], [NAN, NAN, NAN, NAN]]),),
    (torch.tensor([[0.0, 5.0, 1.0, NAN]]),),
)
SEVERAL = torch.tensor([0.0, 0.3, 0.5, 1.0])
MODES = ("linear", "lower", "higher", "nearest", "midpoint")

CASES = [
    (aten.quantile.scalar, lambda x: x.quantile(0.3), FLOATS),
    (aten.quantile.scalar, lambda x: x.quantile(0.3, dim=0), ROWS),
    (aten.quantile.scalar, lambda x: x.quantile(0.8, dim=0, keepdim=True), ROWS),
    (aten.quantile.scalar, lambda x: x.quantile(0.8, keepdim=True), ROWS),
    (aten.quantile.scalar, lambda x: x.quantile(0.5, dim=-1), HOLES),
    (aten.quantile.scalar, lambda x: x.quantile(0.5), [(torch.tensor(2.0),)]),
    (aten.nanquantile.scalar, lambda x: x.nanquantile(0.4, dim=1), HOLES),
    (aten.nanquantile.scalar, lambda x: x.nanquantile(0.4), HOLES),
    (aten.quantile.default, lambda x: x.quantile(SEVERAL), FLOATS),
    (aten.quantile.default, lambda x: x.quantile(SEVERAL, dim=1, keepdim=True), FLOATS),
    (aten.quantile.default, lambda x: x.quantile(SEVERAL, dim=0), FLOATS),
    (aten.quantile.default, lambda x: x.quantile(torch.tensor(0.25), dim=0), FLOATS),
    (aten.nanquantile.default, lambda x: x.nanquantile(SEVERAL, dim=-1), FLOATS),
    *((aten.quantile.default, lambda x, m=mode: x.quantile(SEVERAL, 1, interpolation=m), FLOATS)
      for mode in MODES),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


def test_several_quantiles_of_rows_with_holes():
    check(
        lambda x: x.nanquantile(torch.tensor([0.1, 0.9]), dim=1, keepdim=True),
        *HOLES, target=aten.nanquantile.default,
    )  # fmt: skip
