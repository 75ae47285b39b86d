"""Axes in another order."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import axis_of, is_complex, kept_complex, moves, rank
from torchferry.converter.weight import Weight
from torchferry.seams.operators import aten

__all__ = ["last_axes", "permuted", "swapped"]


def permuted(b: Block, x: ir.Value, order: Sequence[int]) -> ir.Value:
    """``x`` with its axes in this order; nothing is written for the order they have."""
    order = list(order)
    if order == sorted(order):
        return x
    if is_complex(x):
        order.append(len(order))
    if order == [1, 0] and isinstance(x.const_value, Weight):
        return b.transposed(x)
    return kept_complex(x, b.Transpose(x, perm=order))


def swapped(b: Block, x: ir.Value, first: int, second: int) -> ir.Value:
    """``x`` with two axes swapped."""
    order = list(range(rank(x)))
    if order:
        order[first], order[second] = order[second], order[first]
    return permuted(b, x, order)


def last_axes(axes: int, *last: int) -> tuple[list[int], list[int]]:
    """The order that brings axes to the end, and the one that brings them back."""
    order = [axis for axis in range(axes) if axis not in last] + list(last)
    return order, [order.index(axis) for axis in range(axes)]


@moves(
    aten.transpose.int, aten.transpose_copy.int, aten.swapaxes.default, aten.swapdims.default
)  # fmt: skip
def transpose(b: Block, x: ir.Value, dim0: int, dim1: int) -> ir.Value:
    return swapped(b, x, axis_of(x, dim0), axis_of(x, dim1))


@moves(aten.permute.default, aten.permute_copy.default)
def permute(b: Block, x: ir.Value, dims: Sequence[int]) -> ir.Value:
    return permuted(b, x, [axis_of(x, dim) for dim in dims])


@moves(aten.movedim.int, aten.moveaxis.int)
def movedim(b: Block, x: ir.Value, source: int, destination: int) -> ir.Value:
    return movedims(b, x, [source], [destination])


@moves(aten.movedim.intlist, aten.moveaxis.intlist)
def movedims(b: Block, x: ir.Value, source: Sequence[int], destination: Sequence[int]) -> ir.Value:
    places = {axis_of(x, d): axis_of(x, s) for s, d in zip(source, destination, strict=True)}
    rest = iter([axis for axis in range(rank(x)) if axis not in places.values()])
    return permuted(b, x, [places[i] if i in places else next(rest) for i in range(rank(x))])


@moves(aten.t.default, aten.t_copy.default)
def t(b: Block, x: ir.Value) -> ir.Value:
    return swapped(b, x, 0, 1) if rank(x) == 2 else x


@moves(aten.mT.default)
def matrix_transpose(b: Block, x: ir.Value) -> ir.Value:
    return swapped(b, x, rank(x) - 2, rank(x) - 1)


@moves(aten.numpy_T.default)
def numpy_transpose(b: Block, x: ir.Value) -> ir.Value:
    return permuted(b, x, range(rank(x))[::-1])


# Real matrices; complex ones are conjugated as well.
lowers(aten.mH.default, aten.matrix_H.default, aten.adjoint.default)(
    lambda b, x: swapped(b, x, rank(x) - 2, rank(x) - 1) if rank(x) > 1 else x
)
