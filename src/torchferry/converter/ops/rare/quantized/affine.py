"""Quantization of torchao: one scale for each block of a tensor.

Registered by name, so that torchao is imported by whoever uses it. A weight of bytes stays one:
DequantizeLinear reads it, block by block.
Source: torchao/quantization/quant_primitives.py of torchao 0.18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.quantized.quantization import dequantized, quantized
from torchferry.converter.ops.reduce.reduction import extreme
from torchferry.converter.write.promote import onnx_dtype, torch_dtype

__all__: list[str] = []

Size = int | ir.Value
Number = int | float | None
Pair = tuple[ir.Value, ir.Value]

_FLOAT = ir.DataType.FLOAT
_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


@dataclass(frozen=True)
class _Blocks:
    """How a tensor is cut into blocks.

    Attributes:
        sizes: of the tensor with two axes, blocks and what is in one, for each that is cut.
        inner: the axes, among these, that lie within a block.
        counts: how many blocks there are along each axis of the tensor.
    """

    sizes: list[Size]
    inner: list[int]
    counts: list[Size]

    @property
    def outer(self) -> list[Size]:
        """The sizes with 1 for the axes within a block: the shape of the scales."""
        return [1 if axis in self.inner else size for axis, size in enumerate(self.sizes)]


def _blocks(b: Block, x: ir.Value, block_size: Sequence[Size]) -> _Blocks:
    sizes: list[Size] = []
    inner: list[int] = []
    counts: list[Size] = []
    for axis, block in enumerate(block_size):
        size = b.dim(x, axis)
        if block == 1:
            sizes.append(size)
            counts.append(size)
        elif block is size or block == size:
            inner.append(len(sizes))
            sizes.append(size)
            counts.append(1)
        elif isinstance(block, int):
            count = b.Div(size, [block]) if isinstance(size, ir.Value) else size // block
            inner.append(len(sizes) + 1)
            sizes += [count, block]
            counts.append(count)
        else:
            raise ValueError("its blocks depend on the inputs' sizes, fix them")
    return _Blocks(sizes, inner, counts)


def _cut(b: Block, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    return x if len(sizes) == len(x.shape or ()) else b.Reshape(x, b.vector(sizes))


def _whole(b: Block, made: ir.Value, x: ir.Value) -> ir.Value:
    """A tensor that was cut, in the shape of ``x`` again."""
    if len(made.shape or ()) == len(x.shape or ()):
        return made
    return b.Reshape(made, b.vector([b.dim(x, axis) for axis in range(len(x.shape or ()))]))


def _bounds(dtype: torch.dtype, least: Number, most: Number) -> tuple[Any, Any]:
    if dtype.is_floating_point:
        limits: Any = torch.finfo(dtype)
    else:
        limits = torch.iinfo(dtype)
    return limits.min if least is None else least, limits.max if most is None else most


def _given(zero_point: ir.Value | None) -> ir.Value | None:
    """A zero point; one without elements stands for none."""
    empty = zero_point is not None and 0 in list(zero_point.shape or ())
    return None if empty else zero_point


@lowers("torchao::quantize_affine")
def quantize_affine(
    b: Block,
    x: ir.Value,
    block_size: Sequence[Size],
    scale: ir.Value,
    zero_point: ir.Value | None,
    output_dtype: torch.dtype,
    quant_min: Number = None,
    quant_max: Number = None,
) -> ir.Value:
    bounds = _bounds(output_dtype, quant_min, quant_max)
    blocks, zero_point = _blocks(b, x, block_size), _given(zero_point)
    dtype = onnx_dtype(output_dtype)
    if dtype in _BYTES and len(blocks.inner) == len(x.shape or ()) == len(blocks.sizes):
        return quantized(b, x, scale, 0 if zero_point is None else zero_point, bounds, dtype)
    outer = b.vector(blocks.outer)
    cut = b.cast(_cut(b, x, blocks.sizes), _FLOAT)
    steps = b.Round(b.Mul(cut, b.Reciprocal(b.Reshape(b.cast(scale, _FLOAT), outer))))
    if zero_point is not None:
        steps = b.Add(steps, b.Reshape(b.cast(zero_point, _FLOAT), outer))
    least, most = (b.constant(bound, _FLOAT) for bound in bounds)
    return _whole(b, b.cast(b.Clip(steps, least, most), dtype), x)


@lowers("torchao::dequantize_affine")
def dequantize_affine(
    b: Block,
    x: ir.Value,
    block_size: Sequence[Size],
    scale: ir.Value,
    zero_point: ir.Value | None,
    input_dtype: torch.dtype,
    quant_min: Number = None,
    quant_max: Number = None,
    output_dtype: torch.dtype = torch.float32,
) -> ir.Value:
    blocks, zero = _blocks(b, x, block_size), _given(zero_point)
    whole = zero is None or not torch_dtype(zero.dtype).is_floating_point
    if x.dtype in _BYTES and whole and blocks.inner == [len(blocks.sizes) - 1]:
        last = blocks.sizes[-1]  # every block is a part of a row
        flat = x if len(blocks.sizes) == 2 else b.Reshape(x, b.vector([-1, last]))
        each = [None if v is None else b.Reshape(v, [-1]) for v in (scale, zero)]
        return _shaped(b, dequantized(b, flat, each[0], each[1], 0), x)
    outer = b.vector(blocks.outer)
    distance = b.cast(_cut(b, x, blocks.sizes), _FLOAT)
    if zero is not None:
        distance = b.Sub(distance, b.Reshape(b.cast(zero, _FLOAT), outer))
    return _whole(b, b.Mul(distance, b.Reshape(b.cast(scale, _FLOAT), outer)), x)


def _shaped(b: Block, rows: ir.Value, x: ir.Value) -> ir.Value:
    sizes = [b.dim(x, axis) for axis in range(len(x.shape or ()))]
    same = len(sizes) == 2 and b.dim(rows, 1) == sizes[1]
    return rows if same else b.Reshape(rows, b.vector(sizes))


@lowers("torchao::choose_qparams_affine")
def choose_qparams_affine(
    b: Block,
    x: ir.Value,
    mapping_type: str,
    block_size: Sequence[Size],
    target_dtype: torch.dtype,
    quant_min: Number = None,
    quant_max: Number = None,
    eps: float | None = None,
    scale_dtype: torch.dtype | None = None,
    zero_point_dtype: torch.dtype | None = None,
    keepdim: bool = False,
) -> Pair:
    low, high = _bounds(target_dtype, quant_min, quant_max)
    if eps is None:
        eps = torch.finfo(torch_dtype(x.dtype)).smallest_normal
    blocks = _blocks(b, x, block_size)
    cut = b.cast(_cut(b, x, blocks.sizes), _FLOAT)
    least = b.Min(extreme(b, "ReduceMin", cut, blocks.inner, keepdim), 0.0)
    most = b.Max(extreme(b, "ReduceMax", cut, blocks.inner, keepdim), 0.0)
    if mapping_type == "ASYMMETRIC":
        scale = b.Max(b.Div(b.Sub(most, least), float(high - low)), eps)
        zero = b.Sub(float(low), b.Round(b.Div(least, scale)))
        zero = b.Clip(zero, float(low), float(high))
    else:
        if mapping_type == "SYMMETRIC":
            scale = b.Div(b.Max(b.Neg(least), most), (high - low) / 2)
        else:  # SYMMETRIC_NO_CLIPPING_ERR
            scale = b.Max(b.Div(least, float(low)), b.Div(most, float(high)))
        scale = b.Max(scale, eps)
        zero = b.Add(b.Mul(scale, 0.0), float(int((high + low + 1) / 2)))
    if keepdim:
        scale, zero = (b.Reshape(v, b.vector(blocks.counts)) for v in (scale, zero))
    return scale, zero
