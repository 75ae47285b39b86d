"""Parts of a tensor along an axis, and a tensor with such a part replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.ops.shape.axes import (
    Size,
    along,
    axis_of,
    kept_complex,
    minus,
    moves,
    plus,
    rank,
    sizes_of,
    steps,
)  # fmt: skip
from torchferry.converter.ops.shape.permute import swapped
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.seams.operators import aten

__all__ = ["part"]

_FIRST, _LAST = -(2**63), 2**63 - 1


def part(
    b: Block, x: ir.Value, axis: int, start: Size | None, end: Size | None, step: Size = 1
) -> ir.Value:
    """``x[start:end:step]`` along an axis, with Python's negative and excessive bounds."""
    first: Size = 0 if start is None else start
    last: Size = _LAST if end is None else end
    size = b.dim(x, axis)
    whole = last >= (size if isinstance(size, int) else _LAST) if isinstance(last, int) else (
        last is size
    )  # fmt: skip
    if isinstance(first, int) and first == 0 and whole and isinstance(step, int) and step == 1:
        return x
    bounds: list[Any] = [v if isinstance(v, ir.Value) else [v] for v in (first, last)]
    stride: list[Any] = [] if isinstance(step, int) and step == 1 else [
        step if isinstance(step, ir.Value) else [step]
    ]  # fmt: skip
    return kept_complex(x, b.Slice(x, *bounds, [axis], *stride))


@moves(aten.slice.Tensor, aten.slice_copy.Tensor)
def slice(
    b: Block,
    x: ir.Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> ir.Value:
    return part(b, x, axis_of(x, dim), start, end, step)


@moves(aten.select.int, aten.select_copy.int)
def select(b: Block, x: ir.Value, dim: int, index: Size) -> ir.Value:
    return b.Gather(x, b.scalar(index), axis=axis_of(x, dim))


@moves(aten.narrow.default, aten.narrow_copy.default)
def narrow(b: Block, x: ir.Value, dim: int, start: Size, length: Size) -> ir.Value:
    end: Size | None = plus(b, start, length)
    if isinstance(start, int) and start < 0 and isinstance(end, int) and end >= 0:
        end = None
    return part(b, x, axis_of(x, dim), start, end)


# Turned around -------------------------------------------------------------------------------


@moves(aten.flip.default)
def flip(b: Block, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    axes = [axis_of(x, dim) for dim in dims] if rank(x) else []
    if not axes:
        return x
    count = len(axes)
    turned = b.Slice(x, [-1] * count, [_FIRST] * count, axes, [-1] * count)
    return kept_complex(x, turned)


@moves(aten.fliplr.default)
def fliplr(b: Block, x: ir.Value) -> ir.Value:
    return flip(b, x, [1])


@moves(aten.flipud.default)
def flipud(b: Block, x: ir.Value) -> ir.Value:
    return flip(b, x, [0])


@moves(aten.rot90.default)
def rot90(b: Block, x: ir.Value, k: int = 1, dims: Sequence[int] = (0, 1)) -> ir.Value:
    first, second = (axis_of(x, dim) for dim in dims)
    quarters = k % 4
    if quarters == 0:
        return x
    if quarters == 2:
        return flip(b, x, [first, second])
    return swapped(b, flip(b, x, [second if quarters == 1 else first]), first, second)


@moves(aten.roll.default)
def roll(b: Block, x: ir.Value, shifts: Sequence[Size], dims: Sequence[int] = ()) -> ir.Value:
    if not dims:
        rolled = _rolled(b, flat(b, x), shifts[0], 0)
        return reshaped(b, rolled, sizes_of(b, x)) if rank(x) != 1 else rolled
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(b, x, shift, axis_of(x, dim))
    return x


def _rolled(b: Block, x: ir.Value, shift: Size, axis: int) -> ir.Value:
    size = b.dim(x, axis)
    if isinstance(size, int) and isinstance(shift, int):
        if size == 0 or shift % size == 0:
            return x
        start: Size = -shift % size
    else:  # an axis of no element is not divided by
        start = b.Mod(minus(b, 0, shift), _one_at_least(b, size))
    ends = [part(b, x, axis, start, None), part(b, x, axis, None, start)]
    return kept_complex(x, b.Concat(*ends, axis=axis))


def _one_at_least(b: Block, size: Size) -> ir.Value:
    return b.Max(size, [1]) if isinstance(size, ir.Value) else b.constant([max(size, 1)])


# Windows -------------------------------------------------------------------------------------


@moves(aten.unfold.default, aten.unfold_copy.default)
def unfold(b: Block, x: ir.Value, dimension: int, size: int, step: int) -> ir.Value:
    axis = axis_of(x, dimension)
    if rank(x) == 0:
        return part(b, reshaped(b, x, [1]), 0, 0, size)
    starts = steps(b, 0, plus(b, b.dim(x, axis), 1 - size), step)
    places = b.Add(b.Unsqueeze(starts, [1]), steps(b, 0, size))
    windows = b.Gather(x, places, axis=axis)
    order = [*range(axis + 1), *range(axis + 2, rank(x) + 1), axis + 1]
    if order == sorted(order):
        return windows
    return b.Transpose(windows, perm=[*order, *([len(order)] if x.meta.get("complex") else [])])


# With a part replaced ------------------------------------------------------------------------


@moves(aten.slice_scatter.default)
def slice_scatter(
    b: Block,
    x: ir.Value,
    src: ir.Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> ir.Value:
    axis = axis_of(x, dim)
    src = b.cast(src, x)
    if b.dim(src, axis) == 0:
        return x
    if isinstance(step, int) and step == 1:
        return _between(b, x, src, axis, start, end)
    if x.meta.get("complex"):
        raise ValueError("a slice with a step of complex numbers, write it with view_as_real")
    places = part(b, steps(b, 0, b.dim(x, axis)), 0, start, end, step)
    rows = b.Expand(along(b, places, axis, rank(x)), b.shape(src))
    return b.ScatterElements(x, rows, src, axis=axis)


def _between(
    b: Block, x: ir.Value, src: ir.Value, axis: int, start: Size | None, end: Size | None
) -> ir.Value:
    """``src`` and what ``x`` has before and after."""
    size = b.dim(x, axis)
    parts = [src]
    if not (start is None or (isinstance(start, int) and start == 0)):
        parts.insert(0, part(b, x, axis, None, start))
    excess = isinstance(end, int) and end >= (size if isinstance(size, int) else _LAST)
    if not (end is None or excess or end is size):
        parts.append(part(b, x, axis, end, None))
    return src if len(parts) == 1 else b.Concat(*parts, axis=axis)


@moves(aten.select_scatter.default)
def select_scatter(b: Block, x: ir.Value, src: ir.Value, dim: int, index: Size) -> ir.Value:
    axis = axis_of(x, dim)
    row = kept_complex(src, b.Unsqueeze(b.cast(src, x), [axis]))
    if isinstance(index, ir.Value):  # after the last element, which -1 is, nothing follows
        end: Size | None = b.Where(b.Equal(index, -1), _LAST, b.Add(index, [1]))
    else:
        end = None if index == -1 else index + 1
    return _between(b, x, row, axis, index, end)
