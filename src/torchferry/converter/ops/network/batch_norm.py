"""Batch normalization. In training mode it is written only where nothing else changes by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.normalization import (
    channels,
    filled,
    scaled_and_shifted,
    standardized,
)
from torchferry.seams.operators import aten

__all__ = ["evaluated"]

Tensor = ir.Value | None

_HALVES = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


def evaluated(
    b: Block, x: ir.Value, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, eps: float
) -> ir.Value:
    """Normalized by given statistics."""
    if mean is None or var is None:
        raise ValueError("it has no running statistics, call it in training mode")
    size = channels(b, x)
    dtype = x.dtype
    if mean.dtype != dtype and dtype in _HALVES:
        x = b.cast(x, mean)
    scale = filled(b, 1.0, [size], x) if weight is None else b.cast(weight, x)
    shift = filled(b, 0.0, [size], x) if bias is None else b.cast(bias, x)
    result = b.BatchNormalization(x, scale, shift, b.cast(mean, x), b.cast(var, x), epsilon=eps)
    return result if dtype is None else b.cast(result, dtype)


def _by_batch(
    b: Block, x: ir.Value, weight: Tensor, bias: Tensor, eps: float
) -> tuple[ir.Value, ir.Value, ir.Value, ir.Value]:
    """Normalized by its own statistics: the result, mean, biased variance, reciprocal root."""
    wide = b.cast(x, ir.DataType.FLOAT) if x.dtype in _HALVES else x
    axes = [0, *range(2, len(x.shape or ()))]
    normal, mean, reciprocal = standardized(b, wide, axes, eps)
    result = b.cast(scaled_and_shifted(b, normal, weight, bias), x)
    centred = b.Sub(wide, mean)
    variance = b.ReduceMean(b.Mul(centred, centred), b.constant(axes), keepdims=0)
    gone = b.constant(axes)
    return result, b.Squeeze(mean, gone), variance, b.Squeeze(reciprocal, gone)


def _no_update(running_mean: Tensor) -> None:
    if running_mean is not None:
        raise ValueError(
            "it updates its running statistics in training mode, call model.eval() before the "
            "export"
        )


def _nothing(b: Block, x: ir.Value) -> ir.Value:
    return b.constant(np.zeros(0), x)


@lowers(aten.batch_norm.default)
def batch_norm(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> ir.Value:
    if not training:
        return evaluated(b, x, weight, bias, running_mean, running_var, eps)
    _no_update(running_mean)
    return _by_batch(b, x, weight, bias, eps)[0]


@lowers(
    aten.native_batch_norm.default, aten._native_batch_norm_legit.default,
)  # fmt: skip
def native_batch_norm(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    if not training:
        result = evaluated(b, x, weight, bias, running_mean, running_var, eps)
        return result, _nothing(b, x), _nothing(b, x)
    _no_update(running_mean)
    result, mean, _, reciprocal = _by_batch(b, x, weight, bias, eps)
    return result, mean, reciprocal


@lowers(aten._native_batch_norm_legit.no_stats)
def no_stats(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    return native_batch_norm(b, x, weight, bias, None, None, training, momentum, eps)


@lowers(aten._native_batch_norm_legit_no_training.default)
def no_training(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    result = evaluated(b, x, weight, bias, running_mean, running_var, eps)
    return result, _nothing(b, x), _nothing(b, x)


@lowers(aten._batch_norm_no_update.default)
def no_update(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    result = evaluated(b, x, weight, bias, running_mean, running_var, eps)
    return result, _nothing(b, x), _nothing(b, x), None


@lowers(aten._batch_norm_with_update.default)
def with_update(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    _no_update(running_mean)
    return (None,) * 4


@lowers(aten._native_batch_norm_legit_functional.default)
def functional(
    b: Block,
    x: ir.Value,
    weight: Tensor,
    bias: Tensor,
    running_mean: ir.Value,
    running_var: ir.Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Any, ...]:
    """The updated statistics are results like others here."""
    if not training:
        result = evaluated(b, x, weight, bias, running_mean, running_var, eps)
        return result, _nothing(b, x), _nothing(b, x), running_mean, running_var
    result, mean, variance, reciprocal = _by_batch(b, x, weight, bias, eps)
    count = b.cast(b.Div(b.Size(x), b.scalar(channels(b, x))), variance)
    unbiased = b.Mul(variance, b.Div(count, b.Sub(count, 1)))
    updated = [
        b.Add(b.Mul(running, 1 - momentum), b.Mul(b.cast(found, running), momentum))
        for running, found in ((running_mean, mean), (running_var, unbiased))
    ]
    return result, mean, reciprocal, *updated
