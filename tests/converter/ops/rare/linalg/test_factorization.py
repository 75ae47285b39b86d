"""LU and QR against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
linalg = torch.linalg

TALL = (torch.randn(2, 5, 3),), (torch.randn(1, 5, 3),), (torch.randn(3, 4, 3),)
WIDE = (torch.randn(3, 5),), (torch.randn(2, 5),)
SQUARE = (torch.randn(4, 4),), (torch.randn(2, 2),), (torch.randn(1, 1),)
DOUBLE = [(torch.randn(3, 4, dtype=torch.float64),)]
ZEROS = [(torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.0, 3.0], [0.0, 0.0, 4.0]]),)]
SYSTEMS = (
    (torch.randn(2, 4, 4), torch.randn(2, 4, 3)),
    (torch.randn(1, 3, 3), torch.randn(1, 3, 3)),
    (torch.randn(3, 5, 5), torch.randn(3, 5, 3)),
)


def solved(left, adjoint):
    def function(x, y):
        factors = linalg.lu_factor(x)
        return linalg.lu_solve(*factors, y if left else y.mT, left=left, adjoint=adjoint)

    return function


CASES = [
    *((aten.linalg_lu_factor.default, linalg.lu_factor, s) for s in (TALL, WIDE, SQUARE, DOUBLE)),
    (aten.linalg_lu_factor_ex.default, linalg.lu_factor_ex, TALL),
    (aten.linalg_lu_factor_ex.default, linalg.lu_factor_ex, ZEROS),
    *((aten.linalg_lu.default, linalg.lu, sets) for sets in (TALL, WIDE, SQUARE)),
    (aten.lu_unpack.default, lambda x: torch.lu_unpack(*linalg.lu_factor(x)), TALL),
    (aten.lu_unpack.default,
     lambda x: torch.lu_unpack(*linalg.lu_factor(x), unpack_data=False)[0], WIDE),
    *((aten.linalg_lu_solve.default, solved(left, adjoint), SYSTEMS)
      for left in (True, False) for adjoint in (True, False)),
    (aten.lu_solve.default, lambda x, y: torch.lu_solve(y, *linalg.lu_factor(x)), SYSTEMS),
    *((aten.linalg_qr.default, lambda x, m=mode: linalg.qr(x, m), sets)
      for mode in ("reduced", "complete") for sets in (TALL, WIDE, SQUARE)),
    (aten.linalg_qr.default, lambda x: linalg.qr(x, "r")[1], WIDE),
    (aten.linalg_qr.default, linalg.qr, ZEROS),
    (aten.linalg_qr.default, linalg.qr, DOUBLE),
    *([(aten.qr.default, torch.qr, TALL)] if hasattr(aten, "qr") else []),  # up to 2.13
    (aten.linalg_householder_product.default,
     lambda x: linalg.householder_product(x, x[:, 0, :2]), TALL),
    (aten.orgqr.default, lambda x: torch.orgqr(x, x[:, 0]), TALL),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, tolerance=2e-4)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
def test_products_with_reflections(left, transpose):
    def function(x, tau, other):
        other = other if left else other.mT
        return torch.ormqr(x, tau, other, left, transpose)

    sets = [
        (*torch.geqrf(torch.randn(batch, 5, columns)), torch.randn(batch, 5, 2))
        for batch, columns in ((2, 3), (3, 4), (1, 1))
    ]
    check(function, *sets, target=aten.ormqr.default)
