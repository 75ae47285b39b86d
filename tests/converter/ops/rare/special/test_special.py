"""Special functions against eager, relative to the result where it is small."""

import pytest
import torch
from op_case import check

from torchferry.graph.runtime import NAN_ERF
from versions import can

aten = torch.ops.aten
special = torch.special
NAN, INF = float("nan"), float("inf")
WIDE = torch.cat([torch.linspace(-6, 6, 49), torch.tensor([0.0, -0.0, NAN, INF, -INF, 1e-8])])
UNIT = torch.tensor(
    [-1.0, -0.9999999, -0.999, -0.5, -1e-4, 0.0, 1e-6, 0.3, 0.9, 0.99999, 1.0, NAN, 1.5]
)
SHARES = torch.tensor([0.0, 1e-38, 1e-30, 1e-12, 1e-6, 0.2, 0.5, 0.9, 0.9999, 1.0])
ABOVE = torch.cat([torch.linspace(0.05, 12, 40), torch.tensor([1e-6, 50.0, 1e6, 1.0, 2.0, INF])])
BELOW = torch.tensor([-0.5, -1.3, -2.0, -5.7, -7.2, -0.0])

CASES = [
    (aten.erf.default, torch.erf, WIDE if can(NAN_ERF) else WIDE[~WIDE.isnan()]),
    (aten.erfc.default, torch.erfc, WIDE),
    (aten.special_erfcx.default, special.erfcx, WIDE),
    (aten.special_ndtr.default, special.ndtr, WIDE),
    (aten.special_log_ndtr.default, special.log_ndtr, WIDE * 3),
    (aten.erfinv.default, torch.erfinv, UNIT),
    (aten.special_ndtri.default, special.ndtri, SHARES),
    (aten.special_entr.default, special.entr, torch.tensor([0.0, 0.5, 2.0, -1.0, NAN])),
    (aten.lgamma.default, torch.lgamma, ABOVE),
    (aten.lgamma.default, torch.lgamma, BELOW),
    (aten.digamma.default, torch.digamma, ABOVE),
    (aten.digamma.default, torch.digamma, BELOW[:-1]),
    *((aten.polygamma.default, lambda x, n=n: torch.polygamma(n, x), ABOVE) for n in (0, 1, 2, 4)),
    *(
        (aten.polygamma.default, lambda x, n=n: torch.polygamma(n, x), BELOW[[0, 1, 3, 4]])
        for n in (1, 2)
    ),
    (
        aten.special_zeta.default,
        lambda x: special.zeta(x, x + 1),
        torch.tensor([1.0, 1.5, 3, 0.5, 20]),
    ),
    (aten.special_zeta.other_scalar, lambda x: special.zeta(x, 2.0), torch.tensor([1.1, 4.0])),
    (
        aten.special_xlog1py.default,
        lambda x: special.xlog1py(x, x),
        torch.tensor([0.0, 1e-9, 2.0]),
    ),
    (aten.special_xlog1py.other_scalar, lambda x: special.xlog1py(x, 3), torch.tensor([0.0, 2.0])),
]


@pytest.mark.parametrize(("target", "function", "x"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_eager(target, function, x, dtype):
    check(
        function, (x.to(dtype),), target=target, tolerance=1e-5 if dtype == torch.float32 else 1e-7
    )


@pytest.mark.parametrize("function", [torch.erfc, torch.lgamma, torch.digamma, special.ndtri])
def test_other_sizes_and_integers(function):
    """At one row, at none, and of integers, which become floats."""
    check(function, *((torch.rand(n, 3) / 2 + 0.2,) for n in (2, 1, 0, 5)))
    check(function, (torch.tensor([1]),))
    check(function, (torch.tensor(0.5),))


def test_tails_keep_their_digits():
    x = torch.linspace(3, 9, 13)
    check(lambda x: torch.erfc(x) * torch.exp(x * x), (x,), tolerance=2e-5)
