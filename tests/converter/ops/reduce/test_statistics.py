"""Variances and norms against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
linalg = torch.linalg
NAN, INF = float("nan"), float("inf")

FLOATS = (torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(5, 4),)
EMPTY = (*FLOATS, (torch.randn(0, 4),))
HOLES = (torch.tensor([[1.0, NAN, 3.0], [INF, 2.0, -INF]]),), (torch.tensor([[0.0, 1.0, 0.0]]),)
HALVES = (
    (torch.randn(3, 300, dtype=torch.float16) * 20 + 100,),
    (torch.randn(1, 300, dtype=torch.float16),),
)
POINT = ((torch.tensor(2.5),),)
BATCH = (torch.randn(2, 3, 4),), (torch.randn(1, 3, 4),)

SPREADS = [
    (aten.var.default, lambda x: x.var(unbiased=False), FLOATS),
    (aten.var.correction, lambda x: x.var(correction=0), EMPTY),
    (aten.var.dim, lambda x: x.var(0), EMPTY),
    (aten.var.dim, lambda x: x.var((0, 1), keepdim=True), EMPTY),
    (aten.var.correction, lambda x: x.var(dim=1, correction=2), EMPTY),
    (aten.var.correction, lambda x: x.var(dim=0, correction=3.5), EMPTY),
    (aten.var.dim, lambda x: (x + 1000).var(1), FLOATS),
    (aten.var.dim, lambda x: x.var(1), HALVES),
    (aten.var.default, lambda x: x.var(unbiased=True), POINT),
    (aten.std.dim, lambda x: x.std(-1, keepdim=True), HOLES),
    (aten.std.correction, lambda x: x.std(), FLOATS),
    (aten.std.default, lambda x: x.std(unbiased=False), FLOATS),
    (aten.std_mean.dim, lambda x: torch.std_mean(x, 1), EMPTY),
    (aten.std_mean.correction, lambda x: torch.std_mean(x, correction=0, keepdim=True), FLOATS),
    (aten.std_mean.default, lambda x: torch.std_mean(x, unbiased=False), FLOATS),
    (aten.var_mean.correction, torch.var_mean, FLOATS),
    (aten.var_mean.dim, lambda x: torch.var_mean(x, 0, keepdim=True), HALVES),
    (aten.var_mean.default, lambda x: torch.var_mean(x, unbiased=False), FLOATS),
]
NORMS = [
    *((aten.linalg_vector_norm.default, lambda x, p=p: linalg.vector_norm(x, p, 1), FLOATS)
      for p in (0, 0.5, 1, 2, 3, -1, INF, -INF)),
    (aten.linalg_vector_norm.default, linalg.vector_norm, EMPTY),
    (aten.linalg_vector_norm.default, lambda x: linalg.vector_norm(x, 1, 0, True), EMPTY),
    (aten.linalg_vector_norm.default, lambda x: linalg.vector_norm(x, INF, -1), HOLES),
    (aten.linalg_vector_norm.default, lambda x: linalg.vector_norm(x, 0, -1), HOLES),
    (aten.linalg_vector_norm.default, lambda x: linalg.vector_norm(x, 3, 1), HALVES),
    (aten.linalg_vector_norm.default,
     lambda x: linalg.vector_norm(x, dtype=torch.float64), FLOATS),
    (aten.linalg_vector_norm.default,
     lambda x: linalg.vector_norm(x * 100, 3), [(x.double(),) for (x,) in FLOATS]),
    (aten.linalg_vector_norm.default, lambda x: linalg.vector_norm(x, 3), POINT),
    (aten.linalg_vector_norm.default, lambda x: x.norm(p=1, dim=1), FLOATS),
    (aten.linalg_norm.default, linalg.norm, BATCH),
    (aten.linalg_norm.default, lambda x: linalg.norm(x, 1, dim=1), FLOATS),
    (aten.linalg_norm.default, lambda x: linalg.norm(x, 1), FLOATS),
    (aten.linalg_norm.default, lambda x: linalg.norm(x, -INF, dim=(2, 0), keepdim=True), BATCH),
    (aten.linalg_norm.ord_str, lambda x: linalg.norm(x, "fro"), FLOATS),
    (aten.linalg_matrix_norm.str_ord, linalg.matrix_norm, BATCH),
    (aten.linalg_matrix_norm.default, lambda x: linalg.matrix_norm(x, 1), BATCH[:1]),
    (aten.linalg_matrix_norm.default, lambda x: linalg.matrix_norm(x, -1), BATCH[:1]),
    (aten.linalg_matrix_norm.default,
     lambda x: linalg.matrix_norm(x, INF, (1, 0), keepdim=True), BATCH),
    (aten.norm.Scalar, lambda x: aten.norm.Scalar(x, 3), FLOATS),
    (aten.norm.ScalarOpt_dim, lambda x: aten.norm.ScalarOpt_dim(x, None, [1]), FLOATS),
    (aten.norm.ScalarOpt_dim_dtype,
     lambda x: aten.norm.ScalarOpt_dim_dtype(x, 2, [1], False, dtype=torch.float64), FLOATS),
    (aten.norm.ScalarOpt_dtype,
     lambda x: aten.norm.ScalarOpt_dtype(x, 1, dtype=torch.float64), FLOATS),
    (aten.frobenius_norm.dim, lambda x: aten.frobenius_norm.dim(x, [0, 1]), FLOATS),
    (aten.dist.default, lambda x: torch.dist(x, x * 2, 3), FLOATS),
    (aten.dist.default, lambda x: torch.dist(x, x[:1] - 1), FLOATS),
    (aten.renorm.default, lambda x: torch.renorm(x * 3, 2, 0, 1.0), EMPTY),
    (aten.renorm.default, lambda x: torch.renorm(x, 1, 2, 2), BATCH),
    (aten.renorm.default, lambda x: torch.renorm(x, 2, 0, 50.0), HALVES),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize(("target", "function", "sets"), [*SPREADS, *NORMS])
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


def test_norms_of_complex_numbers():
    sets = (torch.randn(3, 2, dtype=torch.complex64),), (torch.randn(1, 2, dtype=torch.complex64),)
    check(lambda x: linalg.vector_norm(x, dim=1), *sets, target=aten.linalg_vector_norm.default)
    check(lambda x: linalg.vector_norm(x, INF), *sets)
