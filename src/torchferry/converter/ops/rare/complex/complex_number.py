"""Complex numbers: float tensors whose last axis holds the real and the imaginary part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.arithmetic import hypot
from torchferry.converter.ops.elementwise.unary import atan2, cosh, log1p, sinh
from torchferry.seams.operators import aten

__all__ = ["is_complex", "joined", "pair", "pair_product", "parts", "times"]

DOUBLE = ir.DataType.DOUBLE
_PI = 3.141592653589793
Lowered = Callable[..., ir.Value]


def is_complex(x: Any) -> bool:
    """Whether a value holds complex numbers; in a lowering for them, an operand may be real."""
    return isinstance(x, ir.Value) and bool(x.meta.get("complex"))


def parts(b: Block, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The real and the imaginary parts."""
    return b.Gather(x, b.constant(0), axis=-1), b.Gather(x, b.constant(1), axis=-1)


def joined(b: Block, real: ir.Value, imaginary: ir.Value) -> ir.Value:
    """Two real tensors of one shape as a complex one."""
    made: ir.Value = b.Concat(b.Unsqueeze(real, [-1]), b.Unsqueeze(imaginary, [-1]), axis=-1)
    made.meta["complex"] = True
    return made


def pair(b: Block, x: Any, like: ir.Value) -> ir.Value:
    """A number or tensor, complex or real, as a complex one of a dtype."""
    if not isinstance(x, ir.Value):
        return b.constant([complex(x).real, complex(x).imag], like)
    if is_complex(x):
        return b.cast(x, like)
    number = b.cast(x, like)
    return joined(b, number, b.Expand(b.constant(0, like), b.shape(x)))


def _operands(b: Block, x: Any, other: Any) -> tuple[ir.Value, ir.Value]:
    like = x if isinstance(x, ir.Value) else other
    return pair(b, x, like), pair(b, other, like)


# Parts ---------------------------------------------------------------------------------------


@lowers(
    aten.view_as_real.default, aten.view_as_complex.default, aten.resolve_conj.default,
    aten.resolve_neg.default, aten.alias.default, aten.detach.default,
    aten.lift_fresh_copy.default, aten.view_as_real_copy.default,
    aten.view_as_complex_copy.default, aten.positive.default,
    complex=True,
)  # fmt: skip
def alias(b: Block, x: ir.Value) -> ir.Value:
    return b.Identity(x)  # another value: one says of its numbers that they are complex or not


@lowers(aten.clone.default, aten.contiguous.default, complex=True)
def clone(b: Block, x: ir.Value, memory_format: Any = None) -> ir.Value:
    return x


@lowers(aten.real.default, complex=True)
def real(b: Block, x: ir.Value) -> ir.Value:
    return parts(b, x)[0]


@lowers(aten.imag.default, complex=True)
def imag(b: Block, x: ir.Value) -> ir.Value:
    return parts(b, x)[1]


@lowers(
    aten.conj.default, aten._conj.default, aten.conj_physical.default,
    aten._conj_physical.default, complex=True,
)  # fmt: skip
def conj(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(x, [1, -1])


@lowers(aten.complex.default, complex=True)
def complex_(b: Block, real: ir.Value, imag: ir.Value) -> ir.Value:
    shape = b.shape(b.Add(real, imag))
    return joined(b, b.Expand(real, shape), b.Expand(imag, shape))


@lowers(aten.polar.default, complex=True)
def polar(b: Block, abs: ir.Value, angle: ir.Value) -> ir.Value:
    return joined(b, b.Mul(abs, b.Cos(angle)), b.Mul(abs, b.Sin(angle)))


@lowers(aten.abs.default, complex=True)
def abs_(b: Block, x: ir.Value) -> ir.Value:
    if x.dtype == DOUBLE:
        return hypot(b, *parts(b, x))
    wide = b.cast(x, DOUBLE)  # no square overflows there
    return b.cast(b.ReduceL2(wide, [-1], keepdims=0), x)


@lowers(aten.angle.default, complex=True)
def angle(b: Block, x: ir.Value) -> ir.Value:
    real, imaginary = parts(b, x)
    return atan2(b, imaginary, real)


@lowers(aten.angle.default, promote="float")
def angle_of_real(b: Block, x: ir.Value) -> ir.Value:
    y = b.Where(b.Less(x, 0), _PI, b.constant(0, x))
    return b.Where(b.IsNaN(x), x, y)


# Arithmetic ----------------------------------------------------------------------------------


def _scaled(op_type: str) -> Lowered:
    def write(b: Block, x: Any, other: Any, alpha: Any = 1) -> ir.Value:
        x, other = _operands(b, x, other)
        if isinstance(alpha, complex):
            other = pair_product(b, other, pair(b, alpha, other))
        elif isinstance(alpha, ir.Value) or alpha != 1:
            other = b.Mul(other, b.cast(alpha, other))
        return b.add(op_type, (x, other))

    return write


lowers(aten.add.Tensor, aten.add.Scalar, promote="default", complex=True)(_scaled("Add"))
lowers(aten.sub.Tensor, aten.sub.Scalar, promote="default", complex=True)(_scaled("Sub"))


@lowers(aten.rsub.Tensor, aten.rsub.Scalar, promote="default", complex=True)
def rsub(b: Block, x: Any, other: Any, alpha: Any = 1) -> ir.Value:
    return _scaled("Sub")(b, other, x, alpha)


@lowers(aten.mul.Tensor, aten.mul.Scalar, promote="default", complex=True)
def times(b: Block, x: Any, other: Any) -> ir.Value:
    """A product; that with a real number is one node."""
    for one, two in ((x, other), (other, x)):
        if is_complex(one) or isinstance(one, complex) or not is_complex(two):
            continue
        factor = b.Unsqueeze(one, [-1]) if isinstance(one, ir.Value) else one
        if isinstance(factor, ir.Value):
            factor = b.cast(factor, two)
        return b.Mul(two, factor)
    return pair_product(b, *_operands(b, x, other))


@lowers(aten.div.Tensor, aten.div.Scalar, aten.true_divide.Tensor, promote="default",
        complex=True)  # fmt: skip
def div(b: Block, x: Any, other: Any) -> ir.Value:
    if not isinstance(other, complex) and not is_complex(other):
        return b.Div(x, b.Unsqueeze(other, [-1]) if isinstance(other, ir.Value) else other)
    x, other = _operands(b, x, other)
    return pair_product(b, b.cast(x, DOUBLE), _inverse(b, b.cast(other, DOUBLE)))


def pair_product(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    """The product of two complex values that a lowering made."""
    (a, c), (d, e) = parts(b, x), parts(b, other)
    return joined(b, b.Sub(b.Mul(a, d), b.Mul(c, e)), b.Add(b.Mul(a, e), b.Mul(c, d)))


def _inverse(b: Block, x: ir.Value) -> ir.Value:
    return b.Div(b.Mul(x, [1, -1]), b.ReduceSumSquare(x, [-1], keepdims=1))


@lowers(aten.reciprocal.default, complex=True)
def reciprocal(b: Block, x: ir.Value) -> ir.Value:
    return _inverse(b, b.cast(x, DOUBLE))  # no square overflows there


@lowers(aten.neg.default, aten._neg_view.default, complex=True)
def neg(b: Block, x: ir.Value) -> ir.Value:
    return b.Neg(x)


@lowers(aten.square.default, complex=True)
def square(b: Block, x: ir.Value) -> ir.Value:
    return pair_product(b, x, x)


@lowers(aten.sgn.default, complex=True)
def sgn(b: Block, x: ir.Value) -> ir.Value:
    size = b.ReduceL2(x, [-1], keepdims=1)
    return b.Div(x, b.Where(b.Equal(size, 0), 1, size))


@lowers(aten.eq.Tensor, aten.eq.Scalar, promote="default", complex=True)
def eq(b: Block, x: Any, other: Any) -> ir.Value:
    return b.And(*parts(b, b.Equal(*_operands(b, x, other))))


@lowers(aten.ne.Tensor, aten.ne.Scalar, promote="default", complex=True)
def ne(b: Block, x: Any, other: Any) -> ir.Value:
    return b.Not(eq(b, x, other))


# Functions -----------------------------------------------------------------------------------


@lowers(aten.exp.default, complex=True)
def exp(b: Block, x: ir.Value) -> ir.Value:
    real, imaginary = parts(b, x)
    size = b.Exp(real)
    return joined(b, b.Mul(size, b.Cos(imaginary)), b.Mul(size, b.Sin(imaginary)))


@lowers(aten.log.default, complex=True)
def log(b: Block, x: ir.Value) -> ir.Value:
    real, imaginary = parts(b, x)
    return joined(b, b.Log(abs_(b, x)), atan2(b, imaginary, real))


@lowers(aten.log1p.default, complex=True)
def log1p_(b: Block, x: ir.Value) -> ir.Value:
    """The size of ``1 + x`` by ``2 real + real² + imaginary²``, which keeps what is small."""
    real, imaginary = parts(b, b.cast(x, DOUBLE))
    beyond = b.Add(b.Mul(real, b.Add(real, 2)), b.Mul(imaginary, imaginary))
    return joined(b, b.Mul(log1p(b, beyond), 0.5), atan2(b, imaginary, b.Add(real, 1)))


@lowers(aten.sqrt.default, complex=True)
def sqrt(b: Block, x: ir.Value) -> ir.Value:
    real, imaginary = parts(b, x)
    size = abs_(b, x)
    high = b.Sqrt(b.Mul(b.Add(size, real), 0.5))
    wide = b.Sqrt(b.Mul(b.Sub(size, real), 0.5))
    return joined(b, high, b.Where(b.Less(imaginary, 0), b.Neg(wide), wide))


@lowers(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.pow.Scalar, promote="default",
        complex=True)  # fmt: skip
def power(b: Block, x: Any, exponent: Any) -> ir.Value:
    if exponent == 2 and isinstance(exponent, int):
        return pair_product(b, x, x)
    x, exponent = _operands(b, x, exponent)
    y = exp(b, pair_product(b, exponent, log(b, x)))
    zero = b.Equal(b.ReduceL2(x, [-1], keepdims=1), 0)
    nothing = b.Where(b.Equal(exponent, 0), b.constant([1, 0], y), b.constant(0, y))
    return b.Where(zero, nothing, y)


def _sine(b: Block, x: ir.Value) -> ir.Value:
    return b.Sin(x)


def _cosine(b: Block, x: ir.Value) -> ir.Value:
    return b.Cos(x)


def _negative_sine(b: Block, x: ir.Value) -> ir.Value:
    return b.Neg(b.Sin(x))


# Each part is the product of a function of the real and one of the imaginary part.
_WAVES = {
    aten.sin.default: (_sine, cosh, _cosine, sinh),
    aten.cos.default: (_cosine, cosh, _negative_sine, sinh),
    aten.sinh.default: (sinh, _cosine, cosh, _sine),
    aten.cosh.default: (cosh, _cosine, sinh, _sine),
}


def _wave(functions: tuple[Lowered, Lowered, Lowered, Lowered]) -> Lowered:
    first, second, third, fourth = functions

    def write(b: Block, x: ir.Value) -> ir.Value:
        real, imaginary = parts(b, x)
        one = b.Mul(first(b, real), second(b, imaginary))
        return joined(b, one, b.Mul(third(b, real), fourth(b, imaginary)))

    return write


for _target, _functions in _WAVES.items():
    lowers(_target, complex=True)(_wave(_functions))


@lowers(aten.tanh.default, complex=True)
def tanh(b: Block, x: ir.Value) -> ir.Value:
    real, imaginary = parts(b, b.Mul(x, 2))
    real = b.Clip(real, -80, 80)  # beyond, the quotient is 1
    size = b.Add(cosh(b, real), b.Cos(imaginary))
    return joined(b, b.Div(sinh(b, real), size), b.Div(b.Sin(imaginary), size))


@lowers(aten.sigmoid.default, complex=True)
def sigmoid(b: Block, x: ir.Value) -> ir.Value:
    return _inverse(b, b.Add(exp(b, b.Neg(b.cast(x, DOUBLE))), [1, 0]))


@lowers(aten.silu.default, complex=True)
def silu(b: Block, x: ir.Value) -> ir.Value:
    return pair_product(b, b.cast(x, DOUBLE), sigmoid(b, x))
