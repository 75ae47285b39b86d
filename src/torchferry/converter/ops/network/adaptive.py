"""Pooling to a given size: window ``i`` of ``n`` reads ``floor(i·L/n)`` to ``ceil((i+1)·L/n)``.

Where the size is a multiple of the wanted one, that is plain pooling. Elsewhere, and where the
size is known only as the model runs, each axis is gathered into its windows in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.windows import arange, batched, lowest, max_pool, unbatched
from torchferry.converter.ops.reduce.reduction import extreme
from torchferry.seams.operators import aten

__all__: list[str] = []

Size = int | ir.Value

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


@dataclass(frozen=True)
class _Bins:
    """The windows of one axis.

    Attributes:
        indices: what each reads, int64 [out, widest]; what is too much repeats the last element.
        valid: which of them count, bool [out, widest]; ``None`` when all do.
        starts: where each begins, int64 [out].
        counts: how many count, int64 [out].
        width: how many each reads.
    """

    indices: ir.Value
    valid: ir.Value | None
    starts: ir.Value
    counts: ir.Value
    width: Size


def _bins(b: Block, size: Size, out: Size) -> _Bins:
    if isinstance(size, int) and isinstance(out, int):
        steps = np.arange(out)
        starts, ends = steps * size // out, -(-(steps + 1) * size // out)
        width = int((ends - starts).max(initial=0))
        places = starts[:, None] + np.arange(width)
        valid = places < ends[:, None]
        return _Bins(
            b.constant(np.minimum(places, max(size - 1, 0))),
            None if valid.all() else b.constant(valid),
            b.constant(starts), b.constant(ends - starts), width,
        )  # fmt: skip
    steps_now = arange(b, out)
    first = b.Mul(steps_now, size)
    starts_now = b.Div(first, out)
    ends_now = b.Div(b.Add(first, _plus(b, size, out)), out)
    counts = b.Sub(ends_now, starts_now)
    width_now = b.ReduceMax(counts, [0])
    places_now = b.Add(b.Unsqueeze(starts_now, [1]), arange(b, width_now))
    last = size - 1 if isinstance(size, int) else b.Sub(size, 1)
    return _Bins(
        b.Min(places_now, last), b.Less(places_now, b.Unsqueeze(ends_now, [1])),
        starts_now, counts, width_now,
    )  # fmt: skip


def _plus(b: Block, size: Size, out: Size) -> Size:
    """``size + out - 1``: added to ``i * size`` it makes the division round upwards."""
    if isinstance(out, int):
        return size + out - 1 if isinstance(size, int) else b.Add(size, out - 1)
    return b.Add(b.Sub(out, 1), size)


def _sizes(b: Block, x: ir.Value, output_size: Sequence[Size | None]) -> list[tuple[int, Size]]:
    """Each spatial axis and the size it is to have."""
    rank, count = len(x.shape or ()), len(output_size)
    axes = range(rank - count, rank)
    return [
        (axis, b.dim(x, axis) if size is None else size)
        for axis, size in zip(axes, output_size, strict=True)
    ]


def _plain(b: Block, x: ir.Value, wanted: list[tuple[int, Size]]) -> list[int] | None:
    """The kernel of a plain pool that does the same, which is also its stride."""
    kernel = []
    for axis, out in wanted:
        size = b.dim(x, axis)
        if not isinstance(size, int) or not isinstance(out, int) or not out or size % out:
            return None
        kernel.append(size // out)
    return kernel if x.dtype in _FLOATS and all(kernel) else None


def _spread(b: Block, x: ir.Value, value: ir.Value, axis: int) -> ir.Value:
    """A value of one window's axes, to be used beside ``x`` where they stand at ``axis``."""
    behind = len(x.shape or ()) - axis - 1
    return b.Unsqueeze(value, [*range(-behind, 0)]) if behind > 0 else value


def _seen(b: Block, x: ir.Value, axis: int, bins: _Bins, filler: Any) -> ir.Value:
    """``x`` with ``axis`` replaced by [out, window]."""
    gathered = b.Gather(x, bins.indices, axis=axis)
    if bins.valid is None:
        return gathered
    return b.Where(_spread(b, x, bins.valid, axis), gathered, b.constant(filler, x))


# Average -------------------------------------------------------------------------------------


@lowers(
    aten.adaptive_avg_pool1d.default, aten.adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default,
    aten._adaptive_avg_pool3d.default,
)  # fmt: skip
def adaptive_avg_pool(b: Block, x: ir.Value, output_size: Sequence[Size]) -> ir.Value:
    wanted = _sizes(b, x, output_size)
    if all(_is(out, 1) for _, out in wanted):
        return b.ReduceMean(x, b.constant([axis for axis, _ in wanted]))
    kernel = _plain(b, x, wanted)
    if kernel is not None:
        x, alone = batched(b, x, len(kernel))
        return unbatched(b, b.AveragePool(x, kernel_shape=kernel, strides=kernel), alone)
    for axis, out in wanted:
        if _is(out, 1):
            x = b.ReduceMean(x, [axis])
        elif b.dim(x, axis) is not out and not _same(b.dim(x, axis), out):
            bins = _bins(b, b.dim(x, axis), out)
            seen = _seen(b, x, axis, bins, 0)
            if bins.valid is None:
                x = b.ReduceMean(seen, [axis + 1], keepdims=0)
            else:
                count = _spread(b, x, b.cast(bins.counts, x), axis)
                x = b.Div(b.ReduceSum(seen, [axis + 1], keepdims=0), count)
    return x


def _is(size: Size, value: int) -> bool:
    return isinstance(size, int) and size == value


def _same(size: Size, other: Size) -> bool:
    return isinstance(size, int) and isinstance(other, int) and size == other


# Maximum -------------------------------------------------------------------------------------


@lowers(
    aten.adaptive_max_pool1d.default, aten.adaptive_max_pool2d.default,
    aten.adaptive_max_pool3d.default,
)  # fmt: skip
def adaptive_max_pool(
    b: Block, x: ir.Value, output_size: Sequence[Size]
) -> tuple[ir.Value, ir.Value]:
    wanted = _sizes(b, x, output_size)

    @cache
    def bins(axis: int) -> _Bins:
        return _bins(b, b.dim(x, axis), dict(wanted)[axis])

    values, least = x, lowest(x.dtype)
    kernel = _plain(b, x, wanted)
    if kernel is not None:
        planes, alone = batched(b, x, len(kernel))
        values = unbatched(b, max_pool(b, planes, kernel, kernel), alone)
    else:
        for axis, out in wanted:
            if _is(out, 1):
                values = extreme(b, "ReduceMax", values, [axis], keepdim=True)
            else:
                seen = _seen(b, values, axis, bins(axis), least)
                values = extreme(b, "ReduceMax", seen, [axis + 1])
    # Whoever does not ask for the indices does not get their nodes: what is unused is removed.
    return values, _places(b, x, [axis for axis, _ in wanted], [bins(axis) for axis, _ in wanted])


def _places(b: Block, x: ir.Value, axes: list[int], bins: list[_Bins]) -> ir.Value:
    """Where in its plane the first maximum of each window is."""
    count, kept = len(axes), axes[0]
    seen = x
    for axis, each in reversed(list(zip(axes, bins, strict=True))):
        seen = _seen(b, seen, axis, each, lowest(x.dtype))
    order = [*range(kept), *range(kept, kept + 2 * count, 2)]
    order += range(kept + 1, kept + 2 * count, 2)
    turned = b.Transpose(seen, perm=order) if count > 1 else seen
    sizes = [b.dim(x, axis) for axis in range(kept)] + [_length(b, each.starts) for each in bins]
    place = b.ArgMax(b.Reshape(turned, b.vector([*sizes, -1])), axis=-1, keepdims=0)
    flat: Any = None
    scale: Any = 1
    for position in reversed(range(count)):
        each = bins[position]
        offset = place
        if position:
            offset, place = b.Mod(place, each.width), b.Div(place, each.width)
        starts = each.starts
        if position < count - 1:
            starts = b.Unsqueeze(starts, [*range(1, count - position)])
        term = b.Add(offset, starts)
        term = term if _is(scale, 1) else b.Mul(term, scale)
        flat = term if flat is None else b.Add(flat, term)
        size = b.dim(x, axes[position])
        scale = size if _is(scale, 1) else _times(b, scale, size)
    return flat


def _length(b: Block, vector: ir.Value) -> Size:
    return b.dim(vector, 0)


def _times(b: Block, x: Size, y: Size) -> Size:
    return x * y if isinstance(x, int) and isinstance(y, int) else b.Mul(x, y)
