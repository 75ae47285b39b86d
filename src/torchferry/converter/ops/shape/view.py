"""The same elements in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.ops.shape.axes import (
    Size,
    axis_of,
    is_complex,
    kept_complex,
    moves,
    rank,
    sized,
    sizes_of,
    times,
)  # fmt: skip
from torchferry.converter.requirement import required
from torchferry.converter.write.dimension import is_data_dependent
from torchferry.seams.operators import aten

__all__ = ["at_least", "flat", "reshaped"]


def reshaped(b: Block, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """``x`` in the shape ``sizes`` (ints, -1 among them, and int64 values of shape [1]).

    A symbolic size that ``x`` has at the same axis is written 0, which copies it, so that most
    shapes are constants. Where that does not suffice, a 0 is a size: a symbolic one may be 0 when
    the model runs. -1 is written for what is left only where the others cannot be 0:
    onnxruntime refuses to infer a size beside an empty axis.
    """
    sizes = _inferred(b, x, list(sizes))
    pair = [2] if is_complex(x) else []
    if x.shape is not None and [*sizes, *pair] == list(x.shape):
        return x
    known = [
        0 if isinstance(size, ir.Value) and _copied(b, x, size, place) else size
        for place, size in enumerate(sizes)
    ]
    values = [place for place, size in enumerate(known) if isinstance(size, ir.Value)]
    if len(values) == 1 and all(isinstance(size, ir.Value) or size > 0 for size in known):
        known[values[0]], values = -1, []
    empty = any(isinstance(size, int) and size == 0 for size in sizes)
    literal = empty or (bool(values) and -1 not in [s for s in sizes if isinstance(s, int)])
    shape = b.vector([*(sizes if literal else known), *pair])
    return sized(x, b.Reshape(x, shape, allowzero=1 if literal else None), sizes)


def _copied(b: Block, x: ir.Value, size: ir.Value, place: int) -> bool:
    return x.shape is not None and place < rank(x) and b.dim(x, place) is size


def _inferred(b: Block, x: ir.Value, sizes: list[Size]) -> list[Size]:
    """``sizes`` with the number that -1 stands for, where it can be told.

    Beside another symbolic size it is computed, since that one may be zero.
    """
    places = [place for place, size in enumerate(sizes) if isinstance(size, int) and size == -1]
    if not places or x.shape is None:
        return sizes
    left = sizes_of(b, x)
    others = [size for place, size in enumerate(sizes) if place != places[0]]
    for size in others:
        if isinstance(size, ir.Value):
            found = next((i for i, other in enumerate(left) if other is size), None)
            if found is None:
                return sizes
            del left[found]
    number, divisor = (
        prod(size for size in all_sizes if isinstance(size, int)) for all_sizes in (left, others)
    )
    symbolic = [size for size in left if isinstance(size, ir.Value)]
    computed = not symbolic or any(isinstance(size, ir.Value) for size in others)
    if computed and divisor and number % divisor == 0:
        sizes[places[0]] = times(b, *symbolic, number // divisor)
    return sizes


def flat(b: Block, x: ir.Value) -> ir.Value:
    """All elements along one axis."""
    return x if rank(x) == 1 else reshaped(b, x, [-1])


@moves(aten.view.default, aten.reshape.default, aten._unsafe_view.default, aten.view_copy.default)
def view(b: Block, x: ir.Value, size: Sequence[Size]) -> ir.Value:
    return reshaped(b, x, size)


@moves(aten.view_as.default, aten.reshape_as.default)
def view_as(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return reshaped(b, x, sizes_of(b, other))


@moves(aten.ravel.default)
def ravel(b: Block, x: ir.Value) -> ir.Value:
    return flat(b, x)


@moves(aten.flatten.using_ints)
def flatten(b: Block, x: ir.Value, start_dim: int = 0, end_dim: int = -1) -> ir.Value:
    first, last = axis_of(x, start_dim), axis_of(x, end_dim)
    if rank(x) == 0:
        return reshaped(b, x, [1])
    if first == 1 < last == rank(x) - 1 and not is_complex(x):
        return b.Flatten(x, axis=1)
    sizes = sizes_of(b, x)
    return reshaped(b, x, [*sizes[:first], times(b, *sizes[first : last + 1]), *sizes[last + 1 :]])


@moves(aten.unflatten.int)
def unflatten(b: Block, x: ir.Value, dim: int, sizes: Sequence[Size]) -> ir.Value:
    axis, whole = axis_of(x, dim), sizes_of(b, x)
    return reshaped(b, x, [*whole[:axis], *sizes, *whole[axis + 1 :]])


# Axes of one element -------------------------------------------------------------------------


def _squeezed(b: Block, x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Without those of the axes that are 1; a symbolic size is not, or it would be a constant.

    No call is accepted in which a size of an input would be; one that depends on data is tested.
    """
    shape = [] if x.shape is None else [*x.shape]
    for axis in axes if shape else ():
        if is_data_dependent(shape[axis]):
            more = b.Not(b.Equal(b.dim(x, axis), 1))
            x = required(b, x, more, "squeeze() takes away an axis whose size depends on data")
    gone = [axis for axis in axes if rank(x) and b.dim(x, axis) == 1]
    return kept_complex(x, b.Squeeze(x, gone)) if gone else x


@moves(aten.squeeze.default, aten.squeeze_copy.default)
def squeeze(b: Block, x: ir.Value) -> ir.Value:
    return _squeezed(b, x, range(rank(x)))


@moves(aten.squeeze.dim, aten.squeeze_copy.dim)
def squeeze_dim(b: Block, x: ir.Value, dim: int) -> ir.Value:
    return _squeezed(b, x, [axis_of(x, dim)])


@moves(aten.squeeze.dims, aten.squeeze_copy.dims)
def squeeze_dims(b: Block, x: ir.Value, dim: Sequence[int]) -> ir.Value:
    return _squeezed(b, x, [axis_of(x, axis) for axis in dim])


@moves(aten.unsqueeze.default, aten.unsqueeze_copy.default)
def unsqueeze(b: Block, x: ir.Value, dim: int) -> ir.Value:
    return b.Unsqueeze(x, [range(rank(x) + 1)[dim]])


def at_least(b: Block, x: ir.Value, axes: int) -> ir.Value:
    """``x`` with 1, 2 or 3 axes at least; the new ones are where PyTorch has them."""
    new = {1: [[0]], 2: [[0, 1], [0]], 3: [[0, 1, 2], [0, 2], [2]]}[axes]
    return kept_complex(x, b.Unsqueeze(x, new[rank(x)])) if rank(x) < axes else x


@moves(aten.atleast_1d.default)
def atleast_1d(b: Block, x: ir.Value) -> ir.Value:
    return at_least(b, x, 1)


@moves(aten.atleast_2d.default)
def atleast_2d(b: Block, x: ir.Value) -> ir.Value:
    return at_least(b, x, 2)


@moves(aten.atleast_3d.default)
def atleast_3d(b: Block, x: ir.Value) -> ir.Value:
    return at_least(b, x, 3)


@moves(aten.atleast_1d.Sequence)
def atleast_1d_sequence(b: Block, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    return [at_least(b, x, 1) for x in tensors]


@moves(aten.atleast_2d.Sequence)
def atleast_2d_sequence(b: Block, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    return [at_least(b, x, 2) for x in tensors]


@moves(aten.atleast_3d.Sequence)
def atleast_3d_sequence(b: Block, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    return [at_least(b, x, 3) for x in tensors]
