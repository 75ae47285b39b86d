"""Activation functions, each whole."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.unary import expm1, log1p
from torchferry.converter.ops.rare.special.special import erf
from torchferry.converter.write.kernel import is_floating, widened
from torchferry.seams.operators import aten

__all__ = ["log_softmax"]

DOUBLE = ir.DataType.DOUBLE
_SELU = 1.6732632423543772, 1.0507009873554805  # torch/csrc/api/include/torch/nn/functional


@lowers(aten.relu.default)
def relu(b: Block, x: ir.Value) -> ir.Value:
    return b.Relu(x) if is_floating(x) else widened(b, "Max", x, b.constant(0, x))


@lowers(aten.relu6.default)
def relu6(b: Block, x: ir.Value) -> ir.Value:
    return hardtanh(b, x, 0, 6)


@lowers(aten.hardtanh.default)
def hardtanh(b: Block, x: ir.Value, min_val: Any = -1, max_val: Any = 1) -> ir.Value:
    return widened(b, "Clip", x, b.cast(min_val, x), b.cast(max_val, x))


@lowers(aten.threshold.default)
def threshold(b: Block, x: ir.Value, threshold: Any, value: Any) -> ir.Value:
    below = widened(b, "LessOrEqual", x, b.cast(threshold, x))
    return widened(b, "Where", below, b.cast(value, x), x)


@lowers(aten.leaky_relu.default)
def leaky_relu(b: Block, x: ir.Value, negative_slope: Any = 0.01) -> ir.Value:
    if x.dtype == DOUBLE or isinstance(negative_slope, ir.Value):
        return b.Where(b.Less(x, 0), b.Mul(x, b.cast(negative_slope, x)), x)
    return b.LeakyRelu(x, alpha=negative_slope)


@lowers(aten.rrelu.default)
def rrelu(
    b: Block, x: ir.Value, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    generator: Any = None,
) -> ir.Value:  # fmt: skip
    if not training:
        return leaky_relu(b, x, (lower + upper) / 2)
    slope = b.RandomUniformLike(x, low=lower, high=upper)
    return b.Where(b.LessOrEqual(x, 0), b.Mul(x, slope), x)


@lowers(aten.prelu.default, aten._prelu_kernel.default)
def prelu(b: Block, x: ir.Value, weight: ir.Value) -> ir.Value:
    """A slope for each channel, which is the second axis."""
    rank, size = len(x.shape or ()), len(weight.shape or ())
    if size == 1 and rank > 2:
        weight = b.Unsqueeze(weight, list(range(1, rank - 1)))
    elif size == 1 and rank == 0:
        weight = b.Squeeze(weight, [0])
    if x.dtype == DOUBLE:
        return b.Where(b.Less(x, 0), b.Mul(x, weight), x)
    return b.PRelu(x, weight)


@lowers(aten.elu.default)
def elu(b: Block, x: ir.Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> ir.Value:
    numbers = all(isinstance(v, (int, float)) for v in (alpha, scale, input_scale))
    if numbers and scale == input_scale == 1 and x.dtype != DOUBLE:
        return b.Elu(x, alpha=alpha)
    alpha, scale, input_scale = (b.cast(v, x) for v in (alpha, scale, input_scale))
    low = b.Mul(b.Mul(expm1(b, b.Mul(x, input_scale)), alpha), scale)
    return b.Where(b.Greater(x, 0), b.Mul(x, scale), low)


@lowers(aten.selu.default)
def selu(b: Block, x: ir.Value) -> ir.Value:
    return elu(b, x, *_SELU) if x.dtype == DOUBLE else b.Selu(x)


@lowers(aten.celu.default)
def celu(b: Block, x: ir.Value, alpha: Any = 1.0) -> ir.Value:
    return elu(b, x, alpha, 1, 1 / alpha)


# Smooth ones ---------------------------------------------------------------------------------


@lowers(aten.gelu.default)
def gelu(b: Block, x: ir.Value, approximate: str = "none") -> ir.Value:
    if b.opset >= 20 and x.dtype != DOUBLE:
        return b.Gelu(x, approximate=None if approximate == "none" else approximate)
    if approximate == "none":
        inner = erf(b, b.Mul(x, 0.7071067811865476))
    else:
        cube = b.Mul(b.Mul(x, x), x)
        inner = b.Tanh(b.Mul(b.Add(x, b.Mul(cube, 0.044715)), 0.7978845608028654))
    return b.Mul(b.Mul(x, 0.5), b.Add(inner, 1))


@lowers(aten.silu.default)
def silu(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(x, b.Sigmoid(x))


@lowers(aten.mish.default)
def mish(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(x, b.Tanh(softplus(b, x)))


@lowers(aten.hardsigmoid.default)
def hardsigmoid(b: Block, x: ir.Value) -> ir.Value:
    if x.dtype == DOUBLE:
        return b.Div(b.Clip(b.Add(x, 3.0), 0.0, 6.0), 6.0)
    return b.HardSigmoid(x, alpha=1 / 6, beta=0.5)


@lowers(aten.hardswish.default)
def hardswish(b: Block, x: ir.Value) -> ir.Value:
    return b.Mul(x, hardsigmoid(b, x))


@lowers(aten.softplus.default)
def softplus(b: Block, x: ir.Value, beta: Any = 1, threshold: Any = 20) -> ir.Value:
    scaled = x if beta == 1 else b.Mul(x, b.cast(beta, x))
    smooth = _softplus(b, scaled)
    if beta != 1:
        smooth = b.Div(smooth, b.cast(beta, x))
    if threshold >= 17 and x.dtype != DOUBLE:  # beyond, float32 makes no difference
        return smooth
    return b.Where(b.Greater(scaled, b.cast(threshold, x)), x, smooth)


def _softplus(b: Block, x: ir.Value) -> ir.Value:
    if x.dtype != DOUBLE:
        return b.Softplus(x)
    return b.Add(b.Max(x, 0.0), log1p(b, b.Exp(b.Neg(b.Abs(x)))))


@lowers(aten.log_sigmoid.default)
def log_sigmoid(b: Block, x: ir.Value) -> ir.Value:
    return b.Neg(_softplus(b, b.Neg(x)))


@lowers(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(b: Block, x: ir.Value) -> tuple[ir.Value, None]:
    return log_sigmoid(b, x), None


@lowers(aten.glu.default)
def glu(b: Block, x: ir.Value, dim: int = -1) -> ir.Value:
    first, gate = b.Split(x, num_outputs=2, axis=dim, outputs=2)
    return b.Mul(first, b.Sigmoid(gate))


# Shrinking ones ------------------------------------------------------------------------------


@lowers(aten.hardshrink.default)
def hardshrink(b: Block, x: ir.Value, lambd: Any = 0.5) -> ir.Value:
    return b.Where(b.LessOrEqual(b.Abs(x), b.cast(lambd, x)), b.constant(0, x), x)


@lowers(aten.softshrink.default)
def softshrink(b: Block, x: ir.Value, lambd: Any = 0.5) -> ir.Value:
    bound = b.cast(lambd, x)
    return b.Sub(x, b.Max(b.Min(x, bound), b.Neg(bound)))


# Softmax -------------------------------------------------------------------------------------


@lowers(aten.softmax.int)
def softmax(b: Block, x: ir.Value, dim: int, dtype: torch.dtype | None = None) -> ir.Value:
    return _normalized(b, "Softmax", x, dim, dtype)


@lowers(aten._softmax.default)
def _softmax(b: Block, x: ir.Value, dim: int, half_to_float: bool) -> ir.Value:
    return _normalized(b, "Softmax", x, dim, torch.float32 if half_to_float else None)


@lowers(aten.log_softmax.int)
def log_softmax(b: Block, x: ir.Value, dim: int, dtype: torch.dtype | None = None) -> ir.Value:
    """The logarithm of softmax along an axis, of ``x`` as it is or in another dtype."""
    return _normalized(b, "LogSoftmax", x, dim, dtype)


@lowers(aten._log_softmax.default)
def _log_softmax(b: Block, x: ir.Value, dim: int, half_to_float: bool) -> ir.Value:
    return _normalized(b, "LogSoftmax", x, dim, torch.float32 if half_to_float else None)


def _normalized(
    b: Block, op_type: str, x: ir.Value, dim: int, dtype: torch.dtype | None
) -> ir.Value:
    if dtype is not None:
        x = b.cast(x, dtype)
    if x.shape is not None and len(x.shape) == 0:  # ONNX wants an axis
        return b.Squeeze(_normalized(b, op_type, b.Unsqueeze(x, [0]), 0, None), [0])
    scores = b.add(op_type, (x,), axis=dim)
    if op_type == "LogSoftmax" and x.dtype == ir.DataType.DOUBLE:
        # onnxruntime's kernel of float64 passes NaN by: NaN and infinity make all of a row NaN
        sums = b.ReduceSum(b.Mul(b.Max(x, 0.0), 1e-100), [dim], keepdims=1)
        scores = b.Add(scores, b.Sub(sums, sums))
    return scores
