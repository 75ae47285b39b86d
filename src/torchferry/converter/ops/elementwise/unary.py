"""Element-wise functions of one operand: powers of e, logarithms, angles, signs."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.comparison import signbit
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__ = ["atan2", "cosh", "expm1", "log1p", "sinh"]

DOUBLE = ir.DataType.DOUBLE
_PI = 3.141592653589793
_HUGE = 1e9  # 1 beside its square is lost in float64

# Integers become floats first: sin of an int64 tensor is float32.
_FLOAT = {
    "cos": "Cos", "sin": "Sin", "sqrt": "Sqrt", "sigmoid": "Sigmoid", "exp": "Exp",
    "tanh": "Tanh", "log": "Log", "reciprocal": "Reciprocal", "special_expit": "Sigmoid",
}  # fmt: skip
# onnxruntime computes these in float32 only; float64 is composed below.
_SINGLE = {
    "tan": "Tan", "sinh": "Sinh", "cosh": "Cosh", "asinh": "Asinh", "acosh": "Acosh",
    "atanh": "Atanh", "asin": "Asin", "acos": "Acos", "atan": "Atan",
}  # fmt: skip
_ALIASES = {"arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arcsin": "asin",
            "arccos": "acos", "arctan": "atan"}  # fmt: skip

for _name, _op_type in _FLOAT.items():
    lowers(getattr(aten, _name).default, promote="float")(
        lambda b, x, _op=_op_type: b.add(_op, (x,))
    )


def _single(name: str) -> Any:
    def write(b: Block, x: ir.Value) -> ir.Value:
        if x.dtype == DOUBLE:
            return _DOUBLE[name](b, x)
        return b.add(_SINGLE[name], (x,))

    return write


sinh, cosh = _single("sinh"), _single("cosh")
for _name in _SINGLE:
    lowers(getattr(aten, _name).default, promote="float")(_single(_name))
for _alias, _name in _ALIASES.items():
    lowers(getattr(aten, _alias).default, promote="float")(_single(_name))


# In float64 ----------------------------------------------------------------------------------


def _atan(b: Block, x: ir.Value) -> ir.Value:
    """Float32's arc tangent, and one step of Newton's method for sin y - x cos y = 0.

    Beyond 1 it is that of 1 / x, so that the step stays well conditioned.
    """
    size = b.Abs(x)
    large = b.Greater(size, 1.0)
    ratio = b.Where(large, b.Reciprocal(size), size)
    y = b.cast(b.Atan(b.cast(ratio, ir.DataType.FLOAT)), DOUBLE)
    sine, cosine = b.Sin(y), b.Cos(y)
    rest = b.Sub(sine, b.Mul(ratio, cosine))
    y = b.Sub(y, b.Div(rest, b.Add(cosine, b.Mul(ratio, sine))))
    y = b.Where(large, b.Sub(_PI / 2, y), y)
    return b.Where(b.Less(x, 0.0), b.Neg(y), y)


def _asin(b: Block, x: ir.Value) -> ir.Value:
    return _atan(b, b.Div(x, b.Sqrt(b.Mul(b.Sub(1.0, x), b.Add(x, 1.0)))))


def _acos(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(_atan(b, b.Sqrt(b.Div(b.Sub(1.0, x), b.Add(x, 1.0)))), 2.0)


def _asinh(b: Block, x: ir.Value) -> ir.Value:
    size = b.Abs(x)
    root = b.Sqrt(b.Add(b.Mul(size, size), 1.0))
    grown = b.Add(size, b.Div(b.Mul(size, size), b.Add(root, 1.0)))
    y = b.Where(b.Greater(size, _HUGE), _log_of_twice(b, size), log1p(b, grown))
    return b.Where(b.Less(x, 0.0), b.Neg(y), y)


def _acosh(b: Block, x: ir.Value) -> ir.Value:
    over = b.Sub(x, 1.0)
    y = log1p(b, b.Add(over, b.Sqrt(b.Mul(over, b.Add(x, 1.0)))))
    y = b.Where(b.Greater(x, _HUGE), _log_of_twice(b, x), y)
    return b.Where(b.Less(x, 1.0), float("nan"), y)


def _log_of_twice(b: Block, x: ir.Value) -> ir.Value:
    """``log(2 x)``, which asinh and acosh are where 1 beside a square is lost."""
    return b.Add(b.Log(x), math.log(2))


def _atanh(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(log1p(b, b.Div(b.Mul(x, 2.0), b.Sub(1.0, x))), 0.5)


def _sinh(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(b.Tanh(b.Mul(x, 0.5)), b.Add(_cosh(b, x), 1.0))


def _cosh(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(b.Add(b.Exp(x), b.Exp(b.Neg(x))), 0.5)


_DOUBLE = {
    "tan": lambda b, x: b.Div(b.Sin(x), b.Cos(x)), "sinh": _sinh, "cosh": _cosh,
    "asinh": _asinh, "acosh": _acosh, "atanh": _atanh, "asin": _asin, "acos": _acos,
    "atan": _atan,
}  # fmt: skip


@lowers(aten.atan2.default, aten.arctan2.default, promote="float")
def atan2(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    """The angle of the point (other, x), with the signs of zeros as in IEEE 754."""
    high, wide = b.Abs(x), b.Abs(other)
    zero, one = b.constant(0, x), b.constant(1, x)
    ratio = b.Where(b.Equal(high, wide), one, b.Div(high, wide))  # both may be infinite
    ratio = b.Where(b.Equal(high, zero), zero, ratio)
    angle = _single("atan")(b, ratio)
    angle = b.Where(signbit(b, other), b.Sub(b.constant(_PI, x), angle), angle)
    angle = b.Where(b.IsNaN(other), other, angle)
    return b.Where(signbit(b, x), b.Neg(angle), angle)


# Exponentials and logarithms -----------------------------------------------------------------


@lowers(aten.expm1.default, aten.special_expm1.default, promote="float")
def expm1(b: Block, x: ir.Value) -> ir.Value:
    """``exp(x) - 1 = tanh(x / 2) (exp(x) + 1)``, which loses nothing near zero."""
    return b.Mul(b.Tanh(b.Mul(x, 0.5)), b.Add(b.Exp(x), 1))


@lowers(aten.log1p.default, aten.special_log1p.default, promote="float")
def log1p(b: Block, x: ir.Value) -> ir.Value:
    """``log(1 + x)``, corrected near zero by what was lost when 1 was added."""
    total = b.Add(x, 1)
    plain = b.Log(total)
    lost = b.Sub(b.Sub(total, 1), x)
    return b.Where(b.Less(b.Abs(x), 0.5), b.Sub(plain, b.Div(lost, total)), plain)


def _logarithm(power: float) -> Any:
    # Taken in float64, so that those of the powers are whole numbers.
    logarithm = float(torch.tensor(power, dtype=torch.float64).log())

    def write(b: Block, x: ir.Value) -> ir.Value:
        return b.Div(b.Log(b.cast(x, DOUBLE)), logarithm)

    return write


lowers(aten.log2.default, promote="float")(_logarithm(2.0))
lowers(aten.log10.default, promote="float")(_logarithm(10.0))


@lowers(aten.rsqrt.default, promote="float")
def rsqrt(b: Block, x: ir.Value) -> ir.Value:
    return b.Reciprocal(b.Sqrt(x))


@lowers(aten.sinc.default, aten.special_sinc.default, promote="float")
def sinc(b: Block, x: ir.Value) -> ir.Value:
    angle = b.Mul(x, _PI)
    zero = b.Equal(x, 0)
    return b.Where(zero, 1, b.Div(b.Sin(angle), angle))


@lowers(aten.deg2rad.default, promote="float")
def deg2rad(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(x, _PI / 180)


@lowers(aten.rad2deg.default, promote="float")
def rad2deg(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(x, 180 / _PI)


@lowers(aten.logit.default, aten.special_logit.default, promote="float", operands=("x",))
def logit(b: Block, x: ir.Value, eps: float | None = None) -> ir.Value:
    if eps is not None and eps >= 0:
        x = b.Clip(x, eps, 1 - eps)
    return b.Log(b.Div(x, b.Sub(1, x)))


# Signs ---------------------------------------------------------------------------------------


@lowers(aten.neg.default, aten.negative.default)
def neg(b: Block, x: ir.Value) -> ir.Value:
    if x.dtype in (ir.DataType.UINT8, ir.DataType.UINT16, ir.DataType.UINT32):
        return b.Sub(b.constant(0, x), x)
    return b.Neg(x)


@lowers(aten.abs.default, aten.absolute.default)
def abs(b: Block, x: ir.Value) -> ir.Value:
    return x if x.dtype == ir.DataType.BOOL else b.Abs(x)


@lowers(aten.sign.default, aten.sgn.default)
def sign(b: Block, x: ir.Value) -> ir.Value:
    if x.dtype == ir.DataType.BOOL:
        return x
    if not is_floating(x):
        return b.Sign(x)
    # Of NaN onnxruntime's Sign makes 0 or NaN, PyTorch 0.
    return b.Sub(b.cast(b.Greater(x, 0), x), b.cast(b.Less(x, 0), x))


@lowers(aten.positive.default)
def positive(b: Block, x: ir.Value) -> ir.Value:
    return x


@lowers(aten.copysign.Tensor, aten.copysign.Scalar, promote="float")
def copysign(b: Block, x: ir.Value, other: Any) -> ir.Value:
    size = b.Abs(x)
    if isinstance(other, (int, float)):
        return b.Neg(size) if torch.tensor(float(other)).signbit() else size
    return b.Where(signbit(b, other), b.Neg(size), size)


# Rounding ------------------------------------------------------------------------------------


def _rounding(op_type: str) -> Any:
    return lambda b, x: b.add(op_type, (x,)) if is_floating(x) else x


for _name, _op_type in {"floor": "Floor", "ceil": "Ceil", "round": "Round"}.items():
    lowers(getattr(aten, _name).default)(_rounding(_op_type))


@lowers(aten.round.decimals)
def round_decimals(b: Block, x: ir.Value, decimals: int) -> ir.Value:
    if not is_floating(x):
        return x
    power = b.constant(10.0 ** max(decimals, -decimals), x)
    if decimals >= 0:
        return b.Div(b.Round(b.Mul(x, power)), power)
    return b.Mul(b.Round(b.Div(x, power)), power)


@lowers(aten.frac.default)
def frac(b: Block, x: ir.Value) -> ir.Value:
    return b.Sub(x, b.Mul(b.Sign(x), b.Floor(b.Abs(x))))
