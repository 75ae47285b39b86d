"""Elements by their places: indexing in all its forms, gather, take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.ops.shape.axes import (
    axis_of,
    common_sizes,
    expanded,
    is_complex,
    kept_complex,
    moves,
    rank,
    same_size,
    sizes_of,
    times,
)  # fmt: skip
from torchferry.converter.ops.shape.permute import permuted
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.seams.operators import aten

__all__ = ["Places", "is_mask", "paired", "places_of", "restored", "true_places", "vector"]

BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64


def is_mask(index: ir.Value) -> bool:
    """Whether an index says for each element if it is taken."""
    return index.dtype in (BOOL, ir.DataType.UINT8)


def true_places(b: Block, mask: ir.Value) -> ir.Value:
    """The coordinates of the elements that are true, int64 of shape [rank, n]."""
    return b.NonZero(b.cast(vector(b, mask), BOOL))


def vector(b: Block, x: ir.Value) -> ir.Value:
    """``x`` with one axis at least."""
    return reshaped(b, x, [1]) if rank(x) == 0 else x


@dataclass(frozen=True)
class Places:
    """Where in a tensor several indices point to, together.

    Attributes:
        order: the axes of the tensor, the indexed ones first.
        indices: their indices, int64 and of one shape.
        front: how many axes of what is taken stand before those of the indices: PyTorch puts the
            axes of the indices where they are, if they stand side by side, and first otherwise.
    """

    order: list[int]
    indices: list[ir.Value]
    front: int

    def matrix(self, b: Block) -> ir.Value:
        """The coordinates, [*shape of the indices, number of indexed axes]."""
        if len(self.indices) == 1:
            return b.Unsqueeze(self.indices[0], [-1])
        return b.Concat(*(b.Unsqueeze(index, [-1]) for index in self.indices), axis=-1)

    def taken(self) -> list[int]:
        """The order of axes that brings what is taken first back to where PyTorch has it."""
        count = rank(self.indices[0])
        rest = len(self.order) - len(self.indices)
        axes = list(range(count, count + rest))
        return [*axes[: self.front], *range(count), *axes[self.front :]]


def places_of(b: Block, x: ir.Value, indices: Sequence[ir.Value | None]) -> Places:
    """Understand the indices of ``x``: None is a whole axis, a mask stands for its axes."""
    indexed: dict[int, ir.Value] = {}
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif is_mask(index) and rank(index):
            found = true_places(b, index)
            for place in range(rank(index)):
                indexed[axis + place] = _row(b, found, place)
            axis += rank(index)
        elif is_mask(index):
            raise ValueError("a mask without axes, give it one with mask[None]")
        else:
            indexed[axis] = b.cast(index, INT64)
            axis += 1
    values = list(indexed.values())
    if len({str(value.shape) for value in values}) > 1:
        sizes = common_sizes(b, *values)
        values = [expanded(b, value, sizes) for value in values]
    order = [*indexed, *(place for place in range(rank(x)) if place not in indexed)]
    return Places(order, values, order[0] if _contiguous(indices) else 0)


def _row(b: Block, found: ir.Value, place: int) -> ir.Value:
    row: ir.Value = b.Gather(found, place, axis=0)
    row.shape = ir.Shape([ir.SymbolicDim(None)])
    return row


def _contiguous(indices: Sequence[ir.Value | None]) -> bool:
    given = [place for place, index in enumerate(indices) if index is not None]
    return given == list(range(given[0], given[0] + len(given)))


def restored(order: Sequence[int]) -> list[int]:
    """The order of axes that undoes another."""
    return [list(order).index(axis) for axis in range(len(order))]


# Taking --------------------------------------------------------------------------------------


@moves(aten.index.Tensor, aten._unsafe_index.Tensor)
def index(b: Block, x: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
    given = [(place, one) for place, one in enumerate(indices) if one is not None]
    if not given:
        return x
    if len(given) == 1:
        axis, only = given[0]
        if not is_mask(only):
            return b.Gather(x, only, axis=axis)
        if rank(only) and not is_complex(x):
            return _masked(b, x, axis, only)
    places = places_of(b, x, indices)
    found = kept_complex(x, b.GatherND(permuted(b, x, places.order), places.matrix(b)))
    return permuted(b, found, places.taken())


def _masked(b: Block, x: ir.Value, axis: int, mask: ir.Value) -> ir.Value:
    """What one mask leaves of its axes, as one axis."""
    mask = b.cast(mask, BOOL)
    if rank(mask) == rank(x) and axis == 0:
        return b.Compress(x, flat(b, mask))
    if rank(mask) > 1 and axis == 0:
        return b.GatherND(x, b.Transpose(b.NonZero(mask), perm=[1, 0]))
    if rank(mask) > 1:
        sizes = sizes_of(b, x)
        inner = sizes[axis : axis + rank(mask)]
        rest = [*sizes[:axis], times(b, *inner), *sizes[axis + rank(mask) :]]
        return b.Compress(reshaped(b, x, rest), flat(b, mask), axis=axis)
    return b.Compress(x, mask, axis=axis)


@moves(aten.index_select.default)
def index_select(b: Block, x: ir.Value, dim: int, index: ir.Value) -> ir.Value:
    if rank(x) == 0:
        return x
    return b.Gather(x, vector(b, index), axis=axis_of(x, dim))


@moves(aten.take.default)
def take(b: Block, x: ir.Value, index: ir.Value) -> ir.Value:
    return b.Gather(flat(b, x), index, axis=0)


def paired(b: Block, x: ir.Value, index: ir.Value) -> ir.Value:
    """An index for every number of ``x``, for both parts of each where they are complex."""
    if not is_complex(x):
        return index
    return b.Expand(b.Unsqueeze(index, [-1]), b.vector([*sizes_of(b, index), 2]))


def _elements(b: Block, x: ir.Value, index: ir.Value, axis: int) -> ir.Value:
    return kept_complex(x, b.GatherElements(x, paired(b, x, index), axis=axis))


@moves(aten.gather.default)
def gather(
    b: Block, x: ir.Value, dim: int, index: ir.Value, sparse_grad: bool = False
) -> ir.Value:
    if rank(index) == 0 or rank(x) == 0:
        found = _elements(b, vector(b, x), vector(b, index), 0)
        return found if rank(index) else reshaped(b, found, [])
    return _elements(b, x, index, axis_of(x, dim))


@moves(aten.take_along_dim.default)
def take_along_dim(b: Block, x: ir.Value, indices: ir.Value, dim: int | None = None) -> ir.Value:
    if dim is None:
        return _elements(b, flat(b, x), flat(b, indices), 0)
    axis = axis_of(x, dim)
    if _alike_but(x, indices, axis):
        return _elements(b, x, indices, axis)
    sizes = common_sizes(b, x, indices)
    alike = [
        expanded(b, v, [*sizes[:axis], b.dim(v, axis), *sizes[axis + 1 :]]) for v in (x, indices)
    ]
    return _elements(b, alike[0], alike[1], axis)


def _alike_but(x: ir.Value, y: ir.Value, axis: int) -> bool:
    pairs: Any = zip(x.shape or (), y.shape or (), strict=False)  # complex: one axis more
    return all(place == axis or same_size(*pair) for place, pair in enumerate(pairs))
