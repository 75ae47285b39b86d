"""Variances, deviations, norms and distances."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.linalg.singular import singular_values
from torchferry.converter.ops.reduce.reduction import Dims, all_axes, extreme, mean, size_of, total
from torchferry.converter.write.kernel import single
from torchferry.seams.operators import aten

__all__ = ["vector_norm"]

Dtype = torch.dtype | None
Number = int | float | ir.Value | None
Pair = tuple[ir.Value, ir.Value]

# Variance ----------------------------------------------------------------------------------------


def _variance(
    b: Block, x: ir.Value, dim: Dims, correction: Number, keepdim: bool
) -> tuple[ir.Value, ir.Value]:
    """The variance, and the mean with its axes kept."""
    wide, axes = single(b, x), all_axes(x, dim)
    center = mean(b, wide, axes, True) if axes else wide
    distance = b.Sub(wide, center)
    named = [] if len(axes) == len(x.shape or ()) else [axes]
    squares = b.ReduceSumSquare(distance, *named, keepdims=int(keepdim))
    return b.Div(squares, _freedom(b, wide, axes, 1 if correction is None else correction)), center


def _freedom(b: Block, x: ir.Value, axes: Sequence[int], correction: Any) -> Any:
    """How many elements, less the correction, and not below 0."""
    count = size_of(b, x, axes, x.dtype)
    if isinstance(count, ir.Value) or isinstance(correction, ir.Value):
        left = b.Sub(b.cast(count, x), b.cast(correction, x))
        return b.Max(left, 0)
    return max(count - correction, 0)


def _spread(root: bool, with_mean: bool) -> Callable[..., Any]:
    """Variance or deviation, with the mean or without."""

    def write(
        b: Block, x: ir.Value, dim: Dims = None, correction: Number = None, keepdim: bool = False
    ) -> Any:
        variance, center = _variance(b, x, dim, correction, keepdim)
        result = b.Sqrt(variance) if root else variance
        if not with_mean:
            return result
        axes = all_axes(x, dim)
        return result, center if keepdim or not axes else b.Squeeze(center, axes)

    return write


def _register(name: str, root: bool, with_mean: bool) -> None:
    write = _spread(root, with_mean)

    def along(
        b: Block, x: ir.Value, dim: Dims, unbiased: bool = True, keepdim: bool = False
    ) -> Any:
        return write(b, x, dim, int(unbiased), keepdim)

    def whole(b: Block, x: ir.Value, unbiased: bool = True) -> Any:
        return write(b, x, None, int(unbiased))

    packet = getattr(aten, name)
    lowers(packet.correction)(write)
    lowers(packet.dim)(along)
    lowers(packet.default)(whole)


for _name in ("var", "std", "var_mean", "std_mean"):
    _register(_name, _name.startswith("std"), _name.endswith("mean"))


# Norms -------------------------------------------------------------------------------------------


def vector_norm(
    b: Block, x: ir.Value, ord: float = 2, dim: Dims = None, keepdim: bool = False
) -> ir.Value:
    """The ``ord`` norm of the vectors along axes.

    Args:
        b: where the nodes go.
        x: floats; halves are summed in float32, which the result is then.
        ord: any number, infinities among them.
        dim: the axes, taken as one; all when ``None`` or empty.
        keepdim: keep them, with size 1.
    """
    wide, axes = single(b, x), all_axes(x, dim)
    named = [] if len(axes) == len(x.shape or ()) else [axes]
    if ord == 2:
        return b.ReduceL2(wide, *named, keepdims=int(keepdim))
    if ord == 1:
        return b.ReduceL1(wide, *named, keepdims=int(keepdim))
    if ord == 0:
        return total(b, b.cast(b.cast(wide, ir.DataType.BOOL), wide), axes, keepdim)
    size = b.Abs(wide)
    if math.isinf(ord):
        return extreme(b, "ReduceMax" if ord > 0 else "ReduceMin", size, axes, keepdim)
    powers = total(b, b.Pow(size, ord), axes, keepdim)
    return b.Pow(powers, b.constant(1 / ord, wide))


def _order(ord: Any) -> float:
    if isinstance(ord, ir.Value):
        raise ValueError("the order of a norm is computed, give it as a number")
    return float(2 if ord is None else ord)


@lowers(aten.linalg_vector_norm.default)
def linalg_vector_norm(
    b: Block,
    x: ir.Value,
    ord: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Dtype = None,
) -> ir.Value:
    operand = x if dtype is None else b.cast(x, dtype)
    return vector_norm(b, operand, _order(ord), dim, keepdim)


@lowers(aten.linalg_vector_norm.default, complex=True)
def complex_vector_norm(
    b: Block,
    x: ir.Value,
    ord: Any = 2,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Dtype = None,
) -> ir.Value:
    return vector_norm(b, b.ReduceL2(x, [-1], keepdims=0), _order(ord), dim, keepdim)


@lowers(aten.norm.Scalar)
def norm(b: Block, x: ir.Value, p: Any = 2) -> ir.Value:
    return vector_norm(b, x, _order(p))


@lowers(aten.norm.ScalarOpt_dim)
def norm_along(b: Block, x: ir.Value, p: Any, dim: Dims, keepdim: bool = False) -> ir.Value:
    return vector_norm(b, x, _order(p), dim, keepdim)


@lowers(aten.norm.ScalarOpt_dim_dtype)
def norm_dtype(
    b: Block, x: ir.Value, p: Any, dim: Dims, keepdim: bool, dtype: torch.dtype
) -> ir.Value:
    return vector_norm(b, b.cast(x, dtype), _order(p), dim, keepdim)


@lowers(aten.norm.ScalarOpt_dtype)
def norm_whole_dtype(b: Block, x: ir.Value, p: Any, dtype: torch.dtype) -> ir.Value:
    return vector_norm(b, b.cast(x, dtype), _order(p))


@lowers(aten.frobenius_norm.dim)
def frobenius_norm(b: Block, x: ir.Value, dim: Dims, keepdim: bool = False) -> ir.Value:
    return vector_norm(b, x, 2, dim, keepdim)


def matrix_norm(b: Block, x: ir.Value, ord: Any, dim: Sequence[int], keepdim: bool) -> ir.Value:
    """The norm of the matrices in two axes."""
    row, column = all_axes(x, list(dim))
    if ord == "fro":
        return vector_norm(b, x, 2, [row, column], keepdim)
    if ord == "nuc" or abs(ord) == 2:
        return _spectral(b, x, ord, (row, column), keepdim)
    summed, kept = (row, column) if abs(ord) == 1 else (column, row)
    sums = b.ReduceL1(single(b, x), [summed], keepdims=1)
    best = extreme(b, "ReduceMax" if ord > 0 else "ReduceMin", sums, [kept], True)
    return best if keepdim else b.Squeeze(best, sorted((row, column)))


def _spectral(b: Block, x: ir.Value, ord: Any, axes: tuple[int, int], keepdim: bool) -> ir.Value:
    """The sum ("nuc"), the greatest (2) or the least (-2) of the singular values."""
    others = [axis for axis in range(len(x.shape or ())) if axis not in axes]
    values = singular_values(b, single(b, b.Transpose(x, perm=[*others, *axes])))
    if ord == "nuc":
        norms = b.ReduceSum(values, [-1], keepdims=0)
    else:
        norms = extreme(b, "ReduceMax" if ord > 0 else "ReduceMin", values, [-1], False)
    return b.Unsqueeze(norms, sorted(axes)) if keepdim else norms


@lowers(aten.linalg_matrix_norm.default, aten.linalg_matrix_norm.str_ord)
def linalg_matrix_norm(
    b: Block,
    x: ir.Value,
    ord: Any = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    dtype: Dtype = None,
) -> ir.Value:
    return matrix_norm(b, x if dtype is None else b.cast(x, dtype), ord, dim, keepdim)


@lowers(aten.linalg_norm.default, aten.linalg_norm.ord_str)
def linalg_norm(
    b: Block,
    x: ir.Value,
    ord: Any = None,
    dim: Dims = None,
    keepdim: bool = False,
    dtype: Dtype = None,
) -> ir.Value:
    operand = x if dtype is None else b.cast(x, dtype)
    axes = all_axes(x, dim)
    if ord is None or (len(axes) == 1 and not isinstance(ord, str)):
        return vector_norm(b, operand, _order(ord), dim, keepdim)
    return matrix_norm(b, operand, ord, axes if dim is None else _listed(dim), keepdim)


def _listed(dim: Dims) -> list[int]:
    return [dim] if isinstance(dim, int) else list(dim or ())


# Distances and sums of few ---------------------------------------------------------------------


@lowers(aten.dist.default, promote="default", operands=("x", "other"))
def dist(b: Block, x: ir.Value, other: ir.Value, p: Any = 2) -> ir.Value:
    return vector_norm(b, b.Sub(x, other), _order(p))


@lowers(aten.renorm.default)
def renorm(b: Block, x: ir.Value, p: Any, dim: int, maxnorm: Any) -> ir.Value:
    axes = all_axes(x, None)
    del axes[dim]
    wide = single(b, x)
    norms = vector_norm(b, wide, _order(p), axes, True) if axes else b.Abs(wide)
    # the 1e-7 is PyTorch's (aten/src/ATen/native/Normalization.cpp, renorm_scale_factor)
    scale = b.Div(b.cast(maxnorm, wide), b.Add(norms, 1e-7))
    return b.Mul(wide, b.Where(b.Greater(norms, maxnorm), scale, 1.0))
