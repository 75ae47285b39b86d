"""A tensor with elements replaced at given places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.arithmetic import mul
from torchferry.converter.ops.elementwise.choice import chosen
from torchferry.converter.ops.index.index import is_mask, places_of, restored, true_places, vector
from torchferry.converter.ops.index.scatter import reduced, scatter_reduce, scattered
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
)  # fmt: skip
from torchferry.converter.ops.shape.permute import permuted
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.seams.operators import aten

__all__: list[str] = []

BOOL = ir.DataType.BOOL


@moves(aten.index_put.default, aten._unsafe_index_put.default)
def index_put(
    b: Block,
    x: ir.Value,
    indices: Sequence[ir.Value | None],
    values: ir.Value,
    accumulate: bool = False,
) -> ir.Value:
    given = [(place, one) for place, one in enumerate(indices) if one is not None]
    if not given:
        return _added(b, x, values) if accumulate else expanded(b, values, sizes_of(b, x))
    if is_complex(x) != is_complex(values):
        raise ValueError("it writes real numbers among complex ones, make them complex")
    axis, only = given[0]
    if len(given) == 1 and is_mask(only) and not is_complex(x):
        if rank(values) <= rank(x) - rank(only) - axis or (rank(values) == 1 == _count(b, values)):
            return _where(b, x, axis, only, values, accumulate)
    elif len(given) == 1 and axis and rank(only) == 1 and not accumulate and not is_complex(x):
        return _rows(b, x, axis, only, values)
    return _general(b, x, indices, values, accumulate)


def _count(b: Block, x: ir.Value) -> Size:
    return b.dim(x, 0) if rank(x) else 1


def _added(b: Block, x: ir.Value, values: ir.Value) -> ir.Value:
    if x.dtype == BOOL:
        return b.Or(x, values)
    return b.Add(x, values)


def _where(
    b: Block, x: ir.Value, axis: int, mask: ir.Value, values: ir.Value, accumulate: bool
) -> ir.Value:
    """Under a mask, values that are the same for all of its elements."""
    behind = rank(x) - axis - rank(mask)
    held = b.cast(mask, BOOL)
    if behind:
        held = b.Unsqueeze(held, list(range(rank(mask), rank(mask) + behind)))
    if (rank(values) == 1 and rank(x) == 0) or rank(values) > behind:
        values = reshaped(b, values, [])
    return chosen(b, held, _added(b, x, values) if accumulate else values, x)


def _rows(b: Block, x: ir.Value, axis: int, index: ir.Value, values: ir.Value) -> ir.Value:
    """Along one axis that is not the first, without moving it there and back."""
    sizes = sizes_of(b, x)
    sizes[axis] = b.dim(index, 0)
    updates = expanded(b, values, sizes)
    return scattered(b, x, expanded(b, along(b, index, axis, rank(x)), sizes), updates, axis)


def _general(
    b: Block, x: ir.Value, indices: Sequence[ir.Value | None], values: ir.Value, accumulate: bool
) -> ir.Value:
    places = places_of(b, x, indices)
    first = places.indices[0]
    taken = places.taken()
    front = [
        *sizes_of(b, first),
        *(b.dim(x, axis) for axis in places.order[len(places.indices) :]),
    ]
    updates = expanded(b, values, [front[axis] for axis in taken])
    updates = permuted(b, updates, restored(taken))
    data = permuted(b, x, places.order)
    made = reduced(
        b, data, lambda d, u, r: b.ScatterND(d, places.matrix(b), u, reduction=r), updates,
        "add" if accumulate else None,
    )  # fmt: skip
    return permuted(b, kept_complex(x, made), restored(places.order))


# Along one axis ------------------------------------------------------------------------------


def _spread(b: Block, index: ir.Value, like: ir.Value, axis: int) -> ir.Value:
    """The index of an axis for every element of ``like``."""
    return expanded(b, along(b, vector(b, index), axis, rank(like)), sizes_of(b, like))


def _lines(
    b: Block, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, reduction: str | None
) -> ir.Value:
    axis = axis_of(x, dim)
    data, rows = vector(b, x), vector(b, source)
    made = scattered(b, data, _spread(b, index, rows, axis), rows, axis, reduction)
    return reshaped(b, made, []) if rank(x) == 0 else made


@lowers(aten.index_add.default, promote="default", operands=("x", "source"))
def index_add(
    b: Block, x: ir.Value, dim: int, index: ir.Value, source: ir.Value, alpha: Any = 1
) -> ir.Value:
    if isinstance(alpha, ir.Value) or alpha != 1:
        source = mul(b, source, b.cast(alpha, source))
    return _lines(b, x, dim, index, source, "add")


@moves(aten.index_copy.default)
def index_copy(b: Block, x: ir.Value, dim: int, index: ir.Value, source: ir.Value) -> ir.Value:
    return _lines(b, x, dim, index, source, None)


@lowers(aten.index_fill.int_Scalar, aten.index_fill.int_Tensor)
def index_fill(b: Block, x: ir.Value, dim: int, index: ir.Value, value: Any) -> ir.Value:
    axis, whole = axis_of(x, dim), vector(b, x)
    index = vector(b, index)
    nothing = b.Expand(b.constant([False]), b.vector([b.dim(whole, axis)]))
    everything = b.Expand(b.constant([True]), b.vector([b.dim(index, 0)]))
    held = b.ScatterElements(nothing, index, everything)
    filled = chosen(b, along(b, held, axis, rank(whole)), b.cast(value, x), whole)
    return reshaped(b, filled, []) if rank(x) == 0 else filled


@lowers(aten.index_reduce.default)
def index_reduce(
    b: Block,
    x: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str,
    include_self: bool = True,
) -> ir.Value:
    axis, whole, rows = axis_of(x, dim), vector(b, x), vector(b, source)
    spread = _spread(b, index, rows, axis)
    made = scatter_reduce(b, whole, axis, spread, rows, reduce, include_self)
    return reshaped(b, made, []) if rank(x) == 0 else made


@moves(aten.put.default)
def put(
    b: Block, x: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False
) -> ir.Value:
    made = scattered(
        b, flat(b, x), flat(b, index), flat(b, source), 0, "add" if accumulate else None
    )
    return reshaped(b, made, sizes_of(b, x))


@moves(aten.masked_scatter.default)
def masked_scatter(b: Block, x: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    sizes = common_sizes(b, x, mask)
    data = vector(b, expanded(b, x, sizes))
    found = true_places(b, expanded(b, mask, sizes))
    count = b.Shape(found, start=1)
    updates = b.Slice(flat(b, source), [0], count, [0])
    made = kept_complex(x, b.ScatterND(data, b.Transpose(found, perm=[1, 0]), updates))
    return reshaped(b, made, sizes) if not sizes else made
