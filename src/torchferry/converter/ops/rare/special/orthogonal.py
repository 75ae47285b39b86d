"""Orthogonal polynomials, by their recurrences in a loop over the degree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.control.repetition import repeated
from torchferry.seams.operators import Absent, aten

__all__: list[str] = []

DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64


@dataclass(frozen=True)
class _Family:
    """``p[1] = a x + c`` and ``d p[k + 1] = ((s k + e) x + m k + f) p[k] - g p[k - 1]``.

    ``d`` is 1, or k + 1 when ``divided``; ``g`` is ``gk k + g0``. Source of the recurrences:
    https://dlmf.nist.gov/18.9
    """

    first: tuple[float, float]
    slope: tuple[float, float] = (0.0, 2.0)
    shift: tuple[float, float] = (0.0, 0.0)
    previous: tuple[float, float] = (0.0, 1.0)
    divided: bool = False


_FAMILIES = {
    "chebyshev_polynomial_t": _Family((1.0, 0.0)),
    "chebyshev_polynomial_u": _Family((2.0, 0.0)),
    "chebyshev_polynomial_v": _Family((2.0, -1.0)),
    "chebyshev_polynomial_w": _Family((2.0, 1.0)),
    "hermite_polynomial_h": _Family((2.0, 0.0), previous=(2.0, 0.0)),
    "hermite_polynomial_he": _Family((1.0, 0.0), slope=(0.0, 1.0), previous=(1.0, 0.0)),
    "laguerre_polynomial_l": _Family(
        (-1.0, 1.0), slope=(0.0, -1.0), shift=(2.0, 1.0), previous=(1.0, 0.0), divided=True
    ),
    "legendre_polynomial_p": _Family(
        (1.0, 0.0), slope=(2.0, 1.0), previous=(1.0, 0.0), divided=True
    ),
}


def _written(family: _Family, shifted: bool) -> Any:
    def write(b: Block, x: Any, n: Any) -> ir.Value:
        x, degree = b.cast(x, DOUBLE), b.cast(n, INT64)
        if shifted:
            x = b.Sub(b.Mul(x, 2.0), 1.0)
        shape = b.shape(b.Add(x, b.cast(degree, DOUBLE)))
        x, degree = b.Expand(x, shape), b.Expand(degree, shape)
        return _at_degree(b, family, x, degree)

    return write


def _at_degree(b: Block, family: _Family, x: ir.Value, degree: ir.Value) -> ir.Value:
    """Of all degrees up to the greatest, in each place the one that is asked for there."""

    def step(
        b: Block, count: ir.Value, now: ir.Value, after: ir.Value, result: ir.Value
    ) -> Sequence[ir.Value]:
        chosen = b.Where(b.Equal(degree, count), now, result)
        return after, _following(b, family, x, count, now, after), chosen

    greatest = b.ReduceMax(b.Concat(b.Reshape(degree, [-1]), [0], axis=0), keepdims=0)
    zero = b.Mul(x, 0.0)
    first = b.Add(b.Mul(x, family.first[0]), family.first[1])
    start = (b.Add(zero, 1.0), first, zero)
    return repeated(b, "degree", start, step, times=b.Add(greatest, 1))[2]


def _following(
    b: Block, family: _Family, x: ir.Value, count: ir.Value, now: ir.Value, after: ir.Value
) -> ir.Value:
    """The polynomial of degree count + 2."""
    k = b.Add(b.cast(count, DOUBLE), 1.0)
    slope, shift, previous = (
        b.Add(b.Mul(k, by), plus) for by, plus in (family.slope, family.shift, family.previous)
    )
    grown = b.Mul(b.Add(b.Mul(slope, x), shift), after)
    value = b.Sub(grown, b.Mul(previous, now))
    return b.Div(value, b.Add(k, 1.0)) if family.divided else value


for _name, _family in _FAMILIES.items():
    for _prefix in ("special_", "special_shifted_"):
        _packet = getattr(aten, _prefix + _name)
        if not isinstance(_packet, Absent):  # PyTorch has no shifted form of some
            lowers(_packet.default, _packet.x_scalar, _packet.n_scalar)(
                _written(_family, shifted=_prefix == "special_shifted_")
            )
