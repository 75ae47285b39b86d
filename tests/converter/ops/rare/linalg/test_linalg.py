"""Linear algebra against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
linalg = torch.linalg
# The exponential of an unlucky matrix loses more digits than the others.
DRAWN = torch.Generator().manual_seed(0)


def square(*shape, dtype=torch.float32):
    """Matrices that are far from singular."""
    size = shape[-1]
    return torch.randn(*shape, dtype=dtype, generator=DRAWN) + 2 * torch.eye(size, dtype=dtype)


def definite(*shape, dtype=torch.float32):
    x = torch.randn(*shape, dtype=dtype, generator=DRAWN)
    return x @ x.mT + torch.eye(shape[-1], dtype=dtype)


SQUARES = (square(2, 4, 4),), (square(1, 3, 3),), (square(3, 5, 5),), (square(0, 2, 2),)
DOUBLE = (square(3, 3, dtype=torch.float64),), (square(4, 4, dtype=torch.float64),)
SINGULAR = [(torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]]),)]
DEFINITE = (definite(2, 4, 4),), (definite(1, 3, 3),), (definite(3, 5, 5),)
SYSTEMS = (
    (square(2, 4, 4), torch.randn(2, 4, 3)),
    (square(1, 3, 3), torch.randn(1, 3, 3)),
    (square(3, 5, 5), torch.randn(3, 5, 3)),
)
VECTORS = (torch.randn(2, 3), torch.randn(2, 3)), (torch.randn(5, 3), torch.randn(5, 3))
COLUMNS = (torch.randn(3, 2), torch.randn(3, 2)), (torch.randn(3, 1), torch.randn(3, 1))

PRODUCTS = [
    (aten.linalg_cross.default, linalg.cross, VECTORS),
    (aten.linalg_cross.default, lambda x, y: linalg.cross(x, y, dim=0), COLUMNS),
    (aten.linalg_cross.default, lambda x, y: linalg.cross(x[:1], y), VECTORS),
    (aten.cross.default, lambda x, y: torch.cross(x, y, dim=-1), VECTORS),
    (aten.linalg_vecdot.default, linalg.vecdot, VECTORS),
    (aten.linalg_vecdot.default, lambda x, y: linalg.vecdot(x, y, dim=0), COLUMNS),
]  # fmt: skip
POWERS = [
    *((aten.linalg_matrix_power.default, lambda x, n=n: linalg.matrix_power(x, n), SQUARES)
      for n in (0, 1, 2, 5, -1, -3)),
    (aten.matrix_power.default, lambda x: torch.matrix_power((x * 3).long(), 3), SQUARES),
    (aten.matrix_exp.default, torch.matrix_exp, SQUARES),
    (aten.matrix_exp.default, lambda x: torch.matrix_exp(x * 5), SQUARES),
    (aten.matrix_exp.default, lambda x: torch.matrix_exp(x * torch.tensor([0.0, 0.01])[0]),
     SQUARES),
    (aten.matrix_exp.default, torch.matrix_exp, DOUBLE),
    (aten.linalg_matrix_exp.default, linalg.matrix_exp, SQUARES),
]  # fmt: skip
SOLVED = [
    (aten.linalg_det.default, linalg.det, SQUARES),
    (aten.linalg_det.default, linalg.det, DOUBLE),
    (aten.det.default, torch.det, SINGULAR),
    (aten.linalg_det.default, linalg.det, [(SINGULAR[0][0].double(),)]),
    (aten._linalg_det.default, lambda x: aten._linalg_det(x)[0], SQUARES),
    (aten.linalg_slogdet.default, linalg.slogdet, SQUARES),
    (aten.slogdet.default, torch.slogdet, SINGULAR),
    (aten._linalg_slogdet.default, lambda x: aten._linalg_slogdet(x)[:2], SQUARES),
    (aten.logdet.default, torch.logdet, SQUARES),
    (aten.logdet.default, torch.logdet, SINGULAR),
    (aten.linalg_inv.default, linalg.inv, SQUARES),
    (aten.inverse.default, torch.inverse, DOUBLE),
    (aten.linalg_inv_ex.default, linalg.inv_ex, SQUARES),
    (aten.linalg_inv_ex.default, lambda x: linalg.inv_ex(x)[1], SINGULAR),
    (aten.linalg_solve.default, linalg.solve, SYSTEMS),
    (aten.linalg_solve.default, lambda x, y: linalg.solve(x, y[0, :, 0]), SYSTEMS),
    (aten.linalg_solve.default, lambda x, y: linalg.solve(x, y[..., 0]), SYSTEMS),
    (aten.linalg_solve.default, lambda x, y: linalg.solve(x[0], y), SYSTEMS),
    (aten.linalg_solve.default, lambda x, y: linalg.solve(x, y.mT, left=False), SYSTEMS),
    (aten.linalg_solve_ex.default, linalg.solve_ex, SYSTEMS),
    *((aten.linalg_solve_triangular.default,
       lambda x, y, up=up, un=un: linalg.solve_triangular(
           x / 4 if un else x, y, upper=up, unitriangular=un), SYSTEMS)
      for up in (True, False) for un in (True, False)),
    (aten.linalg_solve_triangular.default,
     lambda x, y: linalg.solve_triangular(x, y.mT, upper=True, left=False), SYSTEMS),
    (aten.linalg_solve_triangular.default,
     lambda x, y: linalg.solve_triangular(x[0], y, upper=False), SYSTEMS),
    (aten.triangular_solve.default, lambda x, y: torch.triangular_solve(y, x), SYSTEMS),
    (aten.triangular_solve.default,
     lambda x, y: torch.triangular_solve(y, x, upper=False, transpose=True)[0], SYSTEMS),
]  # fmt: skip
CHOLESKY = [
    (aten.linalg_cholesky.default, linalg.cholesky, DEFINITE),
    (aten.linalg_cholesky.default, lambda x: linalg.cholesky(x, upper=True), DEFINITE),
    *(  # up to 2.13
        [(aten.cholesky.default, torch.cholesky, DEFINITE)] if hasattr(aten, "cholesky") else []
    ),
    (aten.linalg_cholesky_ex.default, linalg.cholesky_ex, DEFINITE),
    (aten.linalg_cholesky_ex.default, lambda x: linalg.cholesky_ex(x)[1], SINGULAR),
    (aten.cholesky_inverse.default, torch.cholesky_inverse, SQUARES),
    (aten.cholesky_inverse.default, lambda x: torch.cholesky_inverse(x, upper=True), SQUARES),
    (aten.cholesky_solve.default, lambda x, y: torch.cholesky_solve(y, x), SYSTEMS),
    (aten.cholesky_solve.default, lambda x, y: torch.cholesky_solve(y, x, upper=True), SYSTEMS),
]


@pytest.mark.filterwarnings("ignore:torch.*is deprecated")
@pytest.mark.parametrize(("target", "function", "sets"), [*PRODUCTS, *POWERS, *SOLVED, *CHOLESKY])
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, tolerance=2e-4)


def test_a_power_of_two_is_one_product():
    model = check(lambda x: linalg.matrix_power(x, 2), *SQUARES)
    assert [node.op_type for node in model.graph] == ["MatMul"]


@pytest.mark.parametrize("ind", [1, 2])
def test_inverse_of_a_tensor(ind):
    shape = (4, 2, 2) if ind == 1 else (2, 3, 6)
    check(lambda x: torch.linalg.tensorinv(x, ind), (torch.randn(shape),), tolerance=1e-4)
