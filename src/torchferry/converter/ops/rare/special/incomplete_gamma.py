"""The regularized incomplete gamma functions, in float64.

Below ``a + 1`` the series of the lower one, from there on the continued fraction of the upper one
(Lentz' method), each until it stands still in every place.
Sources: https://dlmf.nist.gov/8.7.E1 and https://dlmf.nist.gov/8.9.E2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.control.repetition import repeated
from torchferry.converter.ops.rare.special.special import lgamma
from torchferry.seams.operators import aten, prims

__all__: list[str] = []

_DOUBLE = ir.DataType.DOUBLE
_INFINITY = float("inf")
_STEPS = 10_000  # both need about the square root of a, several times
_STILL = 1e-15
_TINY = 1e-300


def _share(b: Block, a: ir.Value, x: ir.Value, upper: bool) -> ir.Value:
    """The share of the gamma integral below ``x``, or above it."""
    a, x = b.cast(a, _DOUBLE), b.cast(x, _DOUBLE)
    shape = b.shape(b.Add(a, x))
    a, x = b.Expand(a, shape), b.Expand(x, shape)
    finite = b.And(b.Less(a, _INFINITY), b.Less(x, _INFINITY))
    inside = b.And(finite, b.And(b.Greater(a, 0.0), b.Greater(x, 0.0)))
    order, end = b.Where(inside, a, 1.0), b.Where(inside, x, 1.0)
    low = b.Less(end, b.Add(order, 1.0))
    front = b.Exp(b.Sub(b.Sub(b.Mul(order, b.Log(end)), end), lgamma(b, order)))
    below = b.Mul(front, _series(b, order, b.Where(low, end, 0.0)))
    above = b.Mul(front, _fraction(b, order, b.Where(low, b.Add(order, 2.0), end)))
    computed = b.Where(low, b.Sub(1.0, below), above) if upper else b.Where(
        low, below, b.Sub(1.0, above)
    )  # fmt: skip
    # at the ends: nothing is below 0, everything below infinity; of the order it is the reverse
    nothing = b.Or(b.Equal(x, 0.0), b.Equal(a, _INFINITY))
    everything = b.Or(b.Equal(x, _INFINITY), b.Equal(a, 0.0))
    valid = b.And(b.GreaterOrEqual(a, 0.0), b.GreaterOrEqual(x, 0.0))
    valid = b.And(valid, b.Xor(nothing, everything))
    edge = b.cast(nothing if upper else everything, _DOUBLE)
    return b.Where(inside, computed, b.Where(valid, edge, float("nan")))


def _series(b: Block, a: ir.Value, x: ir.Value) -> ir.Value:
    """``sum of x**n / (a (a + 1) ... (a + n))``."""

    def step(b: Block, count: ir.Value, term: ir.Value, total: ir.Value) -> Sequence[ir.Value]:
        number = b.Add(b.cast(count, _DOUBLE), 1.0)
        term = b.Mul(term, b.Div(x, b.Add(a, number)))
        going = b.Greater(term, b.Mul(total, _STILL))
        return _anywhere(b, going), term, b.Add(total, term)

    start = b.Reciprocal(a)
    return repeated(b, "series", (start, start), step, times=_STEPS, going=b.constant(True))[1]


def _fraction(b: Block, a: ir.Value, x: ir.Value) -> ir.Value:
    """``1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / (x + 5 - a - ...)))``."""

    def step(b: Block, count: ir.Value, *states: ir.Value) -> Sequence[ir.Value]:
        below, above, result = states
        number = b.Add(b.cast(count, _DOUBLE), 1.0)
        numerator = b.Mul(b.Sub(a, number), number)
        term = b.Add(b.Sub(x, a), b.Add(b.Mul(number, 2.0), 1.0))
        below = b.Reciprocal(_nonzero(b, b.Add(b.Mul(numerator, below), term)))
        above = _nonzero(b, b.Add(term, b.Div(numerator, above)))
        factor = b.Mul(above, below)
        going = b.Greater(b.Abs(b.Sub(factor, 1.0)), _STILL)
        return _anywhere(b, going), below, above, b.Mul(result, factor)

    first = b.Reciprocal(_nonzero(b, b.Add(b.Sub(x, a), 1.0)))
    far = b.Add(b.Mul(first, 0.0), 1 / _TINY)
    states = (first, far, first)
    return repeated(b, "fraction", states, step, times=_STEPS, going=b.constant(True))[2]


def _nonzero(b: Block, x: ir.Value) -> ir.Value:
    return b.Where(b.Less(b.Abs(x), _TINY), _TINY, x)


def _anywhere(b: Block, mask: ir.Value) -> ir.Value:
    counted = b.ReduceSum(b.cast(mask, ir.DataType.INT64), keepdims=0)
    return b.Greater(counted, 0)


@lowers(aten.igamma.default, aten.special_gammainc.default, promote="default")
def igamma(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return _share(b, x, other, upper=False)


@lowers(aten.igammac.default, aten.special_gammaincc.default, promote="default")
def igammac(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return _share(b, x, other, upper=True)


def _of_prims(upper: bool) -> Any:
    return lambda b, x, other: _share(b, x, other, upper)


lowers(prims.igamma.default)(_of_prims(False))
lowers(prims.igammac.default)(_of_prims(True))
