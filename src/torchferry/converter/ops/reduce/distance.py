"""Distances and similarities of vectors."""

from __future__ import annotations

from math import inf

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.windows import arange
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__ = ["vector_norm"]

_HALVES = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}


def vector_norm(b: Block, x: ir.Value, p: float, axis: int, keepdim: bool) -> ir.Value:
    """The p-norm along one axis."""
    axes, kept = b.constant([axis]), None if keepdim else 0
    if p == 2:
        return b.ReduceL2(x, axes, keepdims=kept)
    if p == 1:
        return b.ReduceL1(x, axes, keepdims=kept)
    if p == 0:
        counted = b.cast(b.Not(b.Equal(x, b.constant(0, x))), x)
        return b.ReduceSum(counted, axes, keepdims=kept)
    size = b.Abs(x)
    if p == inf:
        return b.ReduceMax(size, axes, keepdims=kept)
    if p == -inf:
        return b.ReduceMin(size, axes, keepdims=kept)
    powers = b.ReduceSum(b.Pow(size, b.constant(p, x)), axes, keepdims=kept)
    return b.Pow(powers, b.constant(1 / p, x))


def _single(b: Block, *values: ir.Value) -> list[ir.Value]:
    """Half precision is widened: squares of what it holds are more than it holds."""
    return [b.cast(v, ir.DataType.FLOAT) if v.dtype in _HALVES else v for v in values]


@lowers(aten.cosine_similarity.default, promote="default", operands=("x1", "x2"))
def cosine_similarity(
    b: Block, x1: ir.Value, x2: ir.Value, dim: int = 1, eps: float = 1e-8
) -> ir.Value:
    # both have the rank of the broadcast result before the axis is counted
    rank = max(1, *(len(v.shape or ()) for v in (x1, x2)))
    axis = range(rank)[dim] - rank
    dtype = x1.dtype
    x1, x2 = _single(b, x1, x2)
    x1, x2 = (_raised(b, v, rank) for v in (x1, x2))
    unit = [
        b.Div(v, b.Max(vector_norm(b, v, 2, axis, True), b.constant(eps, v)))
        for v in (_repeated(b, x1, x2, axis), _repeated(b, x2, x1, axis))
    ]
    result = b.ReduceSum(b.Mul(*unit), b.constant([axis]), keepdims=0)
    return result if dtype is None else b.cast(result, dtype)


def _raised(b: Block, x: ir.Value, rank: int) -> ir.Value:
    missing = rank - len(x.shape or ())
    return b.Unsqueeze(x, [*range(missing)]) if missing else x


def _repeated(b: Block, x: ir.Value, other: ir.Value, axis: int) -> ir.Value:
    """One number beside a vector is a vector of that number."""
    size = b.dim(other, axis)
    if b.dim(x, axis) != 1 or size == 1:
        return x
    return b.Expand(x, b.vector([size, *[1] * (-1 - axis)]))


@lowers(aten.pairwise_distance.default, promote="default", operands=("x1", "x2"))
def pairwise_distance(
    b: Block,
    x1: ir.Value,
    x2: ir.Value,
    p: float = 2.0,
    eps: float = 1e-6,
    keepdim: bool = False,
) -> ir.Value:
    difference = b.Sub(x1, x2)
    if not is_floating(difference):  # eps is a float
        difference = b.cast(difference, ir.DataType.FLOAT)
    if eps:
        difference = b.Add(difference, b.constant(eps, difference))
    return vector_norm(b, difference, p, -1, keepdim)


@lowers(aten.cdist.default, aten._cdist_forward.default)
def cdist(
    b: Block, x1: ir.Value, x2: ir.Value, p: float = 2.0, compute_mode: int | None = None
) -> ir.Value:
    difference = b.Sub(b.Unsqueeze(x1, [-2]), b.Unsqueeze(x2, [-3]))
    return vector_norm(b, difference, p, -1, False)


@lowers(aten.pdist.default, aten._pdist_forward.default)
def pdist(b: Block, x: ir.Value, p: float = 2.0) -> ir.Value:
    size = b.dim(x, 0)
    if isinstance(size, int):
        first, second = (b.constant(v) for v in np.triu_indices(size, 1))
    else:
        steps = arange(b, size)
        above = b.NonZero(b.Less(b.Unsqueeze(steps, [1]), steps))
        first, second = b.Gather(above, 0, axis=0), b.Gather(above, 1, axis=0)
    difference = b.Sub(b.Gather(x, first), b.Gather(x, second))
    return vector_norm(b, difference, p, -1, False)
