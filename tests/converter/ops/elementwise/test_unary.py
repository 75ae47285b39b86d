"""Functions of one operand against eager, with what float32 makes of hard places."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
G = torch.Generator().manual_seed(0)
FLOATS = [(torch.randn(n, 3, generator=G) * 2,) for n in (2, 4, 1, 0)]
UNIT = [(torch.rand(n, 3, generator=G) * 1.9 - 0.95,) for n in (2, 4, 1, 0)]
ABOVE = [(torch.rand(n, 3, generator=G) * 9 + 1,) for n in (2, 4, 1, 0)]
INTS = [(torch.arange(1, 4) * n,) for n in (1, 2)]
ODD = [(torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 1e-10, -1e-10, 0.5, 2.5, -2.5]),)]
SMALL = [(torch.tensor([1e-10, -1e-10, 1e-20, 1e-4, -3e-3, 0.2, 30.0, -0.9]),)]

REAL = ("cos", "sin", "exp", "tanh", "sigmoid", "tan", "sinh", "cosh", "asinh", "atan", "expm1",
        "sinc", "deg2rad", "rad2deg")  # fmt: skip
INNER = ("asin", "acos", "atanh")
OUTER = ("log", "sqrt", "rsqrt", "reciprocal", "acosh", "log2", "log10", "log1p")
SIGNS = ("neg", "abs", "sign", "sgn", "positive", "floor", "ceil", "round", "frac")


def rows(names, inputs):
    return [
        (getattr(aten, name).default, getattr(torch, name), s) for name in names for s in inputs
    ]


def doubles(inputs):
    return [(x.double(),) for (x,) in inputs]


def halves(inputs):
    return [(x.half(),) for (x,) in inputs]


CASES = [
    *rows(REAL, (FLOATS, ODD, doubles(FLOATS), halves(UNIT))),
    *rows([name for name in REAL if name not in ("deg2rad", "rad2deg")], (INTS,)),
    *rows(INNER, (UNIT, ODD, doubles(UNIT), halves(UNIT))),
    *rows(OUTER, (ABOVE, ODD, doubles(ABOVE), halves(ABOVE), INTS)),
    *rows(SIGNS, (FLOATS, doubles(FLOATS), halves(FLOATS))),
    *rows([name for name in SIGNS if name != "frac"], (INTS,)),
    *rows(SIGNS, ([(torch.tensor([NAN, 0.5, 1.5, -2.5, -0.0]),)],)),
    (aten.neg.default, torch.neg, [(torch.tensor([0, 1, 255]).byte(),)]),
    (aten.abs.default, torch.abs, [(torch.tensor([-3, 4]).short(),)]),
    (aten.log1p.default, torch.log1p, SMALL),
    (aten.expm1.default, torch.expm1, SMALL),
    (aten.log2.default, torch.log2, [(2.0 ** torch.arange(-20, 21),)]),
    (aten.logit.default, torch.logit, [((x + 1) / 2,) for (x,) in UNIT]),
    (aten.logit.default, lambda x: torch.logit(x, eps=0.1), UNIT),
    (aten.copysign.Tensor, lambda x: torch.copysign(x, -x), FLOATS),
    (aten.copysign.Scalar, lambda x: torch.copysign(x, -0.0), FLOATS),
    (aten.copysign.Scalar, lambda x: torch.copysign(x, 2), INTS),
    *(
        (aten.round.decimals, lambda x, d=d: torch.round(x, decimals=d), s)
        for d in (1, 3, -1)
        for s in (FLOATS, [(x * 100,) for (x,) in FLOATS])
    ),
    (aten.arcsin.default, torch.arcsin, UNIT),
    (aten.arctan.default, torch.arctan, FLOATS),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target)


@pytest.mark.parametrize("name", ["log1p", "expm1", "asinh", "tanh", "sinh"])
def test_small_numbers_keep_their_digits(name):
    """Relative to the result, which absolute tolerances cannot see."""
    function = getattr(torch, name)
    check(lambda x: function(x) / x, SMALL[0])


@pytest.mark.parametrize("function", [torch.asinh, torch.acosh])
def test_huge_numbers_of_float64(function):
    numbers = [INF, -INF, 1e200, -1e200, -1e30, -1e9, 1e8, 3e9, 1.0, 0.5, NAN]
    check(function, (torch.tensor(numbers, dtype=torch.float64),))


def test_logarithms_of_powers_are_whole():
    check(torch.log2, (2.0 ** torch.arange(-60, 61, dtype=torch.float32),), exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_atan2_in_all_quarters(dtype):
    """With zeros of both signs, and infinities."""
    numbers = torch.tensor([0.0, -0.0, 1, -1, 2.5, -3, INF, -INF, NAN], dtype=dtype)
    y, x = torch.meshgrid(numbers, numbers, indexing="ij")
    check(torch.atan2, (y, x), target=aten.atan2.default)


def test_the_sign_of_zero_stays():
    check(lambda x: 1 / torch.trunc(x), (torch.tensor([-0.1, 0.1, -1.5, INF, NAN]),))
    check(lambda x: 1 / torch.round(x), (torch.tensor([-0.2, 0.2, -0.0]),))
