"""Elements several times: expand, repeat, grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import (
    Size,
    along,
    axis_of,
    common_sizes,
    expanded,
    is_complex,
    kept_complex,
    moves,
    rank,
    sizes_of,
    times,
)  # fmt: skip
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.seams.operators import aten

__all__ = ["grid", "repeated_places"]


@moves(aten.expand.default, aten.expand_copy.default)
def expand(b: Block, x: ir.Value, size: Sequence[Size], implicit: bool = False) -> ir.Value:
    lead = len(size) - rank(x)
    kept = [isinstance(s, int) and s == -1 for s in size]
    sizes = [b.dim(x, i - lead) if keep else size[i] for i, keep in enumerate(kept)]
    return expanded(b, x, sizes)


@moves(aten.broadcast_to.default)
def broadcast_to(b: Block, x: ir.Value, size: Sequence[Size]) -> ir.Value:
    return expand(b, x, size)


@moves(aten.expand_as.default)
def expand_as(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return expanded(b, x, sizes_of(b, other))


@moves(aten.broadcast_tensors.default)
def broadcast_tensors(b: Block, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    sizes = common_sizes(b, *tensors)
    return [expanded(b, x, sizes) for x in tensors]


@moves(aten.repeat.default)
def repeat(b: Block, x: ir.Value, repeats: Sequence[Size]) -> ir.Value:
    missing = len(repeats) - rank(x)
    once = [isinstance(count, int) and count == 1 for count in repeats]
    pair = [1] if is_complex(x) else []
    if missing:
        x = b.Unsqueeze(x, list(range(missing)))
    return x if all(once) else b.Tile(x, b.vector([*repeats, *pair]))


@moves(aten.tile.default)
def tile(b: Block, x: ir.Value, dims: Sequence[Size]) -> ir.Value:
    return repeat(b, x, [*[1] * (rank(x) - len(dims)), *dims])


# Each element --------------------------------------------------------------------------------


@moves(aten.repeat_interleave.self_int)
def repeat_interleave(
    b: Block, x: ir.Value, repeats: Size, dim: int | None = None, output_size: Any = None
) -> ir.Value:
    if dim is None or rank(x) == 0:
        x, dim = flat(b, x), 0
    axis, sizes = axis_of(x, dim), sizes_of(b, x)
    if isinstance(repeats, int) and repeats == 1:
        return x
    if sizes[axis] == 1:
        return expanded(b, x, [*sizes[:axis], repeats, *sizes[axis + 1 :]])
    row = kept_complex(x, b.Unsqueeze(x, [axis + 1]))
    several = expanded(b, row, [*sizes[: axis + 1], repeats, *sizes[axis + 1 :]])
    return reshaped(
        b, several, [*sizes[:axis], times(b, sizes[axis], repeats), *sizes[axis + 1 :]]
    )


@moves(aten.repeat_interleave.self_Tensor)
def repeat_interleave_tensor(
    b: Block, x: ir.Value, repeats: ir.Value, dim: int | None = None, output_size: Any = None
) -> ir.Value:
    if dim is None or rank(x) == 0:
        x, dim = flat(b, x), 0
    axis = axis_of(x, dim)
    places = repeated_places(b, expanded(b, repeats, [b.dim(x, axis)]))
    return b.Gather(x, places, axis=axis)


def repeated_places(b: Block, repeats: ir.Value) -> ir.Value:
    """0 as often as ``repeats[0]`` says, then 1 … as int64 of shape [sum of repeats]."""
    repeats = b.cast(repeats, ir.DataType.INT64)
    most = b.ReduceMax(b.Concat(repeats, [0], axis=0))
    counted = b.Less(b.Range(0, b.Reshape(most, b.constant([], torch.int64)), 1),
                     b.Unsqueeze(repeats, [1]))  # fmt: skip
    return b.Gather(b.NonZero(counted), 0, axis=0)


@lowers(aten.repeat_interleave.Tensor)
def repeat_interleave_places(b: Block, repeats: ir.Value, output_size: Any = None) -> ir.Value:
    return repeated_places(b, repeats)


# Grids ---------------------------------------------------------------------------------------


def grid(b: Block, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    """Each vector along an axis of its own, the same along the others."""
    vectors = [reshaped(b, x, [1]) if rank(x) == 0 else x for x in tensors]
    sizes = [b.dim(x, 0) for x in vectors]
    count = len(vectors)
    return [expanded(b, along(b, x, axis, count), sizes) for axis, x in enumerate(vectors)]


@lowers(aten.meshgrid.default)
def meshgrid(b: Block, tensors: Sequence[ir.Value]) -> list[ir.Value]:
    return grid(b, tensors)


@lowers(aten.meshgrid.indexing)
def meshgrid_indexing(
    b: Block, tensors: Sequence[ir.Value], indexing: str = "ij"
) -> list[ir.Value]:
    if indexing == "ij" or len(tensors) < 2:
        return grid(b, tensors)
    order = [1, 0, *range(2, len(tensors))]
    made = grid(b, [tensors[place] for place in order])
    return [made[place] for place in order]


@lowers(aten.cartesian_prod.default)
def cartesian_prod(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    if len(tensors) == 1:
        return tensors[0]
    columns = [b.Reshape(x, [-1, 1]) for x in grid(b, tensors)]
    return b.Concat(*columns, axis=1)
