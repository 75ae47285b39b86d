"""Linear systems by elimination, one column at a time in a Loop; any number of batch axes.

Every function takes matrices ``[..., n, m]`` of float32 or float64, with static or dynamic sizes.
Accuracy is that of float32 elimination with partial pivoting (LAPACK's getrf, getrs, potrf).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.write.control_flow import loop

__all__ = [
    "Factors", "cholesky_factor", "factorized", "first_true", "identity", "least", "places_of",
    "reduced", "stack_sizes", "substituted", "swapped", "triangle",
]  # fmt: skip

_INT64 = ir.DataType.INT64
Values = Sequence[ir.Value]


def swapped(b: Block, x: ir.Value) -> ir.Value:
    """``x`` with its last two axes swapped."""
    order = list(range(len(x.shape or ())))
    return b.Transpose(x, perm=[*order[:-2], order[-1], order[-2]])


def places_of(b: Block, x: ir.Value, axis: int) -> ir.Value:
    """0, 1, 2, … along an axis."""
    return b.Range(0, b.scalar(b.dim(x, axis)), 1)


def identity(b: Block, x: ir.Value, axis: int = -1) -> ir.Value:
    """The identity matrix ``[n, n]`` in the dtype of ``x``, for its size ``n`` at an axis."""
    places = places_of(b, x, axis)
    return b.cast(b.Equal(b.Unsqueeze(places, [1]), places), x)


def triangle(b: Block, x: ir.Value, upper: bool, diagonal: int = 0) -> ir.Value:
    """The triangle of ``x`` on one side of a diagonal, zeros elsewhere."""
    return b.Trilu(x, diagonal, upper=int(upper))


@dataclass(frozen=True)
class _Pivot:
    """One step's pivot: its row, in front of the others now, and its column.

    Attributes:
        matrix: with the two rows swapped, ``[..., n, m]``.
        row: the pivot row, ``[..., 1, m]``.
        column: the pivot column, ``[..., n, 1]``.
        value: the pivot, ``[..., 1, 1]``; 1 where it is 0.
        place: where the pivot row was, ``[..., 1]``.
    """

    matrix: ir.Value
    row: ir.Value
    column: ir.Value
    value: ir.Value
    place: ir.Value


def _pivoted(b: Block, matrix: ir.Value, index: ir.Value, rows: ir.Value, pivot: bool) -> _Pivot:
    """Bring the row with the greatest element of a column, from the diagonal on, to the diagonal.

    Args:
        b: the block of the step.
        matrix: ``[..., n, m]``.
        index: the column, int64 of shape [].
        rows: 0 to n-1.
        pivot: whether to look for the greatest; the diagonal element is taken otherwise.
    """
    place = b.Unsqueeze(index, [0])
    if pivot:
        column = b.Gather(matrix, index, axis=-1)
        # a NaN is taken first, so that it spreads as it does in LAPACK
        size = b.Where(b.IsNaN(column), float("inf"), b.Abs(column))
        size = b.Where(b.Less(rows, index), -1.0, size)
        place = b.ArgMax(size, axis=-1, keepdims=1)
        order = b.Where(b.Equal(rows, place), index, rows)
        order = b.Where(b.Equal(rows, index), place, order)
        spread = b.Expand(b.Unsqueeze(order, [-1]), b.Shape(matrix))
        matrix = b.GatherElements(matrix, spread, axis=-2)
    one = b.Unsqueeze(index, [0])
    row = b.Gather(matrix, one, axis=-2)
    column = b.Gather(matrix, one, axis=-1)
    value = b.Gather(row, one, axis=-1)
    return _Pivot(matrix, row, column, b.Where(b.Equal(value, 0), 1.0, value), place)


@dataclass(frozen=True)
class Factors:
    """What `factorized` finds, for every matrix of the batch.

    Attributes:
        packed: L below the diagonal, whose diagonal of ones is not stored, and U, ``[..., n, m]``.
        order: row ``i`` of L·U is row ``order[i]`` of the matrix, int64 ``[..., n]``.
        places: which row was swapped with row ``i``, from 0 on, int64 ``[..., min(n, m)]``.
    """

    packed: ir.Value
    order: ir.Value
    places: ir.Value


def factorized(b: Block, x: ir.Value, pivot: bool = True) -> Factors:
    """L·U = P·x by Gaussian elimination.

    Args:
        b: where the nodes go.
        x: ``[..., n, m]``.
        pivot: whether rows are swapped.
    """
    rank = len(x.shape or ())
    rows, columns = places_of(b, x, -2), places_of(b, x, -1)
    order = b.Expand(rows, stack_sizes(b, x, [b.dim(x, -2)]))

    def step(inner: Block, index: ir.Value, matrix: ir.Value, order: ir.Value) -> Any:
        best = _pivoted(inner, matrix, index, rows, pivot)
        below = inner.Unsqueeze(inner.Greater(rows, index), [-1])
        factor = inner.Where(below, inner.Div(best.column, best.value), 0.0)
        later = inner.Where(inner.Greater(columns, index), best.row, 0.0)
        left = inner.Sub(best.matrix, inner.Mul(factor, later))
        here = inner.And(below, inner.Equal(columns, index))
        following = inner.Where(here, factor, left)
        if pivot:
            moved = inner.Where(inner.Equal(rows, best.place), index, rows)
            moved = inner.Where(inner.Equal(rows, index), best.place, moved)
            order = inner.GatherElements(order, moved, axis=-1)
        place = inner.Expand(best.place, stack_sizes(inner, x, [1]))
        return [following, order], [inner.Squeeze(place, [-1])]

    steps = least(b, b.dim(x, -2), b.dim(x, -1))
    packed, order, places = loop(b, steps, [x, order], step)
    batch = list(range(1, rank - 1))
    return Factors(packed, order, b.Transpose(places, perm=[*batch, 0]))


def least(b: Block, one: int | ir.Value, other: int | ir.Value) -> int | ir.Value:
    """The lesser of two sizes."""
    if isinstance(one, int) and isinstance(other, int):
        return min(one, other)
    return b.Min(*(v if isinstance(v, ir.Value) else b.constant([v]) for v in (one, other)))


def stack_sizes(b: Block, x: ir.Value, last: Sequence[int | ir.Value]) -> ir.Value:
    """The batch sizes of a stack of matrices, and others behind them: int64 of shape [rank]."""
    return b.vector([*(b.dim(x, axis) for axis in range(len(x.shape or ()) - 2)), *last])


def reduced(b: Block, x: ir.Value, other: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The solution of ``x @ y = other`` by Gauss-Jordan elimination, and whether there is one.

    Args:
        b: where the nodes go.
        x: ``[..., n, n]``.
        other: ``[..., n, k]``, with the batch axes of ``x``.

    Returns:
        ``y``, and the number of the first column without a pivot, from 1 on, or 0: int64 of the
        batch axes.
    """
    rows = places_of(b, x, -1)

    def step(inner: Block, index: ir.Value, matrix: ir.Value) -> Any:
        best = _pivoted(inner, matrix, index, rows, True)
        row = inner.Div(best.row, best.value)
        here = inner.Unsqueeze(inner.Equal(rows, index), [-1])
        following = inner.Sub(best.matrix, inner.Mul(best.column, row))
        one = inner.Unsqueeze(index, [0])
        pivot = inner.Gather(inner.Gather(best.matrix, one, axis=-2), one, axis=-1)
        return [inner.Where(here, row, following)], [inner.Squeeze(pivot, [-2, -1])]

    size = b.dim(x, -1)
    solved, pivots = loop(b, size, [b.Concat(x, other, axis=-1)], step)
    length = b.vector([size])
    result = b.Slice(solved, length, [2**63 - 1], [-1])
    return result, first_true(b, b.Equal(pivots, 0))


def first_true(b: Block, mask: ir.Value) -> ir.Value:
    """The place of the first true along the first axis, from 1 on; 0 where there is none."""
    flags = b.cast(mask, _INT64)
    size = b.Shape(mask, start=0, end=1)
    falling = b.Range(b.Squeeze(size, [0]), 0, -1)  # n, …, 1: the greatest flagged is the first
    rank = len(mask.shape or ())
    column = b.Reshape(falling, [-1, *[1] * (rank - 1)])
    none = b.Mul(b.ReduceSum(flags, [0]), 0)  # so that there is one even where there are no rows
    found = b.ReduceMax(b.Concat(none, b.Mul(flags, column), axis=0), [0], keepdims=0)
    return b.Where(b.Greater(found, 0), b.Sub(b.Add(b.Squeeze(size, [0]), 1), found), 0)


def substituted(
    b: Block, x: ir.Value, other: ir.Value, upper: bool, unit: bool = False
) -> ir.Value:
    """The solution of ``x @ y = other`` for triangular ``x``, by substitution.

    Args:
        b: where the nodes go.
        x: ``[..., n, n]``; only the triangle is read.
        other: ``[..., n, k]``, with the batch axes of ``x``.
        upper: which triangle.
        unit: the diagonal counts as ones, whatever is there.
    """
    rows = places_of(b, x, -1)
    size = b.dim(x, -1)
    last = b.Sub(b.scalar(size), 1) if upper else None

    def step(inner: Block, count: ir.Value, left: ir.Value) -> Any:
        index = count if last is None else inner.Sub(last, count)
        one = inner.Unsqueeze(index, [0])
        row = inner.Gather(left, one, axis=-2)
        column = inner.Gather(x, one, axis=-1)
        if not unit:
            row = inner.Div(row, inner.Gather(column, one, axis=-2))
        ahead = inner.Less(rows, index) if upper else inner.Greater(rows, index)
        factor = inner.Where(inner.Unsqueeze(ahead, [-1]), column, 0.0)
        following = inner.Sub(left, inner.Mul(factor, row))
        here = inner.Unsqueeze(inner.Equal(rows, index), [-1])
        return [inner.Where(here, row, following)], []

    return loop(b, size, [other], step)[0]


def cholesky_factor(b: Block, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Lower triangular L with ``L @ L.T = x``, and whether ``x`` has one.

    Args:
        b: where the nodes go.
        x: ``[..., n, n]``; the lower triangle is read.

    Returns:
        L, and the number of the first minor that is not positive definite, from 1 on, or 0.
    """
    rows = places_of(b, x, -1)

    def step(inner: Block, index: ir.Value, matrix: ir.Value) -> Any:
        one = inner.Unsqueeze(index, [0])
        column = inner.Gather(matrix, one, axis=-1)
        square = inner.Gather(column, one, axis=-2)
        below = inner.Unsqueeze(inner.GreaterOrEqual(rows, index), [-1])
        factor = inner.Where(below, inner.Div(column, inner.Sqrt(square)), 0.0)
        following = inner.Sub(matrix, inner.Mul(factor, swapped(inner, factor)))
        kept = [inner.Squeeze(factor, [-1]), inner.Squeeze(square, [-2, -1])]
        return [following], kept

    _, columns, squares = loop(b, b.dim(x, -1), [x], step)
    rank = len(x.shape or ())
    result = b.Transpose(columns, perm=[*range(1, rank), 0])
    return result, first_true(b, b.Not(b.Greater(squares, 0)))
