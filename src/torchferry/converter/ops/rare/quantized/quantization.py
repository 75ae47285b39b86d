"""Quantized tensors: QuantizeLinear and DequantizeLinear for bytes, arithmetic for the rest.

Weights stay integers in the file; one that the model quantizes in every call is stored quantized.
QuantizeLinear divides by the scale where PyTorch multiplies by its reciprocal: a number within one
rounding of a tie may fall to the other side of it.
Sources: torch/ao/quantization/fx/_decomposed.py, aten/src/ATen/native/quantized.
"""

from __future__ import annotations

from typing import Any, cast

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.reduce.reduction import extreme
from torchferry.converter.weight import Weight
from torchferry.converter.write.promote import onnx_dtype, torch_dtype
from torchferry.seams.operators import aten
from torchferry.seams.operators import quantized_decomposed as decomposed
from torchferry.seams.pytorch import quantized_operators

__all__ = [
    "BYTES",
    "cast_constant",
    "clipped",
    "content_of",
    "dequantized",
    "is_float",
    "places",
    "quantized",
]

Number = int | float | ir.Value
Dtype = torch.dtype | None
Pair = tuple[ir.Value, ir.Value]

_FLOAT, _DOUBLE, _INT64 = ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.INT64
quantized_operators()

BYTES = {ir.DataType.INT8: (-128, 127), ir.DataType.UINT8: (0, 255)}
"""What QuantizeLinear saturates to; onnxruntime has kernels for these."""


def _parameter(b: Block, given: Any, dtype: ir.DataType, axis: int | None) -> ir.Value:
    """A scale or zero point: one number, or one for each place of an axis."""
    value = cast_constant(b, given, dtype)
    if axis is None and len(value.shape or ()):
        return b.Reshape(value, b.constant([], ir.DataType.INT64))
    return value


def _along(b: Block, given: Any, x: ir.Value, axis: int | None) -> ir.Value:
    """A parameter in a shape that broadcasts over the axis of ``x``."""
    value = _parameter(b, given, _FLOAT, axis)
    if axis is None:
        return value
    rank = len(x.shape or ())
    return b.Reshape(value, [-1 if place == axis % rank else 1 for place in range(rank)])


def quantized(
    b: Block,
    x: ir.Value,
    scale: Any,
    zero_point: Any,
    bounds: tuple[Any, Any],
    dtype: ir.DataType,
    axis: int | None = None,
) -> ir.Value:
    """``clamp(round(x / scale) + zero_point, *bounds)`` in an integer dtype.

    Args:
        b: where the nodes go.
        x: floats.
        scale: a number, or a value of one element, or of one for each place of ``axis``.
        zero_point: the same.
        bounds: least and greatest result.
        dtype: of the result.
        axis: where scales belong; one scale for all when ``None``.
    """
    if (codes := _stored_codes(b, x, scale, zero_point, bounds, dtype, axis)) is not None:
        return codes
    if dtype not in BYTES:
        return b.cast(clipped(b, places(b, x, scale, zero_point, axis), bounds), dtype)
    result = b.QuantizeLinear(
        b.cast(x, _FLOAT),
        _parameter(b, scale, _FLOAT, axis),
        _parameter(b, zero_point, dtype, axis),
        axis=axis,
    )
    return result if bounds == BYTES[dtype] else clipped(b, result, bounds)


def places(b: Block, x: ir.Value, scale: Any, zero_point: Any, axis: int | None) -> ir.Value:
    """Which step each element is nearest to, in float32."""
    steps = b.Mul(b.cast(x, _FLOAT), b.Reciprocal(_along(b, scale, x, axis)))
    zero = _along(b, zero_point, x, axis)
    if is_float(zero_point):  # a zero point between two steps is added before PyTorch rounds
        return cast("ir.Value", b.Round(b.Add(steps, zero)))
    return cast("ir.Value", b.Add(b.Round(steps), zero))


def _stored_codes(
    b: Block, x: ir.Value, scale: Any, zero_point: Any, bounds: tuple[Any, Any],
    dtype: ir.DataType, axis: int | None,
) -> ir.Value | None:  # fmt: skip
    """What `quantized` gives of a weight, rounded as PyTorch does; ``None`` of anything else."""
    if not isinstance(x.const_value, Weight) or dtype not in BYTES:
        return None
    known = [content_of(item) for item in (x, scale, zero_point, *bounds)]
    weight, scales, zeros, least, most = known
    if weight is None or scales is None or zeros is None or least is None or most is None:
        return None
    if axis is not None:
        sizes = [-1 if place == axis % weight.ndim else 1 for place in range(weight.ndim)]
        scales, zeros = scales.reshape(sizes), zeros.reshape(sizes)
    steps = torch.round(weight.to(torch.float32) * (1.0 / scales).to(torch.float32))
    codes = (steps + zeros).clamp(least, most).to(torch_dtype(dtype))
    return b.constants.weight(codes, f"{x.name}.quantized")


def cast_constant(b: Block, given: Any, dtype: ir.DataType) -> ir.Value:
    """A number or value in another dtype; no node is written to cast a constant."""
    known = content_of(given) if isinstance(given, ir.Value) and given.dtype != dtype else None
    return b.cast(given, dtype) if known is None else b.constant(known.numpy(), dtype)


def content_of(given: Any) -> torch.Tensor | None:
    """A number, or the tensor of a constant that has data."""
    if not isinstance(given, ir.Value):
        return torch.tensor(given, dtype=torch.float64)
    tensor = given.const_value
    if isinstance(tensor, Weight):
        held: Any = tensor.raw
        return None if held.is_meta else held.detach()
    return None if tensor is None else torch.from_numpy(tensor.numpy())


def clipped(b: Block, x: ir.Value, bounds: tuple[Any, Any]) -> ir.Value:
    """``x`` within two numbers, or values of one element."""
    least, most = (b.scalar(b.cast(bound, x)) for bound in bounds)
    return b.Clip(x, least, most)


def dequantized(
    b: Block, x: ir.Value, scale: Any, zero_point: Any, axis: int | None = None
) -> ir.Value:
    """``(x - zero_point) * scale`` in float32; the arguments are those of `quantized`."""
    if x.dtype not in BYTES:
        distance = b.cast(x, _FLOAT)
        if zero_point is not None:
            distance = b.Sub(distance, _along(b, zero_point, x, axis))
        return b.Mul(distance, _along(b, scale, x, axis))
    zero = None if zero_point is None else _parameter(b, zero_point, x.dtype, axis)
    return b.DequantizeLinear(x, _parameter(b, scale, _FLOAT, axis), zero, axis=axis)


def is_float(value: Any) -> bool:
    """Whether something is a value of floats, and not a number."""
    return (
        isinstance(value, ir.Value) and value.dtype is not None and value.dtype.is_floating_point()
    )


# quantized_decomposed ------------------------------------------------------------------------


@lowers(
    decomposed.quantize_per_tensor.default, decomposed.quantize_per_tensor.tensor,
    decomposed.quantize_per_tensor.tensor2,
)  # fmt: skip
def quantize_per_tensor(
    b: Block,
    x: ir.Value,
    scale: Number,
    zero_point: Number,
    quant_min: Number,
    quant_max: Number,
    dtype: torch.dtype,
) -> ir.Value:
    return quantized(b, x, scale, zero_point, (quant_min, quant_max), onnx_dtype(dtype))


@lowers(decomposed.quantize_per_channel.default)
def quantize_per_channel(
    b: Block,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> ir.Value:
    return quantized(b, x, scales, zero_points, (quant_min, quant_max), onnx_dtype(dtype), axis)


@lowers(
    decomposed.dequantize_per_tensor.default, decomposed.dequantize_per_tensor.tensor,
    decomposed.dequantize_per_tensor.tensor2,
)  # fmt: skip
def dequantize_per_tensor(
    b: Block,
    x: ir.Value,
    scale: Number,
    zero_point: Number,
    quant_min: Number,
    quant_max: Number,
    dtype: torch.dtype,
    out_dtype: Dtype = None,
) -> ir.Value:
    return dequantized(b, x, scale, zero_point)


@lowers(decomposed.dequantize_per_channel.default)
def dequantize_per_channel(
    b: Block,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None,
    axis: int,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    out_dtype: Dtype = None,
) -> ir.Value:
    return dequantized(b, x, scales, zero_points, axis)


@lowers(decomposed.quantize_per_token.default)
def quantize_per_token(
    b: Block,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
) -> ir.Value:
    kind = _DOUBLE if _DOUBLE in (x.dtype, scales.dtype) else _FLOAT
    scaled = b.Mul(b.cast(x, kind), b.Reciprocal(b.cast(scales, kind)))
    moved = b.Round(b.Add(scaled, b.cast(zero_points, kind)))
    return b.cast(clipped(b, moved, (quant_min, quant_max)), dtype)


@lowers(decomposed.dequantize_per_token.default)
def dequantize_per_token(
    b: Block,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> ir.Value:
    return b.Mul(b.Sub(b.cast(x, scales), b.cast(zero_points, scales)), scales)


@lowers(decomposed.dequantize_per_channel_group.default)
def dequantize_per_channel_group(
    b: Block,
    x: ir.Value,
    scales: ir.Value,
    zero_points: ir.Value | None,
    quant_min: int,
    quant_max: int,
    dtype: torch.dtype,
    group_size: int,
    output_dtype: torch.dtype,
) -> ir.Value:
    rows, columns = (b.dim(x, axis) for axis in (0, 1))
    if not isinstance(columns, int):
        raise ValueError("the weight's last axis is dynamic, and is cut into groups: fix it")
    size = min(group_size, columns)
    groups = b.Reshape(x, b.vector([rows, columns // size, size]))
    distance = b.cast(groups, scales)
    if zero_points is not None:
        distance = b.Sub(distance, b.Unsqueeze(b.cast(zero_points, scales), [-1]))
    return b.Reshape(b.Mul(distance, b.Unsqueeze(scales, [-1])), b.vector([rows, columns]))


def _bounds_of(b: Block, x: ir.Value, axes: list[int], keepdim: bool) -> Pair:
    """The least and the greatest element, 0 counted among them."""
    least = b.Min(extreme(b, "ReduceMin", x, axes, keepdim), 0)
    return least, b.Max(extreme(b, "ReduceMax", x, axes, keepdim), 0)


def _whole(x: ir.Value) -> list[int]:
    return list(range(len(x.shape or ())))


@lowers(decomposed.choose_qparams.tensor)
def choose_qparams(
    b: Block, x: ir.Value, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> Pair:
    wide = b.cast(x, _FLOAT)
    least, most = _bounds_of(b, wide, _whole(x), False)
    scale = b.Max(b.Div(b.Sub(most, least), float(quant_max - quant_min)), eps)
    place = b.Sub(float(quant_min), b.Round(b.Div(least, scale)))
    place = b.Clip(place, float(quant_min), float(quant_max))
    return b.cast(b.Reshape(scale, [1]), _DOUBLE), b.cast(b.Reshape(place, [1]), _INT64)


@lowers(decomposed.choose_qparams_symmetric.tensor)
def choose_qparams_symmetric(
    b: Block, x: ir.Value, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> Pair:
    wide = b.cast(x, _FLOAT)
    greatest = extreme(b, "ReduceMax", b.Abs(wide), _whole(x))
    scale = b.Max(b.Div(greatest, (quant_max - quant_min) / 2), eps)
    middle = 128 if dtype is torch.uint8 else 0
    return b.cast(b.Reshape(scale, [1]), _DOUBLE), b.constant([middle])


@lowers(decomposed.choose_qparams_per_token.default)
def choose_qparams_per_token(b: Block, x: ir.Value, dtype: torch.dtype) -> Pair:
    greatest = extreme(b, "ReduceMax", b.Abs(x), _whole(x)[-1:], True)
    scales = b.Div(b.Max(b.cast(greatest, _FLOAT), 1e-5), 127.0)
    return scales, b.Mul(scales, 0.0)


@lowers(
    decomposed.choose_qparams_per_token_asymmetric.default,
    decomposed._choose_qparams_per_token_asymmetric_impl.default,
)
def choose_qparams_per_token_asymmetric(b: Block, x: ir.Value, dtype: torch.dtype) -> Pair:
    least, most = _bounds_of(b, b.cast(x, _FLOAT), _whole(x)[-1:], True)
    scale = b.Max(b.Div(b.Sub(most, least), 255.0), torch.finfo(torch.float32).eps)
    below, above = b.Div(least, scale), b.Div(most, scale)
    nearer = b.Greater(b.Add(b.Add(-128.0, below), b.Add(127.0, above)), 0.0)
    place = b.Where(nearer, b.Sub(-128.0, below), b.Sub(127.0, above))
    return b.cast(scale, _DOUBLE), b.cast(b.Round(b.Clip(place, -128.0, 127.0)), _INT64)


# Products with packed weights --------------------------------------------------------------------


@lowers(aten._weight_int8pack_mm.default)
def _weight_int8pack_mm(b: Block, x: ir.Value, mat2: ir.Value, scales: ir.Value) -> ir.Value:
    weight = b.DequantizeLinear(mat2, b.cast(scales, _FLOAT), None, axis=0)
    return b.MatMul(b.cast(x, _FLOAT), b.Transpose(weight, perm=[1, 0]))


@lowers(aten._int_mm.default)
def _int_mm(b: Block, x: ir.Value, mat2: ir.Value) -> ir.Value:
    return b.MatMulInteger(x, mat2)
