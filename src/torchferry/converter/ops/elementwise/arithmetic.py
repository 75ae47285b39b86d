"""Arithmetic of two and three operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.kernel import is_floating, is_integer, single, widened
from torchferry.seams.operators import aten

__all__ = ["floor_quotient", "hypot", "remainder", "truncated"]

Lowered = Callable[..., ir.Value]
_UNSIGNED = {ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32, ir.DataType.UINT64}
_WIDE = {ir.DataType.INT32, ir.DataType.INT64}  # narrower ones are divided as C's int


def _scaled(op_type: str) -> Lowered:
    """``x ± alpha * other``; a sum of bools is their disjunction."""

    def write(b: Block, x: Any, other: Any, alpha: Any = 1) -> ir.Value:
        like = x if isinstance(x, ir.Value) else other
        if isinstance(alpha, ir.Value) or alpha != 1:
            other = _times(b, b.cast(other, like), alpha)
        op = "Or" if like.dtype == ir.DataType.BOOL and op_type == "Add" else op_type
        result: ir.Value = b.add(op, (x, other))
        return result

    return write


def _times(b: Block, x: ir.Value, factor: Any) -> ir.Value:
    """``x * factor`` in the dtype of x."""
    if x.dtype == ir.DataType.BOOL:
        return b.And(x, b.cast(factor, x))
    return b.Mul(x, b.cast(factor, x))


lowers(aten.add.Tensor, aten.add.Scalar, promote="default")(_scaled("Add"))
lowers(aten.sub.Tensor, aten.sub.Scalar, promote="default")(_scaled("Sub"))


@lowers(aten.rsub.Tensor, aten.rsub.Scalar, promote="default")
def rsub(b: Block, x: ir.Value, other: Any, alpha: Any = 1) -> ir.Value:
    if isinstance(alpha, ir.Value) or alpha != 1:
        x = _times(b, x, alpha)
    return b.Sub(other, x)


@lowers(aten.mul.Tensor, aten.mul.Scalar, aten.multiply.Tensor, promote="default")
def mul(b: Block, x: Any, other: Any) -> ir.Value:
    like = x if isinstance(x, ir.Value) else other
    if like.dtype == ir.DataType.BOOL:
        return b.And(x, other)
    return b.Mul(x, other)


# Division ------------------------------------------------------------------------------------


@lowers(
    aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, aten.divide.Tensor, promote="float"
)
def div(b: Block, x: Any, other: Any) -> ir.Value:
    return b.Div(x, other)


@lowers(
    aten.div.Tensor_mode, aten.div.Scalar_mode, aten.divide.Tensor_mode, aten.divide.Scalar_mode,
    promote="default", operands=("x", "other"),
)  # fmt: skip
def div_rounded(b: Block, x: ir.Value, other: Any, rounding_mode: str | None = None) -> ir.Value:
    if rounding_mode == "floor":
        return floor_quotient(b, x, other)
    if rounding_mode is None and not is_floating(x):
        x = b.cast(x, torch.get_default_dtype())
        other = b.cast(other, x)
    if is_integer(x):
        return _whole_quotient(b, x, other)
    quotient = b.Div(x, other)
    return truncated(b, quotient) if rounding_mode == "trunc" else quotient


@lowers(aten.floor_divide.default, aten.floor_divide.Scalar, promote="default")
def floor_quotient(b: Block, x: Any, other: Any) -> ir.Value:
    """The quotient rounded down, with PyTorch's care for floats: ``1.0 // 0.1`` is 9.

    Source: ``div_floor_floating`` of c10/util/generic_math.h.
    """
    like = x if isinstance(x, ir.Value) else other
    if is_integer(like):
        quotient = _whole_quotient(b, x, other)
        if like.dtype in _UNSIGNED:
            return quotient
        x = b.cast(x, like)
        # one less where the remainder, which has the divisor's sign, has not that of x
        return b.Sub(quotient, b.cast(_against(b, x, _whole_rest(b, x, other)), x))
    x, other = b.cast(x, like), b.cast(other, like)
    rest = b.Mod(x, other, fmod=1)
    quotient = b.Round(b.Div(b.Sub(x, rest), other))
    lower = b.Sub(quotient, b.cast(_against(b, rest, other), quotient))
    return b.Where(b.Equal(other, b.constant(0, other)), b.Div(x, other), lower)


def _whole_quotient(b: Block, x: Any, other: Any) -> ir.Value:
    """The quotient of integers, rounded towards zero.

    The least one divided by -1 is itself in PyTorch; it ends the process in onnxruntime.
    """
    if not isinstance(x, ir.Value) or x.dtype not in _WIDE:
        return b.Div(x, other)
    if not isinstance(other, ir.Value):
        return b.Neg(x) if other == -1 else b.Div(x, other)
    negated = b.Equal(other, -1)
    return b.Where(negated, b.Neg(x), b.Div(x, b.Where(negated, 1, other)))


def _whole_rest(b: Block, x: Any, other: Any) -> ir.Value:
    """What integers leave of a division rounded down.

    The rest of the least one divided by -1 ends the process in onnxruntime before 1.32; every
    integer leaves 0, as it does of a division by 1.
    """
    if not isinstance(x, ir.Value) or x.dtype not in _WIDE:
        return b.Mod(x, other)
    if not isinstance(other, ir.Value):
        return b.Mod(x, 1 if other == -1 else other)
    return b.Mod(x, b.Where(b.Equal(other, -1), 1, other))


def _against(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    """Where two numbers have opposite signs."""
    return b.Less(b.Mul(b.Sign(x), other), b.constant(0, x))


@lowers(
    aten.remainder.Tensor, aten.remainder.Scalar, aten.remainder.Scalar_Tensor, promote="default"
)
def remainder(b: Block, x: Any, other: Any) -> ir.Value:
    """What is left of a division rounded down; it has the sign of the divisor."""
    like = x if isinstance(x, ir.Value) else other
    if is_integer(like):
        return _whole_rest(b, x, other)
    rest = b.Mod(x, other, fmod=1)
    if isinstance(other, (int, float)) and other != 0:
        beyond = b.Less(rest, 0) if other > 0 else b.Greater(rest, 0)
    else:
        beyond = _against(b, rest, b.cast(other, like))
    return b.Where(beyond, b.Add(rest, other), rest)


@lowers(aten.fmod.Tensor, aten.fmod.Scalar, promote="default")
def fmod(b: Block, x: ir.Value, other: Any) -> ir.Value:
    if x.dtype in (ir.DataType.INT64, ir.DataType.UINT64):
        # onnxruntime takes the remainder of doubles, which do not hold all of these
        return b.Sub(x, b.Mul(_whole_quotient(b, x, other), other))
    return b.Mod(x, other, fmod=1)


@lowers(aten.trunc.default, aten.fix.default)
def truncated(b: Block, x: ir.Value) -> ir.Value:
    """Towards zero; NaN and infinities stay, and small negative numbers become -0."""
    return b.Mul(b.Sign(x), b.Floor(b.Abs(x))) if is_floating(x) else x


# Three operands ------------------------------------------------------------------------------


@lowers(aten.addcmul.default, promote="default", operands=("x", "tensor1", "tensor2"))
def addcmul(
    b: Block, x: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: Any = 1
) -> ir.Value:
    product = b.Mul(tensor1, tensor2)
    scaled = isinstance(value, ir.Value) or value != 1
    return b.Add(x, _times(b, product, value) if scaled else product)


@lowers(aten.addcdiv.default, promote="default", operands=("x", "tensor1", "tensor2"))
def addcdiv(
    b: Block, x: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: Any = 1
) -> ir.Value:
    if isinstance(value, ir.Value) or value != 1:
        tensor1 = _times(b, tensor1, value)
    return b.Add(x, b.Div(tensor1, tensor2))


@lowers(aten.lerp.Scalar, promote="default", operands=("x", "end"))
def lerp_scalar(b: Block, x: ir.Value, end: ir.Value, weight: Any) -> ir.Value:
    if isinstance(weight, ir.Value):
        return lerp(b, x, end, b.cast(weight, x))
    distance = b.Sub(end, x)
    if abs(weight) < 0.5:
        return b.Add(x, b.Mul(distance, b.constant(weight, x)))
    return b.Sub(end, b.Mul(distance, b.constant(1 - weight, x)))


@lowers(aten.lerp.Tensor, promote="default")
def lerp(b: Block, x: ir.Value, end: ir.Value, weight: ir.Value) -> ir.Value:
    # From the nearer end, as PyTorch does it: exact at a weight of 1.
    distance = b.Sub(end, x)
    near = b.Add(x, b.Mul(distance, weight))
    far = b.Sub(end, b.Mul(distance, b.Sub(1, weight)))
    return b.Where(b.Less(b.Abs(weight), 0.5), near, far)


@lowers(aten.logaddexp.default, promote="default")
def logaddexp(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return _log_of_sum(b, x, other, 2.718281828459045)


@lowers(aten.logaddexp2.default, promote="default")
def logaddexp2(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return _log_of_sum(b, x, other, 2.0)


def _log_of_sum(b: Block, x: ir.Value, other: ir.Value, power: float) -> ir.Value:
    """``log(power**x + power**other)`` to that power, from the greater of the two."""
    x, other = single(b, x), single(b, other)
    scale = float(torch.tensor(power, dtype=torch.float64).log())
    gap = b.Neg(b.Abs(b.Sub(x, other)))
    rest = b.Log(b.Add(b.Exp(b.Mul(gap, scale)), 1))
    total = b.Add(b.Max(x, other), b.Div(rest, scale))
    # Equal infinities have no difference.
    return b.Where(b.Equal(x, other), b.Add(x, 0.6931471805599453 / scale), total)


@lowers(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other,
        aten.special_xlogy.default, promote="float")  # fmt: skip
def xlogy(b: Block, x: Any, other: Any) -> ir.Value:
    like = x if isinstance(x, ir.Value) else other
    x, other = b.cast(x, like), b.cast(other, like)
    nothing = b.And(b.Equal(x, b.constant(0, x)), b.Not(b.IsNaN(other)))
    return b.Where(nothing, b.constant(0, x), b.Mul(x, b.Log(other)))


@lowers(aten.hypot.default, promote="default")
def hypot(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    """The root of two squares, by the greater of the two, so that none overflows or vanishes."""
    x, other = (b.Abs(b.cast(v, ir.DataType.DOUBLE)) for v in (x, other))
    greatest, infinity = b.Max(x, other), float("inf")
    share = b.Div(b.Min(x, other), b.Where(b.Equal(greatest, 0), 1, greatest))
    size = b.Mul(greatest, b.Sqrt(b.Add(b.Mul(share, share), 1)))
    endless = b.Or(b.Equal(x, infinity), b.Equal(other, infinity))  # whatever the other one is
    return b.Where(endless, infinity, size)


@lowers(aten.heaviside.default, promote="default")
def heaviside(b: Block, x: ir.Value, values: ir.Value) -> ir.Value:
    zero = b.constant(0, x)
    above = b.cast(widened(b, "Greater", x, zero), x)
    return widened(b, "Where", b.Equal(x, zero), values, above)
