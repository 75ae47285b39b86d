"""Covariance and correlation of the rows of a matrix."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import rank
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__: list[str] = []


@lowers(aten.cov.default)
def cov(
    b: Block,
    x: ir.Value,
    correction: int = 1,
    fweights: ir.Value | None = None,
    aweights: ir.Value | None = None,
) -> ir.Value:
    return _without_ones(b, _matrix(b, x, correction, fweights, aweights))


@lowers(aten.corrcoef.default)
def corrcoef(b: Block, x: ir.Value) -> ir.Value:
    whole = _matrix(b, x, 1, None, None)
    if rank(x) < 2 or b.dim(x, 0) == 1:
        return _without_ones(b, b.Div(whole, whole))
    rows = b.dim(x, 0)
    own = b.ReduceSum(b.Mul(whole, b.cast(b.EyeLike(whole), whole)), b.vector([1]), keepdims=1)
    spread = b.Sqrt(b.Expand(own, b.vector([rows, 1])))
    scaled = b.Div(b.Div(whole, spread), b.Transpose(spread, perm=[1, 0]))
    return b.Clip(scaled, b.constant(-1.0, scaled), b.constant(1.0, scaled))


def _matrix(
    b: Block,
    x: ir.Value,
    correction: int,
    fweights: ir.Value | None,
    aweights: ir.Value | None,
) -> ir.Value:
    """The covariance of every two rows, [n, n]."""
    x = b.Unsqueeze(x, [0]) if rank(x) == 1 else b.Reshape(x, [1, 1]) if rank(x) == 0 else x
    x = x if is_floating(x) else b.cast(x, ir.DataType.FLOAT)
    weights = _weights(b, x, fweights, aweights)
    if weights is None:
        count = b.cast(b.scalar(b.dim(x, 1)), x)
        weighted, lost = x, b.constant(float(correction), x)
    else:
        count = b.ReduceSum(weights, keepdims=0)
        weighted, lost = b.Mul(x, weights), b.constant(float(correction), x)
        if aweights is not None and correction:
            squares = b.ReduceSum(b.Mul(weights, b.cast(aweights, x)), keepdims=0)
            lost = b.Div(b.Mul(lost, squares), count)
    mean = b.Div(b.ReduceSum(weighted, [1], keepdims=1), count)
    apart = b.Sub(x, mean)
    other = apart if weights is None else b.Mul(apart, weights)
    products = b.MatMul(apart, b.Transpose(other, perm=[1, 0]))
    return b.Div(products, b.Max(b.Sub(count, lost), b.constant(0.0, x)))


def _weights(
    b: Block, x: ir.Value, fweights: ir.Value | None, aweights: ir.Value | None
) -> ir.Value | None:
    """Both weights together; None of none."""
    given: list[Any] = [b.cast(w, x) for w in (fweights, aweights) if w is not None]
    if len(given) == 2:
        return b.Mul(*given)
    return given[0] if given else None


def _without_ones(b: Block, x: ir.Value) -> ir.Value:
    """Without its axes where it has one row."""
    return b.Squeeze(x, [0, 1]) if b.dim(x, 0) == 1 else x
