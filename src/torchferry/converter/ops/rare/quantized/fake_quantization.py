"""Fake quantization: a tensor that is quantized and comes back, as a model is trained with it.

Sources: aten/src/ATen/native/quantized/FakeQuantPerTensorAffine.cpp, FakeQuantPerChannelAffine.cpp
and cpu/kernels/QuantizedOpKernels.cpp.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.quantized.quantization import (
    BYTES,
    cast_constant,
    clipped,
    content_of,
    dequantized,
    is_float,
    places,
    quantized,
)
from torchferry.seams.operators import aten
from torchferry.seams.operators import quantized_decomposed as decomposed

__all__: list[str] = []

Number = int | float | ir.Value
Pair = tuple[ir.Value, ir.Value]

_FLOAT = ir.DataType.FLOAT


def _fake(
    b: Block, x: ir.Value, scale: Any, zero_point: Any, bounds: tuple[int, int], axis: int | None
) -> Pair:
    """Quantized and back, and whether each element was within the bounds."""
    if axis is None and is_float(zero_point):
        zero_point = cast_constant(b, zero_point, ir.DataType.INT32)
    fits = [d for d, (low, high) in BYTES.items() if low <= bounds[0] and bounds[1] <= high]
    dtype = fits[0] if fits and not is_float(zero_point) else _FLOAT
    whole = quantized(b, x, scale, zero_point, bounds, dtype, axis)
    result = dequantized(b, whole, scale, zero_point, axis)
    place = places(b, x, scale, zero_point, axis)
    low, high = (b.constant(bound, _FLOAT) for bound in bounds)
    return result, b.And(b.GreaterOrEqual(place, low), b.LessOrEqual(place, high))


@lowers(aten.fake_quantize_per_tensor_affine_cachemask.default)
def fake_quantize_per_tensor_affine_cachemask(
    b: Block, x: ir.Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> Pair:
    return _fake(b, x, scale, zero_point, (quant_min, quant_max), None)


@lowers(
    aten.fake_quantize_per_tensor_affine.default,
    aten.fake_quantize_per_tensor_affine.tensor_qparams,
)
def fake_quantize_per_tensor_affine(
    b: Block, x: ir.Value, scale: Number, zero_point: Number, quant_min: int, quant_max: int
) -> ir.Value:
    return _fake(b, x, scale, zero_point, (quant_min, quant_max), None)[0]


@lowers(aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default)
def fake_quantize_tensor_qparams(
    b: Block,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    fake_quant_enabled: ir.Value,
    quant_min: int,
    quant_max: int,
) -> Pair:
    result, mask = _fake(b, x, scale, zero_point, (quant_min, quant_max), None)
    enabled = b.cast(fake_quant_enabled, ir.DataType.BOOL)
    return b.Where(enabled, b.cast(result, x), x), b.Or(mask, b.Not(enabled))


@lowers(aten.fake_quantize_per_channel_affine_cachemask.default)
def fake_quantize_per_channel_affine_cachemask(
    b: Block,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Pair:
    return _fake(b, x, scale, zero_point, (quant_min, quant_max), axis)


@lowers(aten.fake_quantize_per_channel_affine.default, decomposed.fake_quant_per_channel.default)
def fake_quantize_per_channel_affine(
    b: Block,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> ir.Value:
    return _fake(b, x, scale, zero_point, (quant_min, quant_max), axis)[0]


@lowers(aten._fake_quantize_learnable_per_tensor_affine.default)
def _fake_quantize_learnable_per_tensor_affine(
    b: Block,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> ir.Value:
    bounds = quant_min, quant_max
    return _fake(b, x, scale, _learned(b, zero_point, bounds), bounds, None)[0]


@lowers(aten._fake_quantize_learnable_per_channel_affine.default)
def _fake_quantize_learnable_per_channel_affine(
    b: Block,
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> ir.Value:
    bounds = quant_min, quant_max
    return _fake(b, x, scale, _learned(b, zero_point, bounds), bounds, axis)[0]


def _learned(b: Block, zero_point: ir.Value, bounds: tuple[int, int]) -> ir.Value:
    """A zero point that training moves freely, as a step."""
    known = content_of(zero_point)
    if known is not None:
        return b.constant(known.round().clamp(*bounds).numpy(), ir.DataType.INT32)
    return b.cast(clipped(b, b.Round(zero_point), bounds), ir.DataType.INT32)
