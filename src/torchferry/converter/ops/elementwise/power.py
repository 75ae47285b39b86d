"""Powers, and numbers in parts of a power of two."""

from __future__ import annotations

from functools import reduce
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.kernel import is_floating, widened
from torchferry.seams.operators import aten

__all__: list[str] = []

DOUBLE = ir.DataType.DOUBLE
_PRODUCTS = 4  # the greatest power that is written as products


@lowers(aten.pow.Tensor_Scalar, promote="default")
def power_of(b: Block, x: ir.Value, exponent: Any) -> ir.Value:
    if isinstance(exponent, ir.Value):
        return power(b, x, exponent)
    whole = float(exponent).is_integer()
    if not is_floating(x) and exponent < 0:
        raise ValueError("an integer has no negative power: make it a float first")
    if exponent == 2 and is_floating(x):
        return b.Pow(x, b.constant(2, x))  # as the fusions of RMSNorm want it
    if whole and 0 < exponent <= _PRODUCTS:
        return reduce(lambda product, _: _times(b, product, x), range(int(exponent) - 1), x)
    if exponent == 0.5:
        return b.Sqrt(x)
    if exponent == -1:
        return b.Reciprocal(x)
    if exponent == -0.5:
        return b.Reciprocal(b.Sqrt(x))
    return power(b, x, b.cast(exponent, x))


def _times(b: Block, x: ir.Value, y: ir.Value) -> ir.Value:
    return b.And(x, y) if x.dtype == ir.DataType.BOOL else b.Mul(x, y)


@lowers(aten.pow.Tensor_Tensor, aten.pow.Scalar, promote="default")
def power(b: Block, x: Any, exponent: Any) -> ir.Value:
    like = x if isinstance(x, ir.Value) else exponent
    x, exponent = b.cast(x, like), b.cast(exponent, like)
    if like.dtype == ir.DataType.INT64:
        return _whole_power(b, x, exponent)
    return widened(b, "Pow", x, exponent)


def _whole_power(b: Block, x: ir.Value, exponent: ir.Value) -> ir.Value:
    """By squaring: onnxruntime computes in doubles, which do not hold all int64.

    Six bits of the exponent are enough for what an int64 can hold; a greater one is for 0, 1 and
    -1, of which its last bit decides.
    """
    result, factor = None, x
    for bit in range(6):
        odd = b.Equal(b.Mod(b.Div(exponent, 2**bit), 2), 1)
        chosen = b.Where(odd, factor, 1)
        result = chosen if result is None else b.Mul(result, chosen)
        factor = b.Mul(factor, factor)
    zero = b.Less(exponent, 0)  # what is left of 1 / 2 and smaller
    small = b.LessOrEqual(b.Abs(x), 1)
    unit = b.Where(b.Equal(b.Mod(exponent, 2), 1), x, b.Mul(x, x))
    unit = b.Where(b.Equal(exponent, 0), 1, unit)
    return b.Where(small, unit, b.Where(zero, 0, result))


@lowers(aten.float_power.Tensor_Tensor, aten.float_power.Tensor_Scalar, aten.float_power.Scalar)
def float_power(b: Block, x: Any, exponent: Any) -> ir.Value:
    return b.Pow(b.cast(x, DOUBLE), b.cast(exponent, DOUBLE))


@lowers(aten.square.default)
def square(b: Block, x: ir.Value) -> ir.Value:
    return _times(b, x, x)


@lowers(aten.exp2.default, aten.special_exp2.default, promote="float")
def exp2(b: Block, x: ir.Value) -> ir.Value:
    return b.Pow(b.constant(2, x), x)


@lowers(aten.ldexp.Tensor)
def ldexp(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    dtypes = [v for v in (x, other) if is_floating(v)]
    like = b.cast(x, dtypes[0] if dtypes else ir.DataType.FLOAT)
    return b.Mul(like, b.Pow(b.constant(2, like), b.cast(other, like)))


@lowers(aten.frexp.Tensor)
def frexp(b: Block, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """``x = mantissa * 2**exponent``, the mantissa from 0.5 below 1."""
    size = b.Abs(b.cast(x, DOUBLE))
    plain = b.And(b.Greater(size, 0.0), b.Less(size, float("inf")))
    size = b.Where(plain, size, 0.5)
    exponent = b.Floor(b.Div(b.Log(size), 0.6931471805599453))
    # The logarithm may be off by a little beside a power of two: one step corrects it.
    for step in (1.0, 0.0):
        part = b.Div(size, b.Pow(b.constant(2.0, DOUBLE), exponent))
        beyond = b.GreaterOrEqual(part, 1.0) if step else b.Less(part, 0.5)
        change = b.cast(beyond, DOUBLE)
        exponent = b.Add(exponent, change) if step else b.Sub(exponent, change)
    mantissa = b.Div(b.cast(x, DOUBLE), b.Pow(b.constant(2.0, DOUBLE), exponent))
    chosen = b.Where(plain, b.cast(mantissa, x), x)
    return chosen, b.Where(plain, b.cast(exponent, ir.DataType.INT32), 0)
