"""Diagonals and triangles of matrices."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.ops.elementwise.choice import chosen
from torchferry.converter.ops.reduce.reduction import total
from torchferry.converter.ops.shape.axes import (
    Size,
    axis_of,
    is_complex,
    kept_complex,
    least,
    minus,
    moves,
    plus,
    rank,
    steps,
    times,
)  # fmt: skip
from torchferry.converter.ops.shape.join import padded
from torchferry.converter.ops.shape.permute import last_axes, permuted
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.converter.write.kernel import single
from torchferry.seams.operators import aten

__all__ = ["on_diagonal"]

# onnxruntime's Trilu has no kernel; each is held exactly by the other
_TRIANGLES = {
    ir.DataType.INT8: ir.DataType.INT32, ir.DataType.UINT8: ir.DataType.INT32,
    ir.DataType.INT16: ir.DataType.INT32, ir.DataType.UINT16: ir.DataType.INT32,
    ir.DataType.UINT32: ir.DataType.INT64,
}  # fmt: skip


def on_diagonal(b: Block, rows: Size, columns: Size, offset: int) -> ir.Value:
    """Where a matrix [rows, columns] has its diagonal, as bool."""
    if isinstance(rows, int) and isinstance(columns, int):
        return b.constant(np.eye(rows, columns, offset, dtype=np.bool_))
    below = b.Unsqueeze(steps(b, 0, rows), [1])
    return b.Equal(b.Sub(steps(b, 0, columns), below), offset)


def _length(b: Block, rows: Size, columns: Size, offset: int) -> Size:
    """How many elements a diagonal has."""
    left = least(b, minus(b, rows, max(-offset, 0)), minus(b, columns, max(offset, 0)))
    if isinstance(left, int):
        return max(left, 0)
    return left if offset == 0 else b.Max(left, [0])


def _elements(b: Block, x: ir.Value, offset: int, dim1: int, dim2: int) -> ir.Value:
    """The diagonal elements of two axes, as the last axis."""
    order, _ = last_axes(rank(x), axis_of(x, dim1), axis_of(x, dim2))
    *batch, rows, columns = (b.dim(x, axis) for axis in order)
    line = reshaped(b, permuted(b, x, order), [*batch, times(b, rows, columns)])
    count = _length(b, rows, columns, offset)
    # From one element to the next it is a row and a column.
    start = offset if offset >= 0 else times(b, columns, -offset)
    end = times(b, plus(b, count, max(-offset, 0)), columns)
    step = plus(b, columns, 1)
    bounds = [v if isinstance(v, ir.Value) else [v] for v in (start, end, len(batch), step)]
    return kept_complex(x, b.Slice(line, *bounds))


@moves(aten.diagonal.default, aten.diagonal_copy.default)
def diagonal(b: Block, x: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ir.Value:
    return _elements(b, x, offset, dim1, dim2)


@moves(aten.linalg_diagonal.default)
def linalg_diagonal(
    b: Block,
    A: ir.Value,
    offset: int = 0,
    dim1: int = -2,
    dim2: int = -1,
) -> ir.Value:
    return _elements(b, A, offset, dim1, dim2)


@moves(aten.trace.default)
def trace(b: Block, x: ir.Value) -> ir.Value:
    whole = x.dtype is not None and not x.dtype.is_floating_point()
    summed = b.cast(x, ir.DataType.INT64) if whole else single(b, x)
    return total(b, _elements(b, summed, 0, 0, 1), [0])


@moves(aten.diag.default)
def diag(b: Block, x: ir.Value, diagonal: int = 0) -> ir.Value:
    return diag_embed(b, x, diagonal) if rank(x) == 1 else _elements(b, x, diagonal, 0, 1)


@moves(aten.diagflat.default)
def diagflat(b: Block, x: ir.Value, offset: int = 0) -> ir.Value:
    return diag_embed(b, flat(b, x), offset)


@moves(aten.diag_embed.default)
def diag_embed(b: Block, x: ir.Value, offset: int = 0, dim1: int = -2, dim2: int = -1) -> ir.Value:
    axes = rank(x) + 1
    size = plus(b, b.dim(x, rank(x) - 1), abs(offset))
    row = b.Unsqueeze(padded(b, x, max(offset, 0), max(-offset, 0), rank(x) - 1), [axes - 2])
    row = kept_complex(x, row)
    made = _chosen(b, on_diagonal(b, size, size, offset), row, b.constant(0, x))
    _, back = last_axes(axes, range(axes)[dim1], range(axes)[dim2])
    return permuted(b, made, back)


@moves(aten.diagonal_scatter.default)
def diagonal_scatter(
    b: Block, x: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    order, back = last_axes(rank(x), axis_of(x, dim1), axis_of(x, dim2))
    *_, rows, columns = (b.dim(x, axis) for axis in order)
    before = max(offset, 0)
    after = minus(b, minus(b, columns, before), b.dim(src, rank(src) - 1))
    row = padded(b, b.cast(src, x), before, after, rank(src) - 1)
    spread = kept_complex(x, b.Unsqueeze(row, [rank(src) - 1]))
    matrix = permuted(b, x, order)
    return permuted(b, _chosen(b, on_diagonal(b, rows, columns, offset), spread, matrix), back)


def _chosen(b: Block, mask: ir.Value, x: ir.Value, other: ir.Value) -> ir.Value:
    """``x`` where a mask of matrices holds, complex numbers as a whole, else ``other``."""
    held = b.Unsqueeze(mask, [-1]) if is_complex(x) else mask
    return kept_complex(x, chosen(b, held, x, other))


# Triangles -----------------------------------------------------------------------------------


def _triangle(b: Block, x: ir.Value, diagonal: Size, upper: bool) -> ir.Value:
    shift = b.scalar(diagonal)
    if is_complex(x):  # the parts as two matrices
        axes = rank(x)
        matrices = b.Transpose(x, perm=[axes, *range(axes)])
        kept = b.Trilu(matrices, shift, upper=int(upper))
        return b.Transpose(kept, perm=[*range(1, axes + 1), 0])
    wide = _TRIANGLES.get(x.dtype) if x.dtype is not None else None
    if wide is not None:
        return b.cast(b.Trilu(b.cast(x, wide), shift, upper=int(upper)), x)
    return b.Trilu(x, shift, upper=int(upper))


@moves(aten.tril.default)
def tril(b: Block, x: ir.Value, diagonal: Size = 0) -> ir.Value:
    return _triangle(b, x, diagonal, upper=False)


@moves(aten.triu.default)
def triu(b: Block, x: ir.Value, diagonal: Size = 0) -> ir.Value:
    return _triangle(b, x, diagonal, upper=True)
