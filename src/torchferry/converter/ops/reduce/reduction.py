"""Sums, products, extremes and truth along axes.

onnxruntime's reductions over floats pass NaN by, and those over no elements give what is left of
the start value; PyTorch's give NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.reduce.cumulative import LOWEST, multiply, nothing, running
from torchferry.converter.write.kernel import is_floating, single
from torchferry.seams.operators import aten

__all__ = ["all_axes", "any_true", "extreme", "size_of", "total"]

Dtype = torch.dtype | None
Dims = Sequence[int] | int | None
Pair = tuple[ir.Value, ir.Value]

_BOOL, _UINT8 = ir.DataType.BOOL, ir.DataType.UINT8
_FLOAT, _INT32, _INT64 = ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64
# onnxruntime has no kernel; the wider dtype holds the same values.
_WIDER = {
    _BOOL: _UINT8, ir.DataType.INT16: _INT32, ir.DataType.UINT16: _INT32,
    ir.DataType.UINT32: _INT64,
}  # fmt: skip
_NARROW = {
    _BOOL, _UINT8, _INT32, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT16,
    ir.DataType.UINT32,
}  # fmt: skip
_BOOL_REDUCTION = 20  # the first opset whose ReduceMax and ReduceMin take bool


# Axes --------------------------------------------------------------------------------------------


def _rank(x: ir.Value) -> int:
    if x.shape is None:
        raise ValueError("the rank of what is reduced is not known")
    return len(x.shape)


def all_axes(x: ir.Value, dim: Dims) -> list[int]:
    """The axes that ``dim`` names, from 0 on; all of them for ``None`` and an empty list."""
    rank = _rank(x)
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(rank))
    if not rank:
        return []
    return [range(rank)[axis] for axis in ([dim] if isinstance(dim, int) else dim)]


def _reduced(b: Block, op_type: str, x: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
    """One ONNX reduction; over everything when all axes are named."""
    named = [] if len(axes) == _rank(x) else [list(axes)]
    return b.add(op_type, (x, *named), keepdims=int(keepdim))


def size_of(
    b: Block, x: ir.Value, axes: Sequence[int], dtype: ir.DataType | ir.Value | None
) -> int | ir.Value:
    """How many elements the axes have: an int, or a value of shape [] in the dtype."""
    sizes = [b.dim(x, axis) for axis in axes]
    if not any(isinstance(size, ir.Value) for size in sizes):
        return int(torch.Size(size for size in sizes if isinstance(size, int)).numel())
    if len(sizes) == 1:
        return b.cast(b.scalar(sizes[0]), dtype or _FLOAT)
    return b.cast(b.ReduceProd(b.vector(sizes), keepdims=0), dtype or _FLOAT)


def _may_be_empty(x: ir.Value) -> bool:
    return any(not isinstance(size, int) or size == 0 for size in x.shape or ())


def _wider(b: Block, x: ir.Value) -> ir.Value:
    return b.cast(x, _WIDER[x.dtype]) if x.dtype is not None and x.dtype in _WIDER else x


# Sums --------------------------------------------------------------------------------------------


def total(b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False) -> ir.Value:
    """The sum, in the dtype of ``x``, which is a float, int32 or int64.

    onnxruntime 1.32 adds int64 in float64, which rounds sums beyond 2**53, and multiplies
    matrices of int64 in int64: products with ones are exact.
    """
    axes = all_axes(x, dim)
    if x.dtype != _INT64 or not axes or _is_widened(x):
        return _reduced(b, "ReduceSum", x, axes, keepdim)
    for axis in sorted(axes, reverse=True):
        rank = _rank(x)
        if axis != rank - 1:
            x = b.Transpose(x, perm=[*range(axis), *range(axis + 1, rank), axis])
        ones = b.Expand(b.constant([1]), b.vector([b.dim(x, rank - 1), 1]))
        x = b.Squeeze(b.MatMul(x, ones), [rank - 1])
    return b.Unsqueeze(x, sorted(axes)) if keepdim else x


def _is_widened(x: ir.Value) -> bool:
    """Whether the elements come from a narrower dtype: no sum of them is beyond 2**53."""
    node = x.producer()
    source = node.inputs[0] if node is not None and node.op_type == "Cast" else None
    return source is not None and source.dtype in _NARROW


def _summand(b: Block, x: ir.Value, dtype: Dtype) -> ir.Value:
    """``x`` in the dtype that is summed: integers as int64."""
    if dtype is not None:
        x = b.cast(x, dtype)
    return x if is_floating(x) else b.cast(x, _INT64)


@lowers(aten.sum.dim_IntList)
def sum(
    b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    return total(b, _summand(b, x, dtype), dim, keepdim)


@lowers(aten.sum.default)
def sum_all(b: Block, x: ir.Value, dtype: Dtype = None) -> ir.Value:
    return sum(b, x, dtype=dtype)


@lowers(aten.nansum.default)
def nansum(
    b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    operand = b.Where(b.IsNaN(x), 0, x) if is_floating(x) else x
    return sum(b, operand, dim, keepdim, dtype)


@lowers(aten.mean.default)
def mean_all(b: Block, x: ir.Value, dtype: Dtype = None) -> ir.Value:
    return mean(b, x, None, False, dtype)


@lowers(aten.mean.dim)
def mean(
    b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    operand = x if dtype is None else b.cast(x, dtype)
    axes = all_axes(x, dim)
    if all(isinstance(b.dim(x, axis), int) and b.dim(x, axis) for axis in axes):
        return _reduced(b, "ReduceMean", operand, axes, keepdim)
    # the mean of nothing is NaN, where ReduceMean gives 0
    wide = single(b, operand)
    return b.Div(total(b, wide, axes, keepdim), _count(b, wide, axes))


def _count(b: Block, x: ir.Value, axes: Sequence[int]) -> Any:
    return size_of(b, x, axes, x.dtype)


@lowers(aten.nanmean.default)
def nanmean(
    b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    operand = x if dtype is None else b.cast(x, dtype)
    wide = single(b, operand)
    nan = b.IsNaN(wide)
    counted = total(b, b.cast(b.Not(nan), wide), dim, keepdim)
    return b.Div(total(b, b.Where(nan, 0, wide), dim, keepdim), counted)


@lowers(aten.count_nonzero.dim_IntList, aten.count_nonzero.default)
def count_nonzero(b: Block, x: ir.Value, dim: Dims = None) -> ir.Value:
    return total(b, b.cast(b.cast(x, _BOOL), _INT64), dim)


@lowers(aten.logsumexp.default, aten.special_logsumexp.default, promote="float", operands=("x",))
def logsumexp(b: Block, x: ir.Value, dim: Dims, keepdim: bool = False) -> ir.Value:
    finite, axes = b.Max(single(b, x), LOWEST), all_axes(x, dim)
    if 0 < len(axes) == _rank(x):  # of all, onnxruntime loses a NaN beside an infinity
        rows = b.Unsqueeze(finite, [0])
        result = _reduced(b, "ReduceLogSumExp", rows, [axis + 1 for axis in axes], keepdim)
        result = b.Squeeze(result, [0])
    else:
        result = _reduced(b, "ReduceLogSumExp", finite, axes, keepdim)
    return b.Where(b.LessOrEqual(result, LOWEST), -float("inf"), result)


# Products ----------------------------------------------------------------------------------------


def _product(b: Block, x: ir.Value, dim: Dims, keepdim: bool, dtype: Dtype) -> ir.Value:
    operand = _summand(b, x, dtype)
    axes = all_axes(operand, dim)
    if is_floating(operand) or not axes:
        return _reduced(b, "ReduceProd", operand, axes, keepdim)
    # onnxruntime multiplies integers as doubles, which is wrong from 2**53 on
    flat = b.Reshape(operand, [-1]) if dim is None else operand
    axis = 0 if dim is None else axes[0]
    (last,) = running(b, flat, axis, [nothing(b, flat, axis, "ReduceProd")], multiply, 0)
    return b.Unsqueeze(last, [axis]) if keepdim else last


@lowers(aten.prod.default)
def prod(b: Block, x: ir.Value, dtype: Dtype = None) -> ir.Value:
    return _product(b, x, None, False, dtype)


@lowers(aten.prod.dim_int)
def prod_dim(
    b: Block, x: ir.Value, dim: int, keepdim: bool = False, dtype: Dtype = None
) -> ir.Value:
    return _product(b, x, dim, keepdim, dtype)


# Truth -------------------------------------------------------------------------------------------


def _truth(op_type: str) -> Callable[[Block, ir.Value, Sequence[int], bool], ir.Value]:
    def reduce(b: Block, mask: ir.Value, axes: Sequence[int], keepdim: bool) -> ir.Value:
        if b.opset >= _BOOL_REDUCTION and not _may_be_empty(mask):
            return _reduced(b, op_type, mask, axes, keepdim)
        # there is no answer for an empty bool axis, while bytes have a start value
        return b.cast(_reduced(b, op_type, b.cast(mask, _UINT8), axes, keepdim), _BOOL)

    return reduce


any_true, _all_true = _truth("ReduceMax"), _truth("ReduceMin")


def _quantifier(
    reduce: Callable[[Block, ir.Value, Sequence[int], bool], ir.Value],
) -> Callable[..., ir.Value]:
    def write(b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False) -> ir.Value:
        truth = b.cast(x, _BOOL)
        if isinstance(dim, (list, tuple)) and not dim:
            return truth  # over no axes at all, which other reductions take for all axes
        axes = all_axes(x, dim)
        return reduce(b, truth, axes, keepdim) if _rank(x) else truth

    return write


_ANY = (aten.any.dims, aten.any.dim, aten.any.default, aten._is_any_true.default)
_ALL = (aten.all.dims, aten.all.dim, aten.all.default, aten._is_all_true.default)
lowers(*_ANY)(_quantifier(any_true))
lowers(*_ALL)(_quantifier(_all_true))


# Extremes ----------------------------------------------------------------------------------------


def extreme(
    b: Block, op_type: str, x: ir.Value, axes: Sequence[int], keepdim: bool = False
) -> ir.Value:
    """The greatest or least element, NaN where there is one.

    Args:
        b: where the nodes go.
        op_type: ``ReduceMax`` or ``ReduceMin``.
        x: of any dtype.
        axes: the axes, from 0 on; at least one, unless ``x`` has none.
        keepdim: keep them, with size 1.
    """
    if not _rank(x):
        return b.Identity(x)
    wide = _wider(b, x)
    best = _reduced(b, op_type, wide, axes, keepdim)
    if is_floating(x):
        best = b.Where(any_true(b, b.IsNaN(wide), axes, keepdim), float("nan"), best)
    return b.cast(best, x)


def _place(b: Block, op_type: str, x: ir.Value, axis: int, keepdim: bool) -> ir.Value:
    """Where the first extreme is; the first NaN where there is one."""
    wide = _wider(b, x)
    places = b.add(op_type, (wide,), axis=axis, keepdims=int(keepdim))
    if not is_floating(x):
        return places
    nan = b.cast(b.IsNaN(wide), _UINT8)
    first = b.ArgMax(nan, axis=axis, keepdims=int(keepdim))
    found = b.cast(b.ReduceMax(nan, [axis], keepdims=int(keepdim)), _BOOL)
    return b.Where(found, first, places)


def _reduction(op_type: str) -> Callable[..., ir.Value]:
    def write(b: Block, x: ir.Value, dim: Dims = None, keepdim: bool = False) -> ir.Value:
        return extreme(b, op_type, x, all_axes(x, dim), keepdim)

    return write


def _with_place(op_type: str, place: str) -> Callable[..., Pair]:
    def write(b: Block, x: ir.Value, dim: int, keepdim: bool = False) -> Pair:
        if not _rank(x):
            return b.Identity(x), b.constant(0)
        axes = all_axes(x, dim)
        return extreme(b, op_type, x, axes, keepdim), _place(b, place, x, axes[0], keepdim)

    return write


def _argument(op_type: str) -> Callable[..., ir.Value]:
    def write(b: Block, x: ir.Value, dim: int | None = None, keepdim: bool = False) -> ir.Value:
        rank = _rank(x)
        if dim is not None and rank:
            return _place(b, op_type, x, range(rank)[dim], keepdim)
        place = _place(b, op_type, b.Reshape(x, [-1]), 0, False)
        return b.Reshape(place, [1] * rank) if keepdim and rank else place

    return write


lowers(aten.amax.default, aten.max.default)(_reduction("ReduceMax"))
lowers(aten.amin.default, aten.min.default)(_reduction("ReduceMin"))
lowers(aten.max.dim)(_with_place("ReduceMax", "ArgMax"))
lowers(aten.min.dim)(_with_place("ReduceMin", "ArgMin"))
lowers(aten.argmax.default)(_argument("ArgMax"))
lowers(aten.argmin.default)(_argument("ArgMin"))


@lowers(aten.aminmax.default)
def aminmax(b: Block, x: ir.Value, dim: int | None = None, keepdim: bool = False) -> Pair:
    axes = all_axes(x, dim)
    if not _rank(x):
        return b.Identity(x), b.Identity(x)
    return (extreme(b, "ReduceMin", x, axes, keepdim), extreme(b, "ReduceMax", x, axes, keepdim))
