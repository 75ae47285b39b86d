"""Diagonals and triangles."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
FIXED = [(torch.randn(3, 4),)]
WIDE = [(torch.randn(3, 5),), (torch.randn(7, 5),), (torch.randn(1, 5),), (torch.randn(0, 5),)]
ANY = [(torch.randn(3, 5),), (torch.randn(7, 2),), (torch.randn(1, 4),), (torch.randn(0, 2),)]
CUBE = [(torch.randn(2, 3, 4),), (torch.randn(5, 3, 4),), (torch.randn(1, 3, 4),)]
LINE = [(torch.randn(3),), (torch.randn(5),), (torch.randn(1),), (torch.randn(0),)]

CASES = [
    *[(aten.diagonal.default, lambda x, o=o: x.diagonal(o), sets)
      for sets in (FIXED, WIDE, ANY) for o in (0, 1, -2, 9)],
    (aten.diagonal.default, lambda x: x.diagonal(1, -1, 0), CUBE),
    (aten.diagonal.default, lambda x: x.diagonal(0, 1, 2), CUBE),
    (aten.linalg_diagonal.default, lambda x: torch.linalg.diagonal(x, offset=-1), CUBE),
    (aten.diag.default, lambda x: x.diag(1), ANY),
    (aten.diag.default, lambda x: x.diag(-1), LINE),
    (aten.diagflat.default, lambda x: torch.diagflat(x, 1), ANY),
    (aten.diag_embed.default, lambda x: x.diag_embed(), CUBE),
    (aten.diag_embed.default, lambda x: x.diag_embed(2, 0, -1), ANY),
    (aten.diag_embed.default, lambda x: x.diag_embed(-1, 2, 1), ANY),
    (aten.diagonal_scatter.default, lambda x: torch.diagonal_scatter(x, x.diagonal() + 1), ANY),
    (aten.diagonal_scatter.default,
     lambda x: torch.diagonal_scatter(x, x.diagonal(1, 2, 0) + 1, 1, 2, 0), CUBE),
    (aten.diagonal_scatter.default,
     lambda x: torch.diagonal_scatter(x, x.diagonal(-1) * 2, -1), FIXED),
    *[(aten.tril.default, lambda x, k=k: x.tril(k), sets)
      for k, sets in ((0, ANY), (-1, CUBE), (2, WIDE), (9, FIXED))],
    *[(aten.triu.default, lambda x, k=k: x.triu(k), sets)
      for k, sets in ((0, ANY), (-1, CUBE), (2, WIDE), (-9, FIXED))],
    (aten.triu.default, lambda x: x.triu(x.shape[0]), ANY),
    (aten.tril.default, lambda x: (x / 0).tril(), FIXED),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.int32, torch.int64, torch.complex64]
)
def test_trace(dtype):
    check(lambda x: x.trace(), *[((x * 9).to(dtype),) for (x,) in ANY], target=aten.trace.default)


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.float64,
          torch.complex64]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype(dtype):
    def function(x):
        return x.tril(), x.triu(1), x.diagonal(1), x[:, 0].diag(), x[:1].diag_embed(1)

    check(function, *[((x * 9).to(dtype),) for (x,) in WIDE[:3]])


@pytest.mark.parametrize("sets", [ANY, CUBE])
def test_complex_numbers(sets):
    def function(x):
        z = torch.complex(x, x + 1)
        diagonals = z.diagonal(-1), z.diagonal(0, -1, 0), z.diag_embed(-1, 0, -1)
        return *diagonals, torch.diagonal_scatter(z, z.diagonal() * 2), z.tril(-1), z.triu(1)

    check(function, *sets, exact=True)


def test_trace_of_large_integers():
    sets = [(torch.randint(2**55, 2**58, (n, n + 1)),) for n in (5, 3, 0)]
    check(lambda x: x.trace(), *sets, target=aten.trace.default, exact=True)
