"""Elements in order: sort, topk, and those in the middle."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.index.index import vector
from torchferry.converter.ops.shape.axes import Size, axis_of, minus, rank
from torchferry.converter.ops.shape.view import flat
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__ = ["ordered"]

Pair = tuple[ir.Value, ir.Value]
DOUBLE, INT64 = ir.DataType.DOUBLE, ir.DataType.INT64
# onnxruntime's TopK has no kernel; the wider dtype has the same order
_WIDER = {
    ir.DataType.BOOL: ir.DataType.UINT8, ir.DataType.UINT16: ir.DataType.INT32,
    ir.DataType.UINT32: ir.DataType.INT64,
}  # fmt: skip


def ordered(b: Block, x: ir.Value, k: Size, axis: int, largest: bool, sort: bool = True) -> Pair:
    """The first ``k`` elements in order, and where they are; equal ones in the order they have.

    NaN counts as the greatest number. onnxruntime compares with it as with any other, which
    leaves no order: it sorts stand-ins among which NaN is infinity, and infinity a number that
    float32 does not reach.
    """
    count = k if isinstance(k, ir.Value) else b.constant([k])
    given: dict[str, Any] = {"axis": axis, "largest": int(largest), "sorted": int(sort)}
    if not is_floating(x):
        wide = b.cast(x, _WIDER.get(x.dtype, x.dtype)) if x.dtype is not None else x
        values, places = b.TopK(wide, count, outputs=2, **given)
        return b.cast(values, x), places
    beyond = 1e300 if x.dtype != DOUBLE else float(np.finfo(np.float64).max)
    finite = b.Min(b.cast(x, DOUBLE), b.constant(beyond, DOUBLE))
    stand_ins = b.Where(b.IsNaN(x), b.constant(np.inf, DOUBLE), finite)
    _, places = b.TopK(stand_ins, count, outputs=2, **given)
    places.shape = None
    return b.GatherElements(x, places, axis=axis), places


def _sorted(b: Block, x: ir.Value, dim: int, descending: bool) -> Pair:
    if rank(x) == 0:
        return x, b.constant(0)
    axis = axis_of(x, dim)
    return ordered(b, x, b.dim(x, axis), axis, descending)


@lowers(aten.sort.default)
def sort(b: Block, x: ir.Value, dim: int = -1, descending: bool = False) -> Pair:
    return _sorted(b, x, dim, descending)


@lowers(aten.sort.stable)
def sort_stable(
    b: Block, x: ir.Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Pair:
    return _sorted(b, x, dim, descending)


@lowers(aten.argsort.default)
def argsort(b: Block, x: ir.Value, dim: int = -1, descending: bool = False) -> ir.Value:
    return _sorted(b, x, dim, descending)[1]


@lowers(aten.argsort.stable)
def argsort_stable(
    b: Block, x: ir.Value, stable: bool = True, dim: int = -1, descending: bool = False
) -> ir.Value:
    return _sorted(b, x, dim, descending)[1]


@lowers(aten.msort.default)
def msort(b: Block, x: ir.Value) -> ir.Value:
    return _sorted(b, x, 0, False)[0]


@lowers(aten.topk.default)
def topk(
    b: Block, x: ir.Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Pair:
    if rank(x) == 0:
        return x, b.constant(0)
    return ordered(b, x, k, axis_of(x, dim), largest, sorted)


# One element ---------------------------------------------------------------------------------


def _at(b: Block, pair: Pair, place: Any, axis: int, keepdim: bool) -> Pair:
    """One of sorted elements: a place for all of them, or one each with an axis of 1."""
    if isinstance(place, ir.Value) and place.meta.get("each"):
        taken = [b.GatherElements(v, place, axis=axis) for v in pair]
        values, places = taken if keepdim else [b.Squeeze(v, [axis]) for v in taken]
        return values, places
    if keepdim:
        index = place if isinstance(place, ir.Value) else b.constant([place])
    else:
        index = b.scalar(place)
    return b.Gather(pair[0], index, axis=axis), b.Gather(pair[1], index, axis=axis)


def _each(place: ir.Value) -> ir.Value:
    place.meta["each"] = True
    return place


@lowers(aten.kthvalue.default)
def kthvalue(b: Block, x: ir.Value, k: Size, dim: int = -1, keepdim: bool = False) -> Pair:
    if rank(x) == 0:
        return x, b.constant(0)
    axis = axis_of(x, dim)
    return _at(b, ordered(b, x, k, axis, largest=False), minus(b, k, 1), axis, keepdim)


@lowers(aten.median.dim)
def median_dim(b: Block, x: ir.Value, dim: int, keepdim: bool = False) -> Pair:
    """The lower of the two in the middle; NaN where there is one, which is sorted first."""
    if rank(x) == 0:
        return x, b.constant(0)
    axis = axis_of(x, dim)
    size = b.dim(x, axis)
    place: Any = size // 2 if isinstance(size, int) else b.Div(size, [2])
    pair = ordered(b, x, size, axis, largest=True)
    if is_floating(x):
        first = b.Gather(pair[0], [0], axis=axis)
        place = _each(b.Where(b.IsNaN(first), b.constant([0]), place))
    return _at(b, pair, place, axis, keepdim)


@lowers(aten.nanmedian.dim)
def nanmedian_dim(b: Block, x: ir.Value, dim: int, keepdim: bool = False) -> Pair:
    if rank(x) == 0:
        return x, b.constant(0)
    if not is_floating(x):
        return median_dim(b, x, dim, keepdim)
    axis = axis_of(x, dim)
    numbers = b.cast(b.Not(b.IsNaN(x)), INT64)
    last = b.Sub(b.ReduceSum(numbers, [axis], keepdims=1), 1)
    place = _each(b.Div(b.Max(last, 0), 2))
    return _at(b, ordered(b, x, b.dim(x, axis), axis, largest=False), place, axis, keepdim)


@lowers(aten.median.default)
def median(b: Block, x: ir.Value) -> ir.Value:
    return _of_all(b, x, median_dim)


@lowers(aten.nanmedian.default)
def nanmedian(b: Block, x: ir.Value) -> ir.Value:
    return _of_all(b, x, nanmedian_dim)


def _of_all(b: Block, x: ir.Value, middle: Any) -> ir.Value:
    line = flat(b, vector(b, x))
    if b.dim(line, 0) == 0:
        return b.constant(np.nan, x)
    result: ir.Value = middle(b, line, 0)[0]
    return result


@lowers(aten.mode.default)
def mode(b: Block, x: ir.Value, dim: int = -1, keepdim: bool = False) -> Pair:
    """The most frequent element, the least of several, and the last place of it."""
    if rank(x) == 0:
        return x, b.constant(0)
    axis = axis_of(x, dim)
    values, places = ordered(b, x, b.dim(x, axis), axis, largest=False)
    order = [place for place in range(rank(x)) if place != axis] + [axis]
    lines = b.Transpose(values, perm=order)
    wide = b.cast(lines, ir.DataType.UINT8) if x.dtype == ir.DataType.BOOL else lines
    alike = b.cast(b.Equal(b.Unsqueeze(wide, [-1]), b.Unsqueeze(wide, [-2])), INT64)
    counts = b.ReduceSum(alike, [-1], keepdims=0)
    first = b.ArgMax(counts, axis=-1, keepdims=1)
    # NaN is not equal to itself, and counted once all the same
    most = b.Max(b.GatherElements(counts, first, axis=-1), 1)
    last = b.Sub(b.Add(first, most), 1)
    lines_of_places = b.Transpose(places, perm=order)
    found = [b.GatherElements(v, last, axis=-1) for v in (lines, lines_of_places)]
    back = [order.index(place) for place in range(rank(x))]
    kept = [b.Transpose(v, perm=back) for v in found]
    value, place = kept if keepdim else [b.Squeeze(v, [axis]) for v in kept]
    return value, place
