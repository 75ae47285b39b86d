"""Singular values and what follows from them, against LAPACK in eager."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate
from torchferry.errors import LoweringFailed

aten = torch.ops.aten
r = torch.randn
la = torch.linalg

TALL = [(r(2, 7, 4),), (r(3, 5, 3),), (r(1, 3, 3),), (r(2, 2, 1),), (r(2, 1, 1),)]
WIDE = [(r(3, 6),), (r(2, 5),), (r(4, 9),), (r(1, 2),)]
SQUARE = [(r(2, 5, 5),), (r(3, 4, 4),), (r(1, 2, 2),), (r(1, 1, 1),)]
DEFICIENT = [(r(6, 2) @ r(2, 5),), (r(9, 3) @ r(3, 7),), (torch.zeros(3, 3),), (torch.eye(4),)]
KINDS = {"tall": TALL, "wide": WIDE, "square": SQUARE, "deficient": DEFICIENT}


def symmetric(*sets):
    return [(x + x.mT,) for (x,) in sets]


@pytest.mark.parametrize("sets", KINDS.values(), ids=KINDS)
def test_singular_values(sets):
    check(la.svdvals, *sets, tolerance=1e-5)


@pytest.mark.parametrize("size", [(4, 6), (6, 4), (5, 5), (1, 1), (1, 7)])
def test_singular_values_of_a_fixed_size(size):
    check(la.svdvals, (r(size),), tolerance=1e-5)


def test_large_matrices_and_wide_ranges():
    powers = torch.logspace(0, -6, 40)
    x = la.qr(r(60, 40))[0] * powers @ la.qr(r(40, 40))[0]
    check(la.svdvals, (r(90, 64),), tolerance=1e-5)
    check(la.svdvals, (x.double(),), tolerance=1e-9)


@pytest.mark.parametrize("uplo", ["L", "U"])
@pytest.mark.parametrize("sets", [SQUARE, symmetric(*SQUARE)], ids=["a triangle", "symmetric"])
def test_eigenvalues(uplo, sets):
    check(lambda x: la.eigvalsh(x, UPLO=uplo), *sets, tolerance=1e-5)


def test_eigenvalues_of_opposite_signs():
    x = torch.tensor([[0.0, 2], [2, 0]])
    check(la.eigvalsh, (torch.block_diag(x, x, -x[:1, 1:]),), tolerance=1e-5)


@pytest.mark.parametrize("order", [None, 2, -2])
def test_condition(order):
    sets = [(x + 6 * torch.eye(x.shape[-1]),) for (x,) in SQUARE[:3]]
    check(lambda x: la.cond(x, order), *sets, tolerance=1e-4)


@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("order", [2, -2, "nuc"])
def test_norms_of_matrices(order, keepdim):
    for one in TALL[:3]:  # torch 2.13 does not export it with dynamic sizes
        check(lambda x: la.matrix_norm(x, order, (0, 2), keepdim), one, tolerance=1e-5)
    check(lambda x: la.norm(x, order), *WIDE, tolerance=1e-5)


@pytest.mark.parametrize("sets", [TALL[:3], WIDE, DEFICIENT], ids=["tall", "wide", "deficient"])
def test_rank(sets):
    check(la.matrix_rank, *sets, exact=True)


def test_rank_with_limits():
    check(lambda x: la.matrix_rank(x, atol=0.5), *TALL[:3], exact=True)
    check(lambda x: la.matrix_rank(x, hermitian=True), *symmetric(*SQUARE), exact=True)


@pytest.mark.parametrize("sets", [TALL[:3], WIDE, DEFICIENT], ids=["tall", "wide", "deficient"])
def test_pseudoinverse(sets):
    check(la.pinv, *sets, target=aten.linalg_pinv.atol_rtol_tensor, tolerance=1e-4)


@pytest.mark.parametrize(
    "options", [{"rtol": 0.3}, {"atol": 0.5}, {"atol": 0.1, "rtol": 0.3}, {"hermitian": True}]
)
def test_pseudoinverse_with_options(options):
    check(lambda x: la.pinv(x, **options), *symmetric(*SQUARE[:3]), tolerance=1e-3)


def test_pseudoinverse_with_a_limit_for_each_matrix():
    limits = torch.tensor([0.1, 2.0])
    check(lambda x: la.pinv(x, atol=limits), (r(2, 5, 3),), tolerance=1e-4)


@pytest.mark.parametrize(
    ("function", "vectors"),
    [(lambda x: la.svd(x)[0], "singular vectors"), (lambda x: la.eigh(x)[1], "eigenvectors")],
)
def test_vectors_are_refused(function, vectors):
    with pytest.raises(LoweringFailed, match=f"{vectors} are defined up to a sign"):
        translate(export(function, (r(3, 3),)), 20)


@pytest.mark.parametrize("sets", KINDS.values(), ids=KINDS)
def test_values_alone_are_read(sets):
    check(lambda x: la.svd(x)[1], *sets, tolerance=1e-5)
    check(lambda x: la.svd(x, full_matrices=False).S * 2, *sets, tolerance=1e-5)


@pytest.mark.parametrize("sets", [symmetric(*SQUARE)])
def test_eigenvalues_alone_are_read(sets):
    check(lambda x: la.eigh(x).eigenvalues, *sets, tolerance=1e-5)
