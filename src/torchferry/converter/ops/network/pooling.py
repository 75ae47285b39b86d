"""Maximum and average over sliding windows.

ONNX counts the windows of ``ceil_mode`` and the elements of an average as PyTorch does. What
onnxruntime has no kernel for (other integers, averages in float64) is composed of windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.windows import (
    batched,
    lowest,
    max_pool,
    per_axis,
    unbatched,
    windows,
)
from torchferry.seams.operators import aten

__all__: list[str] = []

Sizes = Sequence[int] | int

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
_MAXIMUM = _FLOATS | {ir.DataType.DOUBLE, ir.DataType.INT8, ir.DataType.UINT8}


@dataclass(frozen=True)
class _Pool:
    """The windows, one number for each spatial axis."""

    kernel: list[int]
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    ceil: bool

    def attributes(self) -> dict[str, Any]:
        """What MaxPool and AveragePool both take, without what is the default."""
        pads, dilations = self.padding * 2, self.dilation
        return {
            "kernel_shape": self.kernel,
            "strides": self.stride,
            "pads": pads if any(pads) else None,
            "dilations": dilations if any(d != 1 for d in dilations) else None,
            "ceil_mode": 1 if self.ceil else None,
        }

    def more(self) -> list[int]:
        """Padding at the end that makes a whole window of each that ``ceil_mode`` adds."""
        return [s - 1 if self.ceil else 0 for s in self.stride]

    def padded(self, b: Block, x: ir.Value, value: Any, beyond: Any) -> ir.Value:
        """``x`` with its padding, and what `more` adds behind it."""
        zeros = [0, 0]
        if any(self.padding):
            x = b.Pad(x, b.constant([*zeros, *self.padding] * 2), value)
        if any(self.more()):
            none = [0] * (2 + len(self.kernel))
            x = b.Pad(x, b.constant([*none, *zeros, *self.more()]), beyond)
        return x

    def cut(self, b: Block, pooled: ir.Value, x: ir.Value) -> ir.Value:
        """Without the windows that ``ceil_mode`` would start in the padding behind ``x``."""
        if not self.ceil:
            return pooled
        axes = range(2, 2 + len(self.kernel))
        ends = [
            _started(b, b.dim(x, axis), padding, stride)
            for axis, padding, stride in zip(axes, self.padding, self.stride, strict=True)
        ]
        return b.Slice(pooled, b.constant([0] * len(ends)), b.vector(ends), b.constant([*axes]))


def _started(b: Block, size: int | ir.Value, padding: int, stride: int) -> int | ir.Value:
    """How many windows start before the end of what is not padding at the end."""
    if isinstance(size, int):
        return (size + padding - 1) // stride + 1
    return b.Add(b.Div(b.Add(size, padding - 1), stride), 1)


def _pool(
    rank: int, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> _Pool:
    sizes = per_axis(kernel, rank)
    steps = per_axis(stride, rank) if isinstance(stride, int) or len(stride) else sizes
    return _Pool(sizes, steps, per_axis(padding, rank), per_axis(dilation, rank), ceil)


# Maximum -------------------------------------------------------------------------------------


def _max(rank: int, *, indices: bool) -> Any:
    def write(
        b: Block,
        x: ir.Value,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
    ) -> Any:
        pool = _pool(rank, kernel_size, stride, padding, dilation, ceil_mode)
        x, alone = batched(b, x, rank)
        if x.dtype not in _MAXIMUM:
            if indices:
                raise ValueError(f"onnxruntime has no MaxPool for {x.dtype}, pool a float tensor")
            return unbatched(b, _composed_max(b, x, pool), alone)
        if not indices:
            return unbatched(b, _of_some(b, max_pool(b, x, **pool.attributes()), x, pool), alone)
        values, places = b.MaxPool(x, **pool.attributes(), outputs=2)
        values = _of_some(b, values, x, pool)
        # ONNX counts through the whole tensor, PyTorch through one plane
        plane = _product(b, [b.dim(x, axis) for axis in range(2, 2 + rank)])
        return unbatched(b, values, alone), unbatched(b, b.Mod(places, plane), alone)

    return write


def _of_some(b: Block, pooled: ir.Value, x: ir.Value, pool: _Pool) -> ir.Value:
    """With -inf where a window with gaps has padding alone; onnxruntime has the lowest float."""
    gaps = any(pad and gap > 1 for pad, gap in zip(pool.padding, pool.dilation, strict=True))
    if not gaps:
        return pooled
    sizes = [b.dim(x, axis) for axis in range(2, 2 + len(pool.kernel))]
    some = b.MaxPool(b.Expand(b.constant(1, x), b.vector([1, 1, *sizes])), **pool.attributes())
    return b.Where(b.Greater(some, b.constant(0, x)), pooled, b.constant(-math.inf, x))


def _composed_max(b: Block, x: ir.Value, pool: _Pool) -> ir.Value:
    dtype = x.dtype
    if dtype != ir.DataType.INT64:
        x = b.cast(x, ir.DataType.INT32)
    least = lowest(x.dtype)
    seen = windows(b, pool.padded(b, x, least, least), pool.kernel, pool.stride, pool.dilation)
    axes = [2 + len(pool.kernel) + axis for axis in range(len(pool.kernel))]
    found = pool.cut(b, b.ReduceMax(seen, b.constant(axes), keepdims=0), x)
    return found if dtype is None else b.cast(found, dtype)


def _product(b: Block, sizes: Sequence[int | ir.Value]) -> int | ir.Value:
    total: int | ir.Value = math.prod(size for size in sizes if isinstance(size, int))
    for size in sizes:
        if isinstance(size, ir.Value):
            total = size if isinstance(total, int) and total == 1 else b.Mul(size, total)
    return total


lowers(aten.max_pool1d.default)(_max(1, indices=False))
lowers(aten.max_pool2d.default)(_max(2, indices=False))
lowers(aten.max_pool3d.default)(_max(3, indices=False))
lowers(aten.max_pool1d_with_indices.default)(_max(1, indices=True))
lowers(aten.max_pool2d_with_indices.default)(_max(2, indices=True))
lowers(aten.max_pool3d_with_indices.default)(_max(3, indices=True))


# Average -------------------------------------------------------------------------------------


def _average(
    b: Block, x: ir.Value, pool: _Pool, count_include_pad: bool, divisor: int | None
) -> ir.Value:
    rank = len(pool.kernel)
    x, alone = batched(b, x, rank)
    if x.dtype not in _FLOATS or (divisor is not None and pool.ceil):
        result = _composed_average(b, x, pool, count_include_pad, divisor)
    elif divisor is None:
        counted = 1 if count_include_pad and any(pool.padding) else None
        result = b.AveragePool(x, **pool.attributes(), count_include_pad=counted)
    else:
        mean = b.AveragePool(x, **pool.attributes(), count_include_pad=1)
        result = b.Mul(mean, math.prod(pool.kernel) / divisor)
    return unbatched(b, result, alone)


def _composed_average(
    b: Block, x: ir.Value, pool: _Pool, count_include_pad: bool, divisor: int | None
) -> ir.Value:
    def summed(of: ir.Value, padding: int) -> ir.Value:
        seen = windows(b, pool.padded(b, of, padding, 0), pool.kernel, pool.stride, pool.dilation)
        axes = [2 + len(pool.kernel) + axis for axis in range(len(pool.kernel))]
        return pool.cut(b, b.ReduceSum(seen, b.constant(axes), keepdims=0), of)

    dtype = x.dtype
    wide = x if dtype in (*_FLOATS, ir.DataType.DOUBLE) else b.cast(x, ir.DataType.INT64)
    if divisor is not None:
        result = b.Div(summed(wide, 0), divisor)
    else:
        sizes = [b.dim(x, axis) for axis in range(2, 2 + len(pool.kernel))]
        ones = b.Expand(b.constant(1, wide), b.vector([1, 1, *sizes]))
        result = b.Div(summed(wide, 0), summed(ones, 1 if count_include_pad else 0))
    return result if dtype is None else b.cast(result, dtype)


@lowers(aten.avg_pool1d.default)
def avg_pool1d(
    b: Block,
    x: ir.Value,
    kernel_size: Sizes,
    stride: Sizes = (),
    padding: Sizes = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> ir.Value:
    pool = _pool(1, kernel_size, stride, padding, 1, ceil_mode)
    return _average(b, x, pool, count_include_pad, None)


def _avg(rank: int) -> Any:
    def write(
        b: Block,
        x: ir.Value,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> ir.Value:
        pool = _pool(rank, kernel_size, stride, padding, 1, ceil_mode)
        return _average(b, x, pool, count_include_pad, divisor_override)

    return write


lowers(aten.avg_pool2d.default)(_avg(2))
lowers(aten.avg_pool3d.default)(_avg(3))


# And back ------------------------------------------------------------------------------------


def _unpooled(
    b: Block, x: ir.Value, indices: ir.Value, sizes: Sequence[int | ir.Value]
) -> ir.Value:
    """Every value at its place of a plane of zeros."""
    kept = [b.dim(x, axis) for axis in range(len(x.shape or ()) - len(sizes))]
    plane = _product(b, sizes)
    flat = b.vector([*kept, -1]) if kept else b.constant([-1])
    zeros = b.Expand(b.constant(0, x), b.vector([*kept, plane]))
    values, places = b.Reshape(x, flat), b.Reshape(indices, flat)
    filled = b.ScatterElements(zeros, places, values, axis=-1)
    return b.Reshape(filled, b.vector([*kept, *sizes]))


@lowers(aten.max_unpool2d.default)
def max_unpool2d(
    b: Block, x: ir.Value, indices: ir.Value, output_size: Sequence[int | ir.Value]
) -> ir.Value:
    return _unpooled(b, x, indices, output_size)


@lowers(aten.max_unpool3d.default)
def max_unpool3d(
    b: Block,
    x: ir.Value,
    indices: ir.Value,
    output_size: Sequence[int | ir.Value],
    stride: Sizes,
    padding: Sizes,
) -> ir.Value:
    return _unpooled(b, x, indices, output_size)


@lowers(aten.fractional_max_pool2d.default, aten.fractional_max_pool3d.default)
def fractional_max_pool(
    b: Block, x: ir.Value, kernel_size: Sizes, output_size: Sizes, random_samples: ir.Value
) -> ir.Value:
    raise ValueError("its windows are drawn at random, use max_pool or adaptive_max_pool")
