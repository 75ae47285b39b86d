"""Reductions of the stretches of an axis that lengths or offsets mark."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.index.scatter import scatter_reduce
from torchferry.converter.ops.shape.axes import axis_of, expanded, plus, rank, sizes_of, steps
from torchferry.seams.operators import aten

__all__: list[str] = []

_INFINITY = float("inf")
# The reduction, and what a stretch of nothing gives.
_KINDS = {
    "sum": ("sum", 0.0), "mean": ("sum", 0.0), "prod": ("prod", 1.0),
    "max": ("amax", -_INFINITY), "min": ("amin", _INFINITY),
}  # fmt: skip


@lowers(aten.segment_reduce.default)
def segment_reduce(
    b: Block,
    data: ir.Value,
    reduce: str,
    lengths: ir.Value | None = None,
    indices: ir.Value | None = None,
    offsets: ir.Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> ir.Value:
    """Source: aten/src/ATen/native/SegmentReduce.cpp."""
    axis = axis_of(data, axis)
    starts, ends = _bounds(b, lengths, offsets)
    count = b.dim(ends, -1)
    sizes = sizes_of(b, data)
    # what lies in no stretch goes to one more, which is cut off
    places = b.Unsqueeze(steps(b, 0, sizes[axis]), [1])
    passed = b.LessOrEqual(b.Unsqueeze(ends, [-2]), places)
    segment = b.ReduceSum(b.cast(passed, ir.DataType.INT64), [-1], keepdims=0)
    outside = b.Less(b.Squeeze(places, [1]), b.Slice(starts, [0], [1], [-1]))
    last = count if isinstance(count, ir.Value) else b.constant([count])
    segment = b.Where(outside, last, segment)
    index = expanded(b, _behind(b, segment, data, axis), sizes)
    kind, nothing = _KINDS[reduce]
    start = b.constant(nothing if initial is None else initial, data)
    room = b.vector([*sizes[:axis], plus(b, count, 1), *sizes[axis + 1 :]])
    room_filled = b.Expand(start, room)
    room_filled.shape = ir.Shape([None] * rank(data))
    made = scatter_reduce(b, room_filled, axis, index, data, kind)
    made = b.Slice(made, [0], last, [axis])
    return _averaged(b, made, starts, ends, axis, initial) if reduce == "mean" else made


def _bounds(
    b: Block, lengths: ir.Value | None, offsets: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """Where each stretch starts and ends, int64 ``[..., n]``."""
    if offsets is not None:
        marks = b.cast(offsets, ir.DataType.INT64)
        return b.Slice(marks, [0], [-1], [-1]), b.Slice(marks, [1], [2**63 - 1], [-1])
    if lengths is None:
        raise ValueError("it is given neither lengths nor offsets")
    many = b.cast(lengths, ir.DataType.INT64)
    ends = b.CumSum(many, b.constant(rank(lengths) - 1))
    return b.Sub(ends, many), ends


def _behind(b: Block, x: ir.Value, data: ir.Value, axis: int) -> ir.Value:
    """``x``, which has the axes of ``data`` up to one, with an axis of size 1 for each other."""
    more = rank(data) - axis - 1
    return b.Unsqueeze(x, list(range(axis + 1, axis + 1 + more))) if more else x


def _averaged(
    b: Block, sums: ir.Value, starts: ir.Value, ends: ir.Value, axis: int, initial: Any
) -> ir.Value:
    """Sums divided by the lengths; of a stretch of nothing the start value, or NaN."""
    lengths = _behind(b, b.Sub(ends, starts), sums, axis)
    empty = b.Equal(lengths, 0)
    mean = b.Div(sums, b.cast(b.Where(empty, 1, lengths), sums))
    return mean if initial is not None else b.Where(empty, b.constant(float("nan"), sums), mean)
