"""Special functions that ONNX lacks: the error function's and the gamma function's families.

They are composed in float64, in which the loss along the way stays far below float32's precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__ = ["double", "erf", "erfc", "erfcx", "polynomial"]

DOUBLE = ir.DataType.DOUBLE
_INFINITY, _NAN = float("inf"), float("nan")
_ROOT_2, _PI = 1.4142135623730951, 3.141592653589793
# Polynomials in t from -1 to 1 that interpolate at the Chebyshev points, to 1e-15:
# erf: erf(x) / x, t = 8 x² - 1. erfcx: (1 + 2 x) erfcx(x), t = (x - 3.75) / (x + 3.75), a form
# of M. M. Shepherd and J. G. Laframboise, Math. Comp. 36 (1981), p. 249.
_CHEBYSHEV = {
    "erf": [
        1.0830752376761712, -0.043642058886697921, 0.0016130716680617086,
        -4.7623369344684883e-05, 1.1516037795137051e-06, -2.3472291635348667e-08,
        4.1270254211497662e-10, -6.3744175019309057e-12, 8.7745307764514939e-14,
        -1.0893748314600193e-15, 1.2306848762872106e-17,
    ],
    "erfcx": [
        1.2375126308378275, -0.14024059858554697, 0.0035854154854637749, 0.082276738490145163,
        -0.10880393014171785, 0.092304321160378761, -0.05869339859021238, 0.02836227741894078,
        -0.0097465795525041171, 0.0017556258530008716, 0.0002937136342840641,
        -0.0002901540809756577, 5.1649211394979334e-05, 2.2384240303078713e-05,
        -1.1444412451489902e-05, -9.7356188066719248e-07, 1.7520579932107891e-06,
        -5.7215997775202406e-08, -2.5910699664744594e-07, 2.3261932272107377e-08,
        3.8965473542595271e-08, -3.7435761311584635e-09, -5.2842959289654501e-09,
        3.1103256288237251e-10, 4.4349755473309491e-10,
    ],
}  # fmt: skip
# M. Giles, "Approximating the erfinv function" (2011), table 5: in w = -log(1 - x²), shifted.
_ERFINV_NEAR = [
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
]  # fmt: skip
_ERFINV_FAR = [
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
]  # fmt: skip
_QUANTILE = ([2.515517, 0.802853, 0.010328], [1.0, 1.432788, 0.189269, 0.001308])
# C. Lanczos' series with g = 7, P. Godfrey's coefficients.
_LANCZOS = [
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
]  # fmt: skip
# Of 1 / x², from the Bernoulli numbers: https://dlmf.nist.gov/5.11.E2
_DIGAMMA = [0.0, -1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760]
# B_2j / (2j)!: https://dlmf.nist.gov/25.11.E43
_EULER = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000]
_TERMS, _MOST_TERMS = 10, 200


def double(b: Block, x: Any) -> ir.Value:
    """``x`` in float64."""
    return b.cast(x, DOUBLE)


def polynomial(b: Block, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
    """``c[0] + c[1] x + c[2] x² …`` in float64, as a product with a vector: three nodes."""
    powers = b.Pow(b.Unsqueeze(x, [-1]), [float(n) for n in range(len(coefficients))])
    result: ir.Value = b.MatMul(powers, b.constant(list(coefficients), DOUBLE))
    result.shape = x.shape
    return result


# The error function --------------------------------------------------------------------------


@lowers(aten.erf.default, aten.special_erf.default, promote="float")
def erf(b: Block, x: ir.Value) -> ir.Value:
    """The error function; composed in float64, for which onnxruntime has no kernel."""
    if x.dtype != DOUBLE:
        return b.Erf(x)
    square = b.Mul(x, x)
    series = polynomial(b, b.Sub(b.Mul(b.Min(square, 0.25), 8.0), 1.0), _CHEBYSHEV["erf"])
    return b.Where(b.Less(square, 0.25), b.Mul(x, series), b.Sub(1.0, erfc(b, x)))


@lowers(aten.erfc.default, aten.special_erfc.default, promote="float")
def erfc(b: Block, x: ir.Value) -> ir.Value:
    """``1 - erf(x)`` without loss for large x."""
    x = double(b, x)
    tail = b.Mul(_scaled(b, b.Abs(x)), b.Exp(b.Neg(b.Mul(x, x))))
    return b.Where(b.Less(x, 0.0), b.Sub(2.0, tail), tail)


@lowers(aten.special_erfcx.default, promote="float")
def erfcx(b: Block, x: ir.Value) -> ir.Value:
    """``exp(x²) erfc(x)``."""
    x = double(b, x)
    tail = _scaled(b, b.Abs(x))
    mirrored = b.Sub(b.Mul(b.Exp(b.Mul(x, x)), 2.0), tail)
    return b.Where(b.Less(x, 0.0), mirrored, tail)


def _scaled(b: Block, x: ir.Value) -> ir.Value:
    """``exp(x²) erfc(x)`` of float64 that is not negative."""
    t = b.Sub(1.0, b.Div(7.5, b.Add(x, 3.75)))
    return b.Div(polynomial(b, t, _CHEBYSHEV["erfcx"]), b.Add(b.Mul(x, 2.0), 1.0))


@lowers(aten.special_ndtr.default, promote="float")
def special_ndtr(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(erfc(b, b.Div(double(b, x), -_ROOT_2)), 0.5)


@lowers(aten.special_log_ndtr.default, promote="float")
def special_log_ndtr(b: Block, x: ir.Value) -> ir.Value:
    x = double(b, x)
    y = b.Div(x, -_ROOT_2)
    low = b.Sub(b.Log(b.Mul(_scaled(b, b.Abs(y)), 0.5)), b.Mul(y, y))
    tail = b.Mul(erfc(b, y), 0.5)
    # near 1 the logarithm is that of 1 - erfc(-y) / 2
    rest = b.Mul(erfc(b, b.Neg(y)), 0.5)
    high = b.Where(b.Less(rest, 1e-8), b.Neg(rest), b.Log(tail))
    return b.Where(b.Less(x, -1.0), low, high)


@lowers(aten.erfinv.default, aten.special_erfinv.default, promote="float")
def erfinv(b: Block, x: ir.Value) -> ir.Value:
    wide = double(b, x)
    w = b.Neg(b.Log(b.Mul(b.Sub(1.0, wide), b.Add(wide, 1.0))))
    near = b.Mul(polynomial(b, b.Sub(w, 2.5), _ERFINV_NEAR), wide)
    if x.dtype == DOUBLE:  # a step of Newton's method, and for what is far the other way
        slope = b.Mul(b.Exp(b.Neg(b.Mul(near, near))), 1.1283791670955126)
        near = b.Sub(near, b.Div(b.Sub(erf(b, near), wide), slope))
        far = b.Div(_quantile(b, b.Mul(b.Sub(1.0, b.Abs(wide)), 0.5)), -_ROOT_2)
        far = b.Mul(far, b.Sign(wide))
    else:
        far = b.Mul(polynomial(b, b.Sub(b.Sqrt(b.Max(w, 5.0)), 3.0), _ERFINV_FAR), wide)
    y = b.Where(b.Less(w, 5.0), near, far)
    return b.Where(b.Equal(b.Abs(wide), 1.0), b.Mul(wide, _INFINITY), y)


@lowers(aten.special_ndtri.default, promote="float")
def special_ndtri(b: Block, x: ir.Value) -> ir.Value:
    x = double(b, x)
    above = b.Greater(x, 0.5)
    y = _quantile(b, b.Where(above, b.Sub(1.0, x), x))
    return b.Where(above, b.Neg(y), y)


def _quantile(b: Block, share: ir.Value) -> ir.Value:
    """Where the normal distribution reaches a share of up to one half, in float64.

    From the approximation 26.2.23 of Abramowitz and Stegun, three steps of Newton's method on
    the logarithm, which is nearly straight in the tail.
    """
    logarithm = b.Log(share)
    t = b.Sqrt(b.Mul(logarithm, -2.0))
    above, below = (polynomial(b, t, coefficients) for coefficients in _QUANTILE)
    z = b.Min(b.Sub(b.Div(above, below), t), 0.0)
    for _ in range(3):
        scaled = _scaled(b, b.Abs(b.Div(z, _ROOT_2)))
        reached = b.Sub(b.Log(b.Mul(scaled, 0.5)), b.Mul(b.Mul(z, z), 0.5))
        slope = b.Div(0.7978845608028654, scaled)
        z = b.Sub(z, b.Div(b.Sub(reached, logarithm), slope))
    return b.Where(b.Equal(share, 0.0), -_INFINITY, z)


@lowers(aten.special_entr.default, promote="float")
def special_entr(b: Block, x: ir.Value) -> ir.Value:
    y = b.Neg(b.Mul(x, b.Log(x)))
    y = b.Where(b.Less(x, 0), -_INFINITY, y)
    return b.Where(b.Equal(x, 0), 0, y)


@lowers(aten.special_xlog1py.default, aten.special_xlog1py.self_scalar,
        aten.special_xlog1py.other_scalar, promote="float")  # fmt: skip
def special_xlog1py(b: Block, x: Any, other: Any) -> ir.Value:
    like = x if isinstance(x, ir.Value) else other
    x, other = b.cast(x, like), b.cast(other, like)
    nothing = b.And(b.Equal(x, b.constant(0, x)), b.Not(b.IsNaN(other)))
    total = b.Add(double(b, other), 1.0)
    small = b.Less(b.Abs(other), 1e-8)
    logarithm = b.Where(small, double(b, other), b.Log(total))
    return b.Where(nothing, b.constant(0.0, DOUBLE), b.Mul(double(b, x), logarithm))


# The gamma function --------------------------------------------------------------------------


@lowers(aten.lgamma.default, aten.special_gammaln.default, promote="float")
def lgamma(b: Block, x: ir.Value) -> ir.Value:
    """``log |gamma(x)|`` by Lanczos' series, reflected below one half."""
    x = double(b, x)
    low = b.Less(x, 0.5)
    z = b.Sub(b.Where(low, b.Sub(1.0, x), x), 1.0)
    parts = b.Div(
        b.constant(_LANCZOS, DOUBLE), b.Add(b.Unsqueeze(z, [-1]), [float(k) for k in range(1, 9)])
    )
    series = b.Add(b.ReduceSum(parts, [-1], keepdims=0), 0.99999999999980993)
    t = b.Add(z, 7.5)
    y = b.Sub(b.Mul(b.Add(z, 0.5), b.Log(t)), t)
    y = b.Add(b.Add(y, 0.9189385332046727), b.Log(series))
    sine = b.Abs(b.Sin(b.Mul(_off_integer(b, x), _PI)))
    y = b.Where(low, b.Sub(b.Log(b.Div(_PI, sine)), y), y)
    return b.Where(b.Equal(b.Abs(x), _INFINITY), _INFINITY, y)


def _off_integer(b: Block, x: ir.Value) -> ir.Value:
    """The distance to the nearest integer, with its sign."""
    return b.Sub(x, b.Round(x))


@lowers(aten.digamma.default, aten.special_digamma.default, aten.special_psi.default,
        promote="float")  # fmt: skip
def digamma(b: Block, x: ir.Value) -> ir.Value:
    x = double(b, x)
    low = b.Less(x, 0.5)
    z = b.Where(low, b.Sub(1.0, x), x)
    steps = b.Reciprocal(b.Add(b.Unsqueeze(z, [-1]), [float(k) for k in range(8)]))
    w = b.Add(z, 8.0)
    y = b.Sub(b.Log(w), b.Div(0.5, w))
    y = b.Add(y, polynomial(b, b.Reciprocal(b.Mul(w, w)), _DIGAMMA))
    y = b.Sub(y, b.ReduceSum(steps, [-1], keepdims=0))
    off = b.Mul(_off_integer(b, x), _PI)
    reflected = b.Sub(y, b.Div(b.Mul(b.Cos(off), _PI), b.Sin(off)))
    reflected = b.Where(b.And(b.Equal(off, 0.0), b.Less(x, 0.0)), _NAN, reflected)
    return b.Where(low, reflected, y)


@lowers(aten.polygamma.default, aten.special_polygamma.default)
def polygamma(b: Block, n: int, x: ir.Value) -> ir.Value:
    if n == 0:
        return digamma(b, x)
    factorial = float(reduce(lambda product, k: product * k, range(1, n + 1), 1))
    sign = 1.0 if n % 2 else -1.0
    wide = double(b, x)
    y = b.Mul(_zeta(b, b.constant(n + 1.0, DOUBLE), wide), sign * factorial)
    return b.Where(b.Equal(wide, _INFINITY), 0.0, y) if n == 1 else y


@lowers(aten.special_zeta.default, aten.special_zeta.self_scalar, aten.special_zeta.other_scalar)
def special_zeta(b: Block, x: Any, other: Any) -> ir.Value:
    x = double(b, x)
    y = _zeta(b, x, double(b, other))
    y = b.Where(b.Equal(x, 1.0), _INFINITY, y)
    return b.Where(b.Less(x, 1.0), _NAN, y)


def _zeta(b: Block, s: ir.Value, q: ir.Value) -> ir.Value:
    """Hurwitz' zeta function by the formula of Euler and Maclaurin, in float64.

    As many terms are added as bring the least q above 10.
    """
    least = b.ReduceMin(b.Concat(b.Reshape(q, [-1]), [0.0], axis=0), keepdims=0)
    count = b.Clip(b.Sub(float(_TERMS), b.Floor(least)), float(_TERMS), float(_MOST_TERMS))
    terms = b.Range(b.constant(0.0, DOUBLE), count, b.constant(1.0, DOUBLE))
    negative = b.Neg(s)
    shifted = b.Add(b.Unsqueeze(q, [-1]), terms)
    y = b.ReduceSum(b.Pow(shifted, b.Unsqueeze(negative, [-1])), [-1], keepdims=0)
    w = b.Add(q, count)
    power = b.Pow(w, negative)
    y = b.Add(y, b.Add(b.Div(b.Mul(power, w), b.Sub(s, 1.0)), b.Mul(power, 0.5)))
    term, inverse = b.Div(b.Mul(s, power), w), b.Reciprocal(b.Mul(w, w))
    for j, coefficient in enumerate(_EULER):
        y = b.Add(y, b.Mul(term, coefficient))
        rise = b.Mul(b.Add(s, 2.0 * j + 1), b.Add(s, 2.0 * j + 2))
        term = b.Mul(b.Mul(term, rise), inverse)
    return b.Where(b.Less(w, 8.0), _NAN, y)  # too far below zero
