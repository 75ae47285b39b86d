"""Singular values, eigenvalues of symmetric matrices, and what follows from them.

One-sided Jacobi rotations, every pair of columns in turn, n / 2 of them at a time, in float64:
values are as exact as LAPACK's for any number of batch axes and any size. Singular vectors and
eigenvectors are refused: PyTorch defines them up to a sign, which is LAPACK's choice.
Source: Brent and Luk, The solution of singular-value and symmetric eigenvalue problems on
multiprocessor arrays, 1985, https://doi.org/10.1137/0906007
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.linalg.elimination import identity, swapped, triangle
from torchferry.converter.write.control_flow import loop
from torchferry.converter.write.promote import torch_dtype
from torchferry.seams.operators import aten

__all__ = ["singular_values"]

Size = int | ir.Value

_DOUBLE, _INT64 = ir.DataType.DOUBLE, ir.DataType.INT64
_SWEEPS = 60  # at most, over all pairs; 6 to 8 are usual for 100 columns, 14 where they are graded
_ORTHOGONAL = 1e-8  # a cosine; the sweep that finds less leaves its square


def _length(b: Block, size: Size) -> ir.Value:
    return size if isinstance(size, ir.Value) else b.constant([size])


def _least(b: Block, x: ir.Value) -> Size:
    """The lesser of the last two sizes: how many singular values there are."""
    rows, columns = b.dim(x, -2), b.dim(x, -1)
    if isinstance(rows, int) and isinstance(columns, int):
        return min(rows, columns)
    return b.Min(_length(b, rows), _length(b, columns))


def _turns(b: Block, half: Size) -> ir.Value:
    """Where each row comes from for the next pairs: all but the first go round in a circle.

    Rows ``i`` and ``half + i`` are a pair; after ``2 half - 1`` turns each has met each.
    """
    if isinstance(half, int):
        places = np.arange(2 * half)
        order = np.where(places < half, places - 1, places + 1)
        if half > 1:
            order[1], order[-1] = half, half - 1
        return b.constant(np.array([0, *order[1:]] if half > 1 else places, np.int64))
    size = b.Mul(half, [2])
    number = b.Range(0, b.scalar(size), 1)
    order = b.Where(b.Less(number, half), b.Sub(number, 1), b.Add(number, 1))
    order = b.Where(b.Equal(number, 1), half, order)
    last = b.And(b.Equal(number, b.Sub(size, [1])), b.Greater(half, [1]))
    order = b.Where(last, b.Sub(half, [1]), order)
    return b.Where(b.Equal(number, 0), 0, order)


def _rotated(b: Block, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The columns of ``x @ v`` and of ``v``, as rows, for which those of ``x @ v`` are orthogonal.

    Args:
        b: where the nodes go.
        x: float64 ``[..., m, n]``.

    Returns:
        ``[..., k, m]`` and ``[..., k, n]``, where ``k`` is ``n``, or one more if that is odd: a
        column of zeros is added then.
    """
    rows, columns = b.dim(x, -2), b.dim(x, -1)
    turned = swapped(b, x)
    eye = identity(b, x)
    if stack := [b.dim(x, axis) for axis in range(len(x.shape or ()) - 2)]:
        eye = b.Expand(eye, b.vector([*stack, 1, 1]))
    both = b.Concat(turned, eye, axis=-1)
    odd = columns % 2 if isinstance(columns, int) else b.Mod(columns, [2])
    start = both
    if isinstance(odd, ir.Value) or odd:
        start = b.Pad(both, b.vector([*[0] * (2 * len(stack) + 2), odd, 0]))
    half = (columns + 1) // 2 if isinstance(columns, int) else b.Div(b.Add(columns, [1]), [2])
    turns, cut = _turns(b, half), _length(b, rows)
    halves = b.vector([half, half])

    count = b.Max(b.Sub(b.Mul(_length(b, half), [2]), [1]), [0])

    def turn(inner: Block, index: ir.Value, held: ir.Value, most: ir.Value) -> Any:
        return _step(inner, held, most, halves, cut, turns), []

    def sweep(inner: Block, index: ir.Value, held: ir.Value) -> Any:
        after, most = loop(inner, count, [held, inner.constant(0.0, _DOUBLE)], turn)
        return [inner.Greater(most, _ORTHOGONAL), after], []

    last = loop(b, _SWEEPS, [start], sweep, condition=b.constant(True))[0]
    images, vectors = b.Slice(last, [0], cut, [-1]), b.Slice(last, cut, [2**63 - 1], [-1])
    for made in (images, vectors):
        made.shape = ir.Shape([None] * len(x.shape or ()))
    return images, vectors


def _step(
    b: Block, held: ir.Value, most: ir.Value, halves: ir.Value, cut: ir.Value, turns: ir.Value
) -> list[ir.Value]:
    """Rotate every pair of rows so that they are orthogonal, and put the next pairs together.

    ``most`` is the greatest cosine between two rows so far, of shape [].
    """
    one, other = b.Split(held, halves, axis=-2, outputs=2)
    first, second = (b.Slice(v, [0], cut, [-1]) for v in (one, other))
    product = b.ReduceSum(b.Mul(first, second), [-1])
    distance = b.ReduceSum(b.Mul(b.Add(second, first), b.Sub(second, first)), [-1])
    none = b.Equal(product, 0.0)
    norms = [b.Sqrt(b.ReduceSum(b.Mul(v, v), [-1])) for v in (first, second)]
    angle = b.Div(b.Abs(product), b.Where(none, 1.0, b.Mul(*norms)))
    flat = b.Concat(b.Reshape(angle, [-1]), b.Reshape(most, [1]), axis=0)
    ratio = b.Div(distance, b.Where(none, 1.0, b.Mul(product, 2.0)))
    root = b.Sqrt(b.Add(b.Mul(ratio, ratio), 1.0))
    tangent = b.Reciprocal(b.Add(b.Abs(ratio), root))
    tangent = b.Where(b.Less(ratio, 0.0), b.Neg(tangent), tangent)
    tangent = b.Where(none, 0.0, tangent)
    cosine = b.Reciprocal(b.Sqrt(b.Add(b.Mul(tangent, tangent), 1.0)))
    sine = b.Mul(cosine, tangent)
    upper = b.Sub(b.Mul(one, cosine), b.Mul(other, sine))
    lower = b.Add(b.Mul(one, sine), b.Mul(other, cosine))
    turned = b.Gather(b.Concat(upper, lower, axis=-2), turns, axis=-2)
    return [turned, b.ReduceMax(flat, keepdims=0)]


def _lengths(b: Block, rows: ir.Value) -> ir.Value:
    return b.Sqrt(b.ReduceSum(b.Mul(rows, rows), [-1], keepdims=0))


def singular_values(b: Block, x: ir.Value) -> ir.Value:
    """The singular values, the greatest first, in the dtype of ``x``.

    Args:
        b: where the nodes go.
        x: floats ``[..., m, n]``.

    Returns:
        ``[..., min(m, n)]``.
    """
    rows, columns = b.dim(x, -2), b.dim(x, -1)
    wide = isinstance(rows, int) and isinstance(columns, int) and rows < columns
    matrix = b.cast(swapped(b, x) if wide else x, _DOUBLE)
    values = b.cast(_sorted(b, _lengths(b, _rotated(b, matrix)[0]), _least(b, x), True), x)
    values.shape = ir.Shape([None] * (len(x.shape or ()) - 1))
    return values


def _sorted(b: Block, values: ir.Value, count: Size, descending: bool) -> ir.Value:
    return b.TopK(values, _length(b, count), largest=int(descending), outputs=2)[0]


def _eigenvalues(b: Block, x: ir.Value, upper: bool) -> ir.Value:
    """Those of a symmetric matrix of which one triangle is read, the least first.

    The matrix is made positive by a multiple of the identity; its singular values are its
    eigenvalues then.
    """
    matrix = b.cast(x, _DOUBLE)
    matrix = b.Add(
        triangle(b, matrix, upper), swapped(b, triangle(b, matrix, upper, 1 if upper else -1))
    )
    shift = b.Sqrt(b.ReduceSum(b.Mul(matrix, matrix), [-2, -1]))
    values = _lengths(b, _rotated(b, b.Add(matrix, b.Mul(identity(b, matrix), shift)))[0])
    # an odd matrix has got a column of zeros, whose singular value is the least of all
    ordered = _sorted(b, values, b.dim(x, -1), True)
    return _sorted(b, b.Sub(ordered, b.Squeeze(shift, [-1])), b.dim(x, -1), False)


def _refuse(vectors: str) -> None:
    raise ValueError(
        f"its {vectors} are defined up to a sign, which ONNX cannot choose as LAPACK does: use "
        "torch.linalg.svdvals, eigvalsh, pinv, cond or matrix_rank, which need none"
    )


@lowers(aten._linalg_svd.default)
def _linalg_svd(
    b: Block,
    A: ir.Value,
    full_matrices: bool = False,
    compute_uv: bool = True,
    driver: str | None = None,
) -> tuple[None, ir.Value, None]:
    if compute_uv and b.read - {1}:
        _refuse("singular vectors")
    return None, singular_values(b, A), None


@lowers(aten.linalg_svdvals.default)
def linalg_svdvals(b: Block, A: ir.Value, driver: str | None = None) -> ir.Value:
    return singular_values(b, A)


@lowers(aten._linalg_eigh.default)
def _linalg_eigh(
    b: Block, A: ir.Value, UPLO: str = "L", compute_v: bool = True
) -> tuple[ir.Value, None]:
    if compute_v and b.read - {0}:
        _refuse("eigenvectors")
    return b.cast(_eigenvalues(b, A, UPLO.upper() == "U"), A), None


@lowers(aten.linalg_eigvalsh.default)
def linalg_eigvalsh(b: Block, x: ir.Value, UPLO: str = "L") -> ir.Value:
    return _linalg_eigh(b, x, UPLO, compute_v=False)[0]


@lowers(aten.linalg_pinv.atol_rtol_tensor)
def linalg_pinv(
    b: Block,
    x: ir.Value,
    atol: ir.Value | None = None,
    rtol: ir.Value | None = None,
    hermitian: bool = False,
) -> ir.Value:
    """``v (1 / s²) (x v)ᵀ`` over the singular values that count."""
    matrix = b.cast(x, _DOUBLE)
    if hermitian:
        matrix = b.Add(triangle(b, matrix, False), swapped(b, triangle(b, matrix, False, -1)))
    images, vectors = _rotated(b, matrix)
    lengths = _lengths(b, images)
    greatest = b.ReduceMax(lengths, [-1], keepdims=1)
    limit = b.Max(*(b.Mul(v, by) for v, by in zip(_limits(b, x, atol, rtol), (1.0, greatest),
                                                  strict=True)))  # fmt: skip
    kept = b.Greater(lengths, limit)
    weights = b.Where(kept, b.Reciprocal(b.Where(kept, b.Mul(lengths, lengths), 1.0)), 0.0)
    weighted = b.Mul(images, b.Unsqueeze(weights, [-1]))
    return b.cast(b.MatMul(swapped(b, vectors), weighted), x)


def _limits(
    b: Block, x: ir.Value, atol: ir.Value | None, rtol: ir.Value | None
) -> tuple[ir.Value, ir.Value]:
    """What a singular value must exceed, and by how much of the greatest, ``[..., 1]``."""
    absolute = b.constant([0.0], _DOUBLE)
    if atol is not None:
        absolute = b.Unsqueeze(b.cast(atol, _DOUBLE), [-1])
    if rtol is not None:
        return absolute, b.Unsqueeze(b.cast(rtol, _DOUBLE), [-1])
    size = b.Max(*(_length(b, b.dim(x, axis)) for axis in (-2, -1)))
    relative = b.Mul(b.cast(size, _DOUBLE), torch.finfo(torch_dtype(x.dtype)).eps)
    if atol is not None:
        relative = b.Where(b.Greater(absolute, 0.0), 0.0, relative)
    return absolute, relative
