"""Sums, means and products of complex tensors, along the axes that PyTorch counts."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.elementwise.arithmetic import hypot
from torchferry.converter.ops.elementwise.unary import atan2
from torchferry.converter.ops.rare.complex.complex_number import joined, pair, parts
from torchferry.converter.ops.reduce.reduction import size_of, total
from torchferry.converter.ops.shape.axes import axis_of, rank
from torchferry.seams.operators import aten

__all__: list[str] = []

Dims = Sequence[int] | int | None
Dtype = torch.dtype | None


def _parts(b: Block, x: ir.Value, dtype: Dtype) -> ir.Value:
    if dtype is None:
        return x
    if not dtype.is_complex:
        raise ValueError("it makes real numbers of complex ones, take .real before it")
    return pair(b, x, b.constant(0, dtype.to_real()))


def _axes(x: ir.Value, dim: Dims) -> list[int]:
    """The axes that are reduced, from 0 on; the one of the two parts is none of them."""
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(rank(x)))
    if not rank(x):
        return []
    return [axis_of(x, axis) for axis in ([dim] if isinstance(dim, int) else dim)]


@lowers(aten.sum.dim_IntList, complex=True)
def sum(
    b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    x = _parts(b, x, dtype)
    axes = _axes(x, dim)
    return total(b, x, axes, keepdim) if axes else x


@lowers(aten.sum.default, complex=True)
def sum_all(b: Block, x: ir.Value, dtype: Dtype = None) -> ir.Value:
    return sum(b, x, None, False, dtype)


@lowers(aten.mean.dim, complex=True)
def mean(
    b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    summed = sum(b, x, dim, keepdim, dtype)
    count = size_of(b, x, _axes(x, dim), summed)
    return b.Div(summed, count if isinstance(count, ir.Value) else float(count))


@lowers(aten.mean.default, complex=True)
def mean_all(b: Block, x: ir.Value, dtype: Dtype = None) -> ir.Value:
    return mean(b, x, None, False, dtype)


@lowers(aten.prod.dim_int, complex=True)
def prod(
    b: Block, x: ir.Value, dim: int | None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    """By the product of the moduli and the sum of the angles, in float64."""
    x = _parts(b, x, dtype)
    axes = _axes(x, dim)
    if not axes:
        return x
    real, imaginary = parts(b, b.cast(x, ir.DataType.DOUBLE))
    kept = int(keepdim)
    size = b.ReduceProd(hypot(b, real, imaginary), axes, keepdims=kept)
    angle = b.ReduceSum(atan2(b, imaginary, real), axes, keepdims=kept)
    return joined(b, b.Mul(size, b.Cos(angle)), b.Mul(size, b.Sin(angle)))


@lowers(aten.prod.default, complex=True)
def prod_all(b: Block, x: ir.Value, dtype: Dtype = None) -> ir.Value:
    return prod(b, x, None, False, dtype)


@lowers(aten.cumsum.default, complex=True)
def cumsum(b: Block, x: ir.Value, dim: int, dtype: Dtype = None) -> ir.Value:
    x = _parts(b, x, dtype)
    return b.CumSum(x, b.constant(axis_of(x, dim))) if rank(x) else x
