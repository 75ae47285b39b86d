"""LU and QR, and what is unpacked from them."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.linalg.elimination import (
    factorized,
    first_true,
    identity,
    least,
    places_of,
    stack_sizes,
    substituted,
    swapped,
    triangle,
)
from torchferry.converter.ops.rare.linalg.linalg import aligned
from torchferry.converter.write.control_flow import loop
from torchferry.seams.operators import aten

__all__: list[str] = []

Pair = tuple[ir.Value, ir.Value]
Triple = tuple[ir.Value, ir.Value, ir.Value]

# LU ----------------------------------------------------------------------------------------------


@lowers(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(
    b: Block, A: ir.Value, pivot: bool = True, check_errors: bool = False
) -> Triple:
    factors = factorized(b, A, pivot)
    size = stack_sizes(b, A, [least(b, b.dim(A, -2), b.dim(A, -1))])
    index = b.Unsqueeze(b.Expand(places_of(b, factors.places, -1), size), [-1])
    diagonal = b.Squeeze(b.GatherElements(factors.packed, index, axis=-1), [-1])
    rank = len(A.shape or ()) - 1
    turned = b.Transpose(diagonal, perm=[rank - 1, *range(rank - 1)])
    return factors.packed, b.Add(factors.places, 1), first_true(b, b.Equal(turned, 0))


@lowers(aten.linalg_lu_factor.default)
def linalg_lu_factor(b: Block, A: ir.Value, pivot: bool = True) -> Pair:
    factors = factorized(b, A, pivot)
    return factors.packed, b.Add(factors.places, 1)


@lowers(aten.linalg_lu.default)
def linalg_lu(b: Block, A: ir.Value, pivot: bool = True) -> Triple:
    factors = factorized(b, A, pivot)
    return (_permutation(b, factors.order, A), *_unpacked(b, factors.packed))


def _permutation(b: Block, order: ir.Value, like: ir.Value) -> ir.Value:
    """P with ``P @ x`` moving row ``i`` to ``order[i]``."""
    rows = b.Unsqueeze(places_of(b, order, -1), [-1])
    return b.cast(b.Equal(rows, b.Unsqueeze(order, [-2])), like)


def _unpacked(b: Block, packed: ir.Value) -> Pair:
    """L with ones on the diagonal, and U."""
    count = least(b, b.dim(packed, -2), b.dim(packed, -1))
    size = b.vector([count])
    lower = b.Slice(packed, [0], size, [-1])
    rows, columns = places_of(b, lower, -2), places_of(b, lower, -1)
    ones = b.cast(b.Equal(b.Unsqueeze(rows, [1]), columns), packed)
    upper = b.Slice(packed, [0], size, [-2])
    return b.Add(triangle(b, lower, False, -1), ones), triangle(b, upper, True)


def _order(b: Block, pivots: ir.Value, packed: ir.Value) -> ir.Value:
    """The row that comes to each place by swaps one after another."""
    rows = places_of(b, packed, -2)
    start = b.Expand(rows, stack_sizes(b, packed, [b.dim(packed, -2)]))
    swaps = b.Sub(b.cast(pivots, ir.DataType.INT64), 1)

    def step(inner: Block, index: ir.Value, order: ir.Value) -> Any:
        place = inner.Gather(swaps, inner.Unsqueeze(index, [0]), axis=-1)
        moved = inner.Where(inner.Equal(rows, place), index, rows)
        moved = inner.Where(inner.Equal(rows, index), place, moved)
        return [inner.GatherElements(order, moved, axis=-1)], []

    return loop(b, b.dim(pivots, -1), [start], step)[0]


@lowers(aten.lu_unpack.default)
def lu_unpack(
    b: Block,
    LU_data: ir.Value,
    LU_pivots: ir.Value,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[ir.Value, ...]:
    nothing = b.constant([], LU_data)
    lower, upper = _unpacked(b, LU_data) if unpack_data else (nothing, nothing)
    if not unpack_pivots:
        return b.Identity(nothing), lower, upper
    return _permutation(b, _order(b, LU_pivots, LU_data), LU_data), lower, upper


@lowers(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    b: Block,
    LU: ir.Value,
    pivots: ir.Value,
    B: ir.Value,
    left: bool = True,
    adjoint: bool = False,
) -> ir.Value:
    permutation = _permutation(b, _order(b, pivots, LU), LU)
    packed, other = aligned(b, LU, B if left else swapped(b, B))
    if adjoint == left:  # the transposed matrix is U.T @ L.T @ P.T
        turned = swapped(b, packed)
        upper = substituted(b, turned, other, upper=False)
        result = b.MatMul(permutation, substituted(b, turned, upper, upper=True, unit=True))
    else:
        ordered = b.MatMul(swapped(b, permutation), other)
        lower = substituted(b, packed, ordered, upper=False, unit=True)
        result = substituted(b, packed, lower, upper=True)
    return result if left else swapped(b, result)


@lowers(aten.lu_solve.default)
def lu_solve(b: Block, x: ir.Value, LU_data: ir.Value, LU_pivots: ir.Value) -> ir.Value:
    return linalg_lu_solve(b, LU_data, LU_pivots, x)


# QR ----------------------------------------------------------------------------------------------


def _householder(b: Block, x: ir.Value) -> Pair:
    """Q, square, and R by reflections, with LAPACK's signs (geqrf)."""
    rows = places_of(b, x, -2)
    full = stack_sizes(b, x, [b.dim(x, -2), b.dim(x, -2)])
    start = b.Expand(identity(b, x, -2), full)

    def step(inner: Block, index: ir.Value, q: ir.Value, r: ir.Value) -> Any:
        one = inner.Unsqueeze(index, [0])
        column = inner.Gather(r, one, axis=-1)
        head = inner.Gather(column, one, axis=-2)
        tail = inner.Where(inner.Unsqueeze(inner.Greater(rows, index), [-1]), column, 0.0)
        length = inner.ReduceSumSquare(tail, [-2], keepdims=1)
        norm = inner.Sqrt(inner.Add(inner.Mul(head, head), length))
        first = inner.Sub(head, inner.Where(inner.Less(head, 0), norm, inner.Neg(norm)))
        here = inner.Unsqueeze(inner.Equal(rows, index), [-1])
        v = inner.Where(here, first, tail)
        squares = inner.Add(inner.Mul(first, first), length)
        # nothing below the diagonal is left as it is
        scale = inner.Where(inner.Equal(length, 0), 0.0, inner.Div(2.0, squares))
        scaled, across = inner.Mul(v, scale), swapped(inner, v)
        q = inner.Sub(q, inner.MatMul(inner.MatMul(q, scaled), across))
        return [q, inner.Sub(r, inner.MatMul(scaled, inner.MatMul(across, r)))], []

    q, r = loop(b, least(b, b.dim(x, -2), b.dim(x, -1)), [start, x], step)
    return q, triangle(b, r, True)


@lowers(aten.linalg_qr.default)
def linalg_qr(b: Block, A: ir.Value, mode: str = "reduced") -> Pair:
    q, r = _householder(b, A)
    if mode == "complete":
        return q, r
    size = b.vector([least(b, b.dim(A, -2), b.dim(A, -1))])
    short = b.Slice(r, [0], size, [-2])
    if mode == "r":
        return b.Identity(b.constant([], A)), short
    return b.Slice(q, [0], size, [-1]), short


@lowers(aten.qr.default)
def qr(b: Block, x: ir.Value, some: bool = True) -> Pair:
    return linalg_qr(b, x, "reduced" if some else "complete")


@lowers(aten.linalg_householder_product.default, aten.orgqr.default)
def linalg_householder_product(b: Block, x: ir.Value, tau: ir.Value) -> ir.Value:
    rows = places_of(b, x, -2)
    full = stack_sizes(b, x, [b.dim(x, -2), b.dim(x, -2)])
    start = b.Expand(identity(b, x, -2), full)

    def step(inner: Block, index: ir.Value, q: ir.Value) -> Any:
        one = inner.Unsqueeze(index, [0])
        column = inner.Gather(x, one, axis=-1)
        below = inner.Unsqueeze(inner.Greater(rows, index), [-1])
        here = inner.Unsqueeze(inner.Equal(rows, index), [-1])
        v = inner.Where(here, 1.0, inner.Where(below, column, 0.0))
        scale = inner.Unsqueeze(inner.Gather(tau, one, axis=-1), [-1])
        scaled = inner.Mul(inner.MatMul(q, v), scale)
        return [inner.Sub(q, inner.MatMul(scaled, swapped(inner, v)))], []

    (q,) = loop(b, b.dim(tau, -1), [start], step)
    return b.Slice(q, [0], b.vector([b.dim(x, -1)]), [-1])


@lowers(aten.ormqr.default)
def ormqr(
    b: Block,
    x: ir.Value,
    input2: ir.Value,
    input3: ir.Value,
    left: bool = True,
    transpose: bool = False,
) -> ir.Value:
    """Reflect a matrix by each column of ``x``, whose product Q never stands alone."""
    if not left:  # C Q is (Qᵀ Cᵀ)ᵀ
        return swapped(b, ormqr(b, x, input2, swapped(b, input3), True, not transpose))
    rows, count = places_of(b, x, -2), b.scalar(b.dim(input2, -1))

    def step(inner: Block, index: ir.Value, held: ir.Value) -> Any:
        place = index if transpose else inner.Sub(inner.Sub(count, 1), index)
        one = inner.Unsqueeze(place, [0])
        column = inner.Gather(x, one, axis=-1)
        below = inner.Unsqueeze(inner.Greater(rows, place), [-1])
        here = inner.Unsqueeze(inner.Equal(rows, place), [-1])
        v = inner.Where(here, 1.0, inner.Where(below, column, 0.0))
        scale = inner.Unsqueeze(inner.Gather(input2, one, axis=-1), [-1])
        part = inner.MatMul(inner.Mul(v, scale), inner.MatMul(swapped(inner, v), held))
        return [inner.Sub(held, part)], []

    return loop(b, b.dim(input2, -1), [input3], step)[0]
