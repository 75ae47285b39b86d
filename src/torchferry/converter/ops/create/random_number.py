"""Random numbers: of the same distributions as PyTorch's, from onnxruntime's own generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.create.creation import filled
from torchferry.seams.operators import aten

__all__ = ["uniform_like"]

Size = int | ir.Value
FLOAT, DOUBLE, INT64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64
_WIDE = {FLOAT, DOUBLE}  # what the generator makes


def uniform_like(b: Block, x: ir.Value, dtype: ir.DataType = FLOAT) -> ir.Value:
    """From 0 below 1, in the shape of x."""
    made: ir.Value = b.RandomUniformLike(x, dtype=dtype.value)
    return made


def _normal_like(b: Block, x: ir.Value) -> ir.Value:
    dtype = x.dtype if x.dtype in _WIDE else FLOAT
    return b.RandomNormalLike(x, dtype=dtype.value)


def _drawn(b: Block, op_type: str, size: Sequence[Size], dtype: ir.DataType = FLOAT) -> ir.Value:
    known = [s for s in size if isinstance(s, int)]
    if len(known) == len(size) and known:
        made: ir.Value = b.add(op_type, (), shape=known, dtype=dtype.value)
        made.shape = ir.Shape(known)
        return made
    like = filled(b, b.vector(size), 0, FLOAT)
    return b.add(f"{op_type}Like", (like,), dtype=dtype.value)


# By size, or like a tensor -------------------------------------------------------------------


@lowers(aten.rand.default)
def rand(b: Block, size: Sequence[Size], *_layout: Any) -> ir.Value:
    return _drawn(b, "RandomUniform", size)


@lowers(aten.randn.default)
def randn(b: Block, size: Sequence[Size], *_layout: Any) -> ir.Value:
    return _drawn(b, "RandomNormal", size)


@lowers(aten.randn.default, complex=True)
def complex_randn(b: Block, size: Sequence[Size], *_layout: Any) -> ir.Value:
    return b.Mul(_drawn(b, "RandomNormal", [*size, 2]), math.sqrt(0.5))  # of variance 1 together


@lowers(aten.rand_like.default)
def rand_like(b: Block, x: ir.Value, *_layout: Any) -> ir.Value:
    return uniform_like(b, x)


@lowers(aten.randn_like.default)
def randn_like(b: Block, x: ir.Value, *_layout: Any) -> ir.Value:
    return _normal_like(b, x)


@lowers(aten.randint.default)
def randint(b: Block, high: Any, size: Sequence[Size], *_layout: Any) -> ir.Value:
    return randint_low(b, 0, high, size)


@lowers(aten.randint.low)
def randint_low(b: Block, low: Any, high: Any, size: Sequence[Size], *_layout: Any) -> ir.Value:
    return _whole(b, _drawn(b, "RandomUniform", size, DOUBLE), low, high)


@lowers(aten.randint_like.default)
def randint_like(b: Block, x: ir.Value, high: Any, *_layout: Any) -> ir.Value:
    return _whole(b, uniform_like(b, x, DOUBLE), 0, high)


@lowers(aten.randint_like.low_dtype)
def randint_like_low(b: Block, x: ir.Value, low: Any, high: Any, *_layout: Any) -> ir.Value:
    return _whole(b, uniform_like(b, x, DOUBLE), low, high)


def _whole(b: Block, share: ir.Value, low: Any, high: Any) -> ir.Value:
    """Integers from low below high."""
    if isinstance(low, int) and isinstance(high, int):
        scaled = b.Mul(share, float(high - low))
    else:
        low, high = (v if isinstance(v, ir.Value) else b.constant([v]) for v in (low, high))
        scaled = b.Mul(share, b.cast(b.Sub(high, low), DOUBLE))
    return b.Add(b.cast(scaled, INT64), low)


@lowers(aten.randperm.default)
def randperm(b: Block, n: Size, *_layout: Any) -> ir.Value:
    keys = _drawn(b, "RandomUniform", [n], DOUBLE)
    order = b.TopK(keys, b.vector([n]), axis=0, outputs=2)[1]
    order.type = ir.TensorType(INT64)
    return order


# Distributions -------------------------------------------------------------------------------


@lowers(aten.bernoulli.default)
def bernoulli(b: Block, x: ir.Value, generator: Any = None) -> ir.Value:
    return bernoulli_tensor(b, x, x)


@lowers(aten.bernoulli.Tensor)
def bernoulli_tensor(b: Block, x: ir.Value, p: ir.Value, generator: Any = None) -> ir.Value:
    return b.cast(b.Less(uniform_like(b, x), b.cast(p, FLOAT)), x)


@lowers(aten.bernoulli.p)
def bernoulli_p(b: Block, x: ir.Value, p: float = 0.5, generator: Any = None) -> ir.Value:
    return b.cast(b.Less(uniform_like(b, x), p), x)


@lowers(aten.normal_functional.default)
def normal_functional(
    b: Block, x: ir.Value, mean: float = 0.0, std: float = 1.0, generator: Any = None
) -> ir.Value:
    return b.Add(b.Mul(_normal_like(b, x), std), mean)


@lowers(aten.normal.Tensor_float)
def normal_around(b: Block, mean: ir.Value, std: float = 1.0, generator: Any = None) -> ir.Value:
    return b.Add(b.Mul(_normal_like(b, mean), std), b.cast(mean, _float_of(mean)))


@lowers(aten.normal.float_Tensor)
def normal_scaled(b: Block, mean: float, std: ir.Value, generator: Any = None) -> ir.Value:
    return b.Add(b.Mul(_normal_like(b, std), b.cast(std, _float_of(std))), mean)


@lowers(aten.normal.Tensor_Tensor)
def normal(b: Block, mean: ir.Value, std: ir.Value, generator: Any = None) -> ir.Value:
    like = b.Add(b.cast(mean, FLOAT), b.cast(std, FLOAT))
    return b.Add(b.Mul(_normal_like(b, like), b.cast(std, FLOAT)), b.cast(mean, FLOAT))


@lowers(aten.normal.float_float)
def normal_sized(
    b: Block, mean: float, std: float, size: Sequence[Size], *_layout: Any
) -> ir.Value:
    return b.Add(b.Mul(_drawn(b, "RandomNormal", size), std), mean)


def _float_of(x: ir.Value) -> ir.DataType:
    return x.dtype if x.dtype in _WIDE else FLOAT


@lowers(aten.uniform.default)
def uniform(
    b: Block, x: ir.Value, from_: float = 0.0, to: float = 1.0, generator: Any = None
) -> ir.Value:
    return b.RandomUniformLike(x, low=from_, high=to, dtype=FLOAT.value)


@lowers(aten.exponential.default)
def exponential(b: Block, x: ir.Value, lambd: float = 1.0, generator: Any = None) -> ir.Value:
    return b.Div(b.Log(b.Sub(1, uniform_like(b, x))), -lambd)


@lowers(aten.log_normal.default)
def log_normal(
    b: Block, x: ir.Value, mean: float = 1.0, std: float = 2.0, generator: Any = None
) -> ir.Value:
    return b.Exp(normal_functional(b, x, mean, std))


@lowers(aten.cauchy.default)
def cauchy(
    b: Block, x: ir.Value, median: float = 0.0, sigma: float = 1.0, generator: Any = None
) -> ir.Value:
    angle = b.Mul(b.Sub(uniform_like(b, x), 0.5), math.pi)
    return b.Add(b.Mul(b.Tan(angle), sigma), median)


@lowers(aten.geometric.default)
def geometric(b: Block, x: ir.Value, p: float, generator: Any = None) -> ir.Value:
    if p == 1:
        return filled(b, b.shape(x), 1, x.dtype or FLOAT)
    share = b.Log(b.Sub(1.0, uniform_like(b, x, DOUBLE)))
    return b.Max(b.Ceil(b.Div(share, math.log1p(-p))), 1.0)


@lowers(aten.multinomial.default)
def multinomial(
    b: Block, x: ir.Value, num_samples: Size, replacement: bool = False, generator: Any = None
) -> ir.Value:
    if not isinstance(num_samples, int):
        raise ValueError("the number of samples depends on a size: give it as a number")
    weights = b.Log(b.cast(x, FLOAT))
    if not replacement:  # the greatest of the logarithms, each with a number of Gumbel's law
        noise = b.Neg(b.Log(b.Neg(b.Log(uniform_like(b, weights)))))
        drawn = b.TopK(b.Add(weights, noise), [num_samples], axis=-1, outputs=2)[1]
        drawn.type = ir.TensorType(INT64)
        return drawn
    single = len(x.shape or ()) == 1
    rows = b.Unsqueeze(weights, [0]) if single else weights
    drawn = b.Multinomial(rows, sample_size=num_samples, dtype=INT64.value)
    return b.Squeeze(drawn, [0]) if single else drawn
