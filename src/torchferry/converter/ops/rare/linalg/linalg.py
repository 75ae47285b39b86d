"""Linear algebra: products, powers, determinants, inverses, systems.

ONNX has Det alone. The rest is made of elimination in a loop over columns. Where PyTorch raises
for a singular matrix, these give numbers that mean nothing, and the ``_ex`` operators say so in
``info``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import factorial, log
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.unary import sign
from torchferry.converter.ops.network.matrix import product
from torchferry.converter.ops.rare.linalg.elimination import (
    Factors,
    cholesky_factor,
    factorized,
    identity,
    reduced,
    substituted,
    swapped,
    triangle,
)
from torchferry.converter.ops.reduce.reduction import total
from torchferry.converter.ops.shape.axes import times
from torchferry.converter.write.control_flow import loop
from torchferry.seams.operators import aten

__all__ = ["aligned", "inverted"]

Pair = tuple[ir.Value, ir.Value]
_DOUBLE = ir.DataType.DOUBLE


def _rank(x: ir.Value) -> int:
    if x.shape is None:
        raise ValueError("the rank of a matrix is not known")
    return len(x.shape)


def aligned(b: Block, x: ir.Value, other: ir.Value) -> Pair:
    """Two stacks of matrices with the same batch axes."""
    stacks = [list((value.shape or ())[:-2]) for value in (x, other)]
    named = all(isinstance(size, int) or size.value is not None for size in stacks[0])
    if stacks[0] == stacks[1] and named:
        return x, other
    sizes = [[b.dim(v, axis) for axis in range(_rank(v) - 2)] for v in (x, other)]
    return (
        b.Expand(x, b.vector([*sizes[1], 1, 1])) if stacks[1] else x,
        b.Expand(other, b.vector([*sizes[0], 1, 1])) if stacks[0] else other,
    )


# Products ----------------------------------------------------------------------------------------


@lowers(aten.linalg_cross.default, promote="default", operands=("x", "other"))
def linalg_cross(b: Block, x: ir.Value, other: ir.Value, dim: int = -1) -> ir.Value:
    def turned(value: ir.Value, places: Sequence[int]) -> ir.Value:
        return b.Gather(value, b.constant(list(places)), axis=dim)

    one = b.Mul(turned(x, (1, 2, 0)), turned(other, (2, 0, 1)))
    return b.Sub(one, b.Mul(turned(x, (2, 0, 1)), turned(other, (1, 2, 0))))


@lowers(aten.cross.default, promote="default", operands=("x", "other"))
def cross(b: Block, x: ir.Value, other: ir.Value, dim: int | None = None) -> ir.Value:
    if dim is None:  # the first axis of size 3
        threes = [axis for axis, size in enumerate(x.shape or ()) if size == 3]
        if not threes:
            raise ValueError("no axis is known to have 3 elements, name it with dim=")
        dim = threes[0]
    return linalg_cross(b, x, other, dim)


@lowers(aten.linalg_vecdot.default, promote="default", operands=("x", "y"))
def linalg_vecdot(b: Block, x: ir.Value, y: ir.Value, dim: int = -1) -> ir.Value:
    return total(b, b.Mul(x, y), [dim])


@lowers(aten.linalg_matrix_power.default, aten.matrix_power.default)
def matrix_power(b: Block, x: ir.Value, n: int) -> ir.Value:
    if n == 0:
        return b.Expand(identity(b, x), b.shape(x))
    square = inverted(b, x)[0] if n < 0 else x
    factors = []
    for bit in range(abs(n).bit_length()):
        if bit:
            square = product(b, square, square)
        if abs(n) >> bit & 1:
            factors.append(square)
    return reduce(lambda y, z: product(b, y, z), factors)


# The Taylor polynomial of this degree is exact to 3e-18 where the norm is at most this.
_DEGREE, _SMALL = 12, 0.25


@lowers(aten.matrix_exp.default, aten.linalg_matrix_exp.default)
def matrix_exp(b: Block, x: ir.Value) -> ir.Value:
    """Scaling and squaring, each matrix as often as its 1-norm asks for.

    In float64: every squaring doubles the relative error, and a norm of 30 takes seven.
    """
    x = b.cast(x, _DOUBLE)
    norm = b.ReduceMax(b.ReduceL1(x, [-2], keepdims=1), [-1], keepdims=1)
    doublings = b.Div(b.Log(b.Div(norm, _SMALL)), log(2))
    times = b.Min(b.Max(b.Ceil(doublings), 0), 64)
    small = b.Div(x, b.Pow(b.constant(2, x), times))
    start = _taylor(b, small)
    counts = b.cast(times, ir.DataType.INT64)

    def step(inner: Block, index: ir.Value, power: ir.Value) -> Any:
        return [inner.Where(inner.Less(index, counts), inner.MatMul(power, power), power)], []

    most = b.Concat(b.Reshape(counts, [-1]), b.constant([0]), axis=0)
    return loop(b, b.ReduceMax(most, keepdims=0), [start], step)[0]


def _taylor(b: Block, x: ir.Value) -> ir.Value:
    """The exponential series in blocks of three powers (Paterson and Stockmeyer, 1973)."""
    one = identity(b, x)
    second = b.MatMul(x, x)
    third = b.MatMul(second, x)
    result = b.Mul(one, 1 / factorial(_DEGREE))
    for lowest in range(_DEGREE - 3, -1, -3):
        terms = [
            b.Mul(power, 1 / factorial(lowest + place))
            for place, power in enumerate((one, x, second))
        ]
        result = b.Add(b.MatMul(result, third), b.Add(b.Add(terms[0], terms[1]), terms[2]))
    return result


# Determinants ------------------------------------------------------------------------------------


def _diagonal(b: Block, x: ir.Value) -> ir.Value:
    mask = b.cast(identity(b, x), ir.DataType.BOOL)
    return b.ReduceSum(b.Where(mask, x, 0), [-1], keepdims=0)


def _sign(b: Block, factors: Factors) -> ir.Value:
    """1 where an even number of rows was swapped, -1 where an odd one was."""
    places = b.Range(0, b.scalar(b.dim(factors.packed, -1)), 1)
    moved = b.cast(b.Not(b.Equal(factors.places, places)), ir.DataType.INT64)
    odd = b.Mod(b.ReduceSum(moved, [-1], keepdims=0), 2)
    return b.cast(b.Sub(1, b.Mul(odd, 2)), factors.packed)


def _slogdet(b: Block, x: ir.Value) -> Pair:
    factors = factorized(b, x)
    diagonal = _diagonal(b, factors.packed)
    signs = b.ReduceProd(sign(b, diagonal), [-1], keepdims=0)
    logarithm = b.ReduceSum(b.Log(b.Abs(diagonal)), [-1], keepdims=0)
    return b.Mul(_sign(b, factors), signs), logarithm


@lowers(aten.linalg_det.default, aten.det.default)
def linalg_det(b: Block, A: ir.Value) -> ir.Value:
    return _linalg_det(b, A)[0] if A.dtype == _DOUBLE else b.Det(A)


@lowers(aten._linalg_det.default)
def _linalg_det(b: Block, A: ir.Value) -> tuple[ir.Value, None, None]:
    factors = factorized(b, A)
    diagonal = b.ReduceProd(_diagonal(b, factors.packed), [-1], keepdims=0)
    return b.Mul(_sign(b, factors), diagonal), None, None  # of its transpose, where PyTorch likes


@lowers(aten.linalg_slogdet.default, aten.slogdet.default)
def linalg_slogdet(b: Block, A: ir.Value) -> Pair:
    return _slogdet(b, A)


@lowers(aten._linalg_slogdet.default)
def _linalg_slogdet(b: Block, A: ir.Value) -> tuple[ir.Value, ir.Value, None, None]:
    return (*_slogdet(b, A), None, None)


@lowers(aten.logdet.default)
def logdet(b: Block, x: ir.Value) -> ir.Value:
    signed, logarithm = _slogdet(b, x)
    return b.Where(b.Less(signed, 0), float("nan"), logarithm)


# Inverses and systems --------------------------------------------------------------------------


def inverted(b: Block, x: ir.Value) -> Pair:
    """The inverse, and the number of the first column without a pivot, or 0."""
    return reduced(b, x, b.Expand(identity(b, x), b.shape(x)))


@lowers(aten.linalg_tensorinv.default)
def linalg_tensorinv(b: Block, x: ir.Value, ind: int = 2) -> ir.Value:
    sizes = [b.dim(x, axis) for axis in range(_rank(x))]
    square = b.Reshape(x, b.vector([times(b, *sizes[:ind]), times(b, *sizes[ind:])]))
    square.shape = ir.Shape([None, None])
    return b.Reshape(inverted(b, square)[0], b.vector([*sizes[ind:], *sizes[:ind]]))


@lowers(aten.linalg_inv.default, aten.inverse.default)
def linalg_inv(b: Block, A: ir.Value) -> ir.Value:
    return inverted(b, A)[0]


@lowers(aten.linalg_inv_ex.default)
def linalg_inv_ex(b: Block, A: ir.Value, check_errors: bool = False) -> Pair:
    return inverted(b, A)


@lowers(aten.linalg_solve.default)
def linalg_solve(b: Block, A: ir.Value, B: ir.Value, left: bool = True) -> ir.Value:
    return linalg_solve_ex(b, A, B, left)[0]


@lowers(aten.linalg_solve_ex.default)
def linalg_solve_ex(
    b: Block, A: ir.Value, B: ir.Value, left: bool = True, check_errors: bool = False
) -> Pair:
    vector = _is_vector(A, B)
    other = b.Unsqueeze(B, [-1]) if vector else B
    if left:
        result, info = reduced(b, *aligned(b, A, other))
    else:
        turned, info = reduced(b, *aligned(b, swapped(b, A), swapped(b, other)))
        result = swapped(b, turned)
    if vector:
        return b.Squeeze(result, [-1]), info
    return result, info


def _is_vector(matrix: ir.Value, other: ir.Value) -> bool:
    """Whether the right side is a stack of vectors (torch._linalg_utils, linalg_solve)."""
    batch = list((matrix.shape or ())[:-1])
    stacked = _rank(matrix) - 1 == _rank(other) and list(other.shape or ()) == batch
    return _rank(other) == 1 or stacked


@lowers(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    b: Block,
    x: ir.Value,
    B: ir.Value,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> ir.Value:
    if left:
        return substituted(b, *aligned(b, x, B), upper, unitriangular)
    turned = aligned(b, swapped(b, x), swapped(b, B))
    return swapped(b, substituted(b, *turned, not upper, unitriangular))


@lowers(aten.triangular_solve.default)
def triangular_solve(
    b: Block,
    x: ir.Value,
    A: ir.Value,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> Pair:
    matrix, other = aligned(b, A, x)
    turned = swapped(b, matrix) if transpose else matrix
    return substituted(b, turned, other, upper != transpose, unitriangular), b.Identity(matrix)


# Cholesky ----------------------------------------------------------------------------------------


@lowers(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(
    b: Block, x: ir.Value, upper: bool = False, check_errors: bool = False
) -> Pair:
    factor, info = cholesky_factor(b, swapped(b, x) if upper else x)
    return (swapped(b, factor) if upper else factor), info


@lowers(aten.linalg_cholesky.default, aten.cholesky.default)
def linalg_cholesky(b: Block, x: ir.Value, upper: bool = False) -> ir.Value:
    return linalg_cholesky_ex(b, x, upper)[0]


@lowers(aten.cholesky_solve.default)
def cholesky_solve(b: Block, x: ir.Value, input2: ir.Value, upper: bool = False) -> ir.Value:
    factor, other = aligned(b, input2, x)
    lower = swapped(b, factor) if upper else factor
    return substituted(b, swapped(b, lower), substituted(b, lower, other, False), True)


@lowers(aten.cholesky_inverse.default)
def cholesky_inverse(b: Block, x: ir.Value, upper: bool = False) -> ir.Value:
    factor = triangle(b, x, upper)
    return cholesky_solve(b, b.Expand(identity(b, x), b.shape(x)), factor, upper)
