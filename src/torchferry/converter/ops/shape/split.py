"""One tensor as several."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.ops.shape.axes import (
    Size,
    axis_of,
    least,
    minus,
    moves,
    plus,
    rank,
    times,
)  # fmt: skip
from torchferry.seams.operators import aten

__all__: list[str] = []

_DYNAMIC = (
    "how many parts there are depends on the size of axis {axis}, which is dynamic: make it "
    "static, or split it into parts of given sizes"
)


def _parts(b: Block, x: ir.Value, sizes: Sequence[Size], axis: int) -> list[ir.Value]:
    if len(sizes) == 1:
        return [x]
    return list(b.Split(x, b.vector(sizes), axis=axis, outputs=len(sizes)))


def _known(b: Block, x: ir.Value, axis: int) -> int:
    size = b.dim(x, axis)
    if isinstance(size, ir.Value):
        raise ValueError(_DYNAMIC.format(axis=axis))
    return size


def _bounded(b: Block, x: ir.Value, axis: int, bounds: Sequence[Size | None]) -> list[ir.Value]:
    """The parts between bounds, which may be negative or beyond the end, as in Python."""
    starts = [0, *bounds]
    ends = [*bounds, None]
    return [
        x
        if len(starts) == 1
        else b.Slice(x, _one(b, start or 0), _one(b, _LAST if end is None else end), [axis])
        for start, end in zip(starts, ends, strict=True)
    ]


_LAST = 2**63 - 1


def _one(b: Block, size: Size) -> ir.Value:
    return size if isinstance(size, ir.Value) else b.constant([size])


@moves(aten.split.Tensor, aten.unsafe_split.Tensor, aten.split_copy.Tensor)
def split(b: Block, x: ir.Value, split_size: Size, dim: int = 0) -> list[ir.Value]:
    axis = axis_of(x, dim)
    size = b.dim(x, axis)
    if isinstance(split_size, ir.Value) or isinstance(size, ir.Value):
        return _counted(b, x, size, split_size, axis)
    if size == 0 or split_size == 0:
        return [x]
    sizes = [min(split_size, size - start) for start in range(0, size, split_size)]
    return _parts(b, x, sizes, axis)


def _counted(b: Block, x: ir.Value, size: Size, each: Size, axis: int) -> list[ir.Value]:
    """As many parts as torch.export saw, which took that number for fixed.

    The last one has what is left over by whole parts. At a size at which there are more or fewer,
    the sizes do not add up, and onnxruntime says so. An axis of no element is not divided by.
    """
    divisor = b.Max(each, [1]) if isinstance(each, ir.Value) else [max(each, 1)]
    rest = minus(b, size, times(b, b.Div(_one(b, minus(b, size, 1)), divisor), each))
    sizes = [*[each] * (b.results - 1), rest]
    parts = b.Split(x, b.vector(sizes), axis=axis, outputs=len(sizes))
    return list(parts) if isinstance(parts, tuple) else [parts]


@moves(
    aten.split.sizes, aten.split_with_sizes.default, aten.unsafe_split_with_sizes.default,
    aten.split_with_sizes_copy.default,
)  # fmt: skip
def split_sizes(b: Block, x: ir.Value, split_size: Sequence[Size], dim: int = 0) -> list[ir.Value]:
    return _parts(b, x, split_size, axis_of(x, dim))


@moves(aten.chunk.default, aten.unsafe_chunk.default)
def chunk(b: Block, x: ir.Value, chunks: int, dim: int = 0) -> list[ir.Value]:
    axis = axis_of(x, dim)
    size = b.dim(x, axis)
    if isinstance(size, int):
        if size == 0:
            return _parts(b, x, [0] * chunks, axis)
        return split(b, x, -(-size // chunks), dim)
    # There are fewer parts where the last would be empty; those that torch.export saw are checked.
    each = b.Div(plus(b, size, chunks - 1), [chunks])
    return _bounded(b, x, axis, [times(b, each, place) for place in range(1, chunks)])


@moves(aten.tensor_split.sections)
def tensor_split(b: Block, x: ir.Value, sections: int, dim: int = 0) -> list[ir.Value]:
    axis = axis_of(x, dim)
    size = b.dim(x, axis)
    if isinstance(sections, ir.Value):
        raise ValueError("into how many parts it is split must not depend on the inputs")
    if isinstance(size, int):
        least_, longer = divmod(size, sections)
        return _parts(b, x, [least_ + (place < longer) for place in range(sections)], axis)
    shortest = b.Div(size, [sections])
    rest = minus(b, size, times(b, shortest, sections))
    bounds = [
        plus(b, times(b, shortest, place), least(b, rest, place)) for place in range(1, sections)
    ]
    return _bounded(b, x, axis, bounds)


@moves(aten.tensor_split.indices)
def tensor_split_indices(
    b: Block, x: ir.Value, indices: Sequence[Size], dim: int = 0
) -> list[ir.Value]:
    return _bounded(b, x, axis_of(x, dim), indices)


@moves(aten.tensor_split.tensor_indices_or_sections)
def tensor_split_tensor(
    b: Block, x: ir.Value, tensor_indices_or_sections: ir.Value, dim: int = 0
) -> list[ir.Value]:
    given = tensor_indices_or_sections
    if rank(given) == 0 or isinstance(b.dim(given, 0), ir.Value):
        raise ValueError("into how many parts it is split must not depend on the inputs")
    bounds = b.cast(given, ir.DataType.INT64)
    places = range(_known(b, given, 0))
    return _bounded(b, x, axis_of(x, dim), [b.Gather(bounds, [place]) for place in places])


@moves(aten.hsplit.int)
def hsplit(b: Block, x: ir.Value, sections: int) -> list[ir.Value]:
    return tensor_split(b, x, sections, 0 if rank(x) == 1 else 1)


@moves(aten.hsplit.array)
def hsplit_array(b: Block, x: ir.Value, indices: Sequence[Size]) -> list[ir.Value]:
    return tensor_split_indices(b, x, indices, 0 if rank(x) == 1 else 1)


@moves(aten.vsplit.int)
def vsplit(b: Block, x: ir.Value, sections: int) -> list[ir.Value]:
    return tensor_split(b, x, sections, 0)


@moves(aten.vsplit.array)
def vsplit_array(b: Block, x: ir.Value, indices: Sequence[Size]) -> list[ir.Value]:
    return tensor_split_indices(b, x, indices, 0)


@moves(aten.dsplit.int)
def dsplit(b: Block, x: ir.Value, sections: int) -> list[ir.Value]:
    return tensor_split(b, x, sections, 2)


@moves(aten.dsplit.array)
def dsplit_array(b: Block, x: ir.Value, indices: Sequence[Size]) -> list[ir.Value]:
    return tensor_split_indices(b, x, indices, 2)


@moves(aten.unbind.int, aten.unbind_copy.int)
def unbind(b: Block, x: ir.Value, dim: int = 0) -> list[ir.Value]:
    axis = axis_of(x, dim)
    return [b.Gather(x, place, axis=axis) for place in range(_known(b, x, axis))]
