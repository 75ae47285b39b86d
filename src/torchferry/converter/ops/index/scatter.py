"""Elements written, or reduced, into places along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.arithmetic import floor_quotient
from torchferry.converter.ops.index.index import paired, vector
from torchferry.converter.ops.rare.complex.complex_number import pair
from torchferry.converter.ops.shape.axes import (
    axis_of,
    expanded,
    is_complex,
    kept_complex,
    moves,
    rank,
    same_size,
    sizes_of,
)  # fmt: skip
from torchferry.converter.ops.shape.view import reshaped
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__ = ["reduced", "scatter_reduce", "scattered"]

Write = Callable[[ir.Value, ir.Value, str | None], ir.Value]
# PyTorch's names of reductions and ONNX's
_REDUCTIONS = {
    "add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min",
    "mean": "add",
}  # fmt: skip
_HALVES = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_OF_BOOLS = {"add": "max", "mul": "min"}


def reduced(
    b: Block, x: ir.Value, write: Write, updates: ir.Value, reduction: str | None
) -> ir.Value:
    """A scatter, which ``write`` does of data, updates and ONNX's reduction, in a fit dtype."""
    if reduction is None:
        return write(x, updates, None)
    if x.dtype == ir.DataType.BOOL:
        x, updates = (b.cast(v, ir.DataType.UINT8) for v in (x, updates))
        made = write(x, updates, _OF_BOOLS.get(reduction, reduction))
        return b.cast(made, ir.DataType.BOOL)
    if x.dtype in _HALVES:
        data, added = (b.cast(v, ir.DataType.FLOAT) for v in (x, updates))
        return b.cast(write(data, added, reduction), x)
    return write(x, updates, reduction)


def scattered(
    b: Block,
    x: ir.Value,
    index: ir.Value,
    updates: ir.Value,
    axis: int,
    reduction: str | None = None,
) -> ir.Value:
    """``x`` with updates written along an axis; ``index`` and updates are of one shape."""
    updates, index = b.cast(updates, x), paired(b, x, index)
    made = reduced(
        b, x, lambda d, u, r: b.ScatterElements(d, index, u, axis=axis, reduction=r), updates,
        reduction,
    )  # fmt: skip
    return kept_complex(x, made)


def _whole(
    b: Block, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, write: Any
) -> ir.Value:
    """Scatter ``src``, of which only the first elements may have an index."""
    if any(size == 0 for size in index.shape or ()):
        return x
    made = write(vector(b, x), vector(b, index), vector(b, _first(b, src, index)), axis_of(x, dim))
    return made if rank(x) else reshaped(b, made, [])


def _first(b: Block, src: ir.Value, index: ir.Value) -> ir.Value:
    # complex numbers have one axis more
    pairs = list(zip(src.shape or (), index.shape or (), strict=False))
    axes = [axis for axis, pair in enumerate(pairs) if not same_size(*pair)]
    if not axes:
        return src
    ends = b.vector([b.dim(index, axis) for axis in axes])
    return kept_complex(src, b.Slice(src, [0] * len(axes), ends, axes))


@moves(aten.scatter.src)
def scatter(b: Block, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    return _whole(b, x, dim, index, src, lambda d, i, u, axis: scattered(b, d, i, u, axis))


@moves(aten.scatter.value)
def scatter_value(b: Block, x: ir.Value, dim: int, index: ir.Value, value: Any) -> ir.Value:
    return scatter(b, x, dim, index, _filled(b, value, x, index))


def _filled(b: Block, value: Any, x: ir.Value, index: ir.Value) -> ir.Value:
    if is_complex(x):
        return kept_complex(x, b.Expand(pair(b, value, x), b.vector([*sizes_of(b, index), 2])))
    return expanded(b, b.cast(value, x), sizes_of(b, index))


@moves(aten.scatter_add.default)
def scatter_add(b: Block, x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    return scatter_reduction(b, x, dim, index, src, "add")


@lowers(aten.scatter.reduce)
def scatter_reduction(
    b: Block, x: ir.Value, dim: int, index: ir.Value, src: ir.Value, reduce: str
) -> ir.Value:
    name = _REDUCTIONS[reduce]
    return _whole(b, x, dim, index, src, lambda d, i, u, axis: scattered(b, d, i, u, axis, name))


@lowers(aten.scatter.value_reduce)
def scatter_value_reduction(
    b: Block, x: ir.Value, dim: int, index: ir.Value, value: Any, reduce: str
) -> ir.Value:
    return scatter_reduction(b, x, dim, index, _filled(b, value, x, index), reduce)


# Every reduction -----------------------------------------------------------------------------


@lowers(aten.scatter_reduce.two)
def scatter_reduce(
    b: Block,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    src: ir.Value,
    reduce: str,
    include_self: bool = True,
) -> ir.Value:
    """Without ``include_self``, what is written to starts from what the reduction leaves alone."""

    def write(data: ir.Value, places: ir.Value, updates: ir.Value, axis: int) -> ir.Value:
        if data.dtype in _HALVES:
            wide = [b.cast(v, ir.DataType.FLOAT) for v in (data, updates)]
            return b.cast(write(wide[0], places, wide[1], axis), data)
        start = data
        if not include_self:
            neutral = _filled(b, _neutral(reduce, data), data, places)
            start = scattered(b, data, places, neutral, axis)
        made = scattered(b, start, places, updates, axis, _REDUCTIONS[reduce])
        if reduce == "mean":
            return _averaged(b, made, places, axis, include_self)
        if reduce in ("amax", "amin") and is_floating(data):
            return _with_nan(b, made, start, places, updates, axis)
        return made

    return _whole(b, x, dim, index, src, write)


def _neutral(reduce: str, x: ir.Value) -> Any:
    if reduce in ("sum", "mean"):
        return 0
    if reduce == "prod" or x.dtype == ir.DataType.BOOL:
        return int(reduce != "amax")
    if is_floating(x):
        return -np.inf if reduce == "amax" else np.inf
    if x.dtype is None:
        raise ValueError("its dtype is not known")
    limits = np.iinfo(x.dtype.numpy())
    return int(limits.min if reduce == "amax" else limits.max)


def _averaged(
    b: Block, total: ir.Value, places: ir.Value, axis: int, include_self: bool
) -> ir.Value:
    """Sums over how many were added; integers rounded down."""
    once = b.Expand(b.constant(1, total), b.shape(total))
    start = once
    if not include_self:
        start = scattered(b, once, places, _filled(b, 0, total, places), axis)
    count = scattered(b, start, places, _filled(b, 1, total, places), axis, "add")
    if is_floating(total):
        return b.Div(total, count)
    return floor_quotient(b, total, count)


def _with_nan(
    b: Block, made: ir.Value, start: ir.Value, places: ir.Value, updates: ir.Value, axis: int
) -> ir.Value:
    """NaN where one was among the elements: onnxruntime passes them by."""
    flags = [b.cast(b.IsNaN(v), ir.DataType.UINT8) for v in (start, updates)]
    spoilt = scattered(b, flags[0], places, flags[1], axis, "max")
    return b.Where(b.cast(spoilt, ir.DataType.BOOL), b.constant(np.nan, made), made)
