"""Losses of two tensors of one shape, element by element, and their reduction."""

from __future__ import annotations

from math import inf
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.reduce.distance import pairwise_distance
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__ = ["reduced"]

_NONE, _MEAN, _SUM = range(3)


def reduced(b: Block, x: ir.Value, reduction: int) -> ir.Value:
    """The mean (1) or sum (2) of all elements; 0 leaves them."""
    if reduction == _NONE:
        return x
    total = b.ReduceSum(x, keepdims=0)
    if reduction == _SUM:
        return total
    # ReduceMean of nothing is 0 in onnxruntime, and NaN in PyTorch
    whole = all(isinstance(size, int) and size > 0 for size in x.shape or (None,))
    if whole or len(x.shape or (1,)) == 0:
        return b.ReduceMean(x, keepdims=0)
    return b.Div(total, b.cast(b.Size(x), x))


def _number(b: Block, value: float, x: ir.Value) -> ir.Value:
    return b.constant(value, x)


@lowers(aten.mse_loss.default, promote="default", operands=("x", "target"))
def mse_loss(b: Block, x: ir.Value, target: ir.Value, reduction: int = _MEAN) -> ir.Value:
    difference = b.Sub(x, target)
    return reduced(b, b.Mul(difference, difference), reduction)


@lowers(aten.l1_loss.default, promote="default", operands=("x", "target"))
def l1_loss(b: Block, x: ir.Value, target: ir.Value, reduction: int = _MEAN) -> ir.Value:
    return reduced(b, b.Abs(b.Sub(x, target)), reduction)


@lowers(aten.smooth_l1_loss.default, promote="default", operands=("x", "target"))
def smooth_l1_loss(
    b: Block, x: ir.Value, target: ir.Value, reduction: int = _MEAN, beta: float = 1.0
) -> ir.Value:
    size = b.Abs(b.Sub(x, target))
    if beta == 0:
        return reduced(b, size, reduction)
    near = b.Mul(b.Mul(size, size), _number(b, 0.5 / beta, x))
    far = b.Sub(size, _number(b, 0.5 * beta, x))
    return reduced(b, b.Where(b.Less(size, _number(b, beta, x)), near, far), reduction)


@lowers(aten.huber_loss.default, promote="default", operands=("x", "target"))
def huber_loss(
    b: Block, x: ir.Value, target: ir.Value, reduction: int = _MEAN, delta: float = 1.0
) -> ir.Value:
    size = b.Abs(b.Sub(x, target))
    near = b.Mul(b.Mul(size, size), _number(b, 0.5, x))
    far = b.Mul(b.Sub(size, _number(b, 0.5 * delta, x)), _number(b, delta, x))
    inside = b.LessOrEqual(size, _number(b, delta, x))
    return reduced(b, b.Where(inside, near, far), reduction)


@lowers(aten.binary_cross_entropy.default)
def binary_cross_entropy(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    reduction: int = _MEAN,
) -> ir.Value:
    one, least = _number(b, 1, x), _number(b, -100, x)
    hit, miss = b.Max(b.Log(x), least), b.Max(b.Log(b.Sub(one, x)), least)
    loss = b.Sub(b.Mul(b.Sub(target, one), miss), b.Mul(target, hit))
    return reduced(b, loss if weight is None else b.Mul(loss, weight), reduction)


@lowers(aten.binary_cross_entropy_with_logits.default)
def binary_cross_entropy_with_logits(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    weight: ir.Value | None = None,
    pos_weight: ir.Value | None = None,
    reduction: int = _MEAN,
) -> ir.Value:
    one = _number(b, 1, x)
    missed = b.Sub(one, b.cast(target, x))
    unlikely = _softplus(b, b.Neg(x))
    if pos_weight is not None:
        factor = b.Add(b.Mul(b.Sub(pos_weight, one), b.cast(target, x)), one)
        unlikely = b.Mul(unlikely, factor)
    loss = b.Add(b.Mul(missed, x), unlikely)
    return reduced(b, loss if weight is None else b.Mul(loss, weight), reduction)


def _softplus(b: Block, x: ir.Value) -> ir.Value:
    """``log(1 + exp(x))``, also for what is large."""
    if x.dtype != ir.DataType.DOUBLE:
        return b.Softplus(x)
    rest = b.Log(b.Add(b.Exp(b.Neg(b.Abs(x))), _number(b, 1, x)))
    return b.Add(b.Max(x, _number(b, 0, x)), rest)


@lowers(aten.soft_margin_loss.default, promote="default", operands=("x", "target"))
def soft_margin_loss(b: Block, x: ir.Value, target: ir.Value, reduction: int = _MEAN) -> ir.Value:
    exponent = b.Mul(b.Neg(target), x)
    grown = b.Exp(exponent)
    if x.dtype == ir.DataType.FLOAT16:  # which overflows, and onnxruntime computes in float32
        over = b.GreaterOrEqual(exponent, _number(b, 11.0901, x))
        grown = b.Where(over, _number(b, inf, x), grown)
    return reduced(b, b.Log(b.Add(grown, _number(b, 1, grown))), reduction)


@lowers(aten.kl_div.default, promote="default", operands=("x", "target"))
def kl_div(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    reduction: int = _MEAN,
    log_target: bool = False,
) -> ir.Value:
    if log_target:
        return reduced(b, b.Mul(b.Exp(target), b.Sub(target, x)), reduction)
    # 0 · log 0 is 0 here, and only that
    zero = _number(b, 0, target)
    entropy = b.Where(b.Equal(target, zero), zero, b.Mul(target, b.Log(target)))
    return reduced(b, b.Sub(entropy, b.Mul(target, x)), reduction)


@lowers(aten.poisson_nll_loss.default, promote="float", operands=("x", "target"))
def poisson_nll_loss(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    log_input: bool,
    full: bool,
    eps: float,
    reduction: int,
) -> ir.Value:
    if log_input:
        loss = b.Sub(b.Exp(x), b.Mul(target, x))
    else:
        loss = b.Sub(x, b.Mul(target, b.Log(b.Add(x, _number(b, eps, x)))))
    if full:  # Stirling's approximation of the logarithm of target's factorial
        around = b.Mul(b.Log(b.Mul(target, _number(b, 6.283185307179586, x))), _number(b, 0.5, x))
        term = b.Add(b.Sub(b.Mul(target, b.Log(target)), target), around)
        large = b.Greater(target, _number(b, 1, x))
        loss = b.Add(loss, b.Where(large, term, _number(b, 0, x)))
    return reduced(b, loss, reduction)


# Margins -------------------------------------------------------------------------------------


def _above(b: Block, x: ir.Value, margin: float = 0) -> ir.Value:
    """``max(0, margin + x)``."""
    if margin:
        x = b.Add(x, _number(b, margin, x))
    return b.Max(x, _number(b, 0, x))


@lowers(
    aten.margin_ranking_loss.default, promote="default", operands=("input1", "input2", "target")
)
def margin_ranking_loss(
    b: Block,
    input1: ir.Value,
    input2: ir.Value,
    target: ir.Value,
    margin: float = 0.0,
    reduction: int = _MEAN,
) -> ir.Value:
    return reduced(b, _above(b, b.Mul(target, b.Sub(input2, input1)), margin), reduction)


@lowers(aten.hinge_embedding_loss.default)
def hinge_embedding_loss(
    b: Block,
    x: ir.Value,
    target: ir.Value,
    margin: float = 1.0,
    reduction: int = _MEAN,
) -> ir.Value:
    zero = _number(b, 0, x)
    near = b.Where(b.Equal(target, _number(b, -1, target)), zero, x)
    far = b.Where(b.Equal(target, _number(b, 1, target)), zero, _above(b, b.Neg(x), margin))
    return reduced(b, b.Add(near, far), reduction)


@lowers(aten.cosine_embedding_loss.default)
def cosine_embedding_loss(
    b: Block,
    input1: ir.Value,
    input2: ir.Value,
    target: ir.Value,
    margin: float = 0.0,
    reduction: int = _MEAN,
) -> ir.Value:
    """Source: ATen/native/Loss.cpp, which adds 1e-12 to the squares of the norms."""

    def summed(x: ir.Value, y: ir.Value) -> ir.Value:
        return b.ReduceSum(b.Mul(x, y), b.constant([-1]), keepdims=0)

    input1, input2 = (
        v if is_floating(v) else b.cast(v, ir.DataType.FLOAT) for v in (input1, input2)
    )
    tiny = _number(b, 1e-12, input1)
    squares = b.Mul(*(b.Add(summed(v, v), tiny) for v in (input1, input2)))
    cosine = b.Div(summed(input1, input2), b.Sqrt(squares))
    zero = _number(b, 0, cosine)
    apart = b.Where(b.Equal(target, _number(b, -1, target)), _above(b, cosine, -margin), zero)
    alike = b.Where(
        b.Equal(target, _number(b, 1, target)), b.Sub(_number(b, 1, cosine), cosine), zero
    )
    return reduced(b, b.Add(alike, apart), reduction)


@lowers(aten.triplet_margin_loss.default)
def triplet_margin_loss(
    b: Block,
    anchor: ir.Value,
    positive: ir.Value,
    negative: ir.Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = _MEAN,
) -> ir.Value:
    def distance(x: ir.Value, y: ir.Value) -> ir.Value:
        return pairwise_distance(b, x, y, p, eps)

    far: Any = distance(anchor, negative)
    if swap:
        far = b.Min(far, distance(positive, negative))
    return reduced(b, _above(b, b.Sub(distance(anchor, positive), far), margin), reduction)
