"""Running sums, products and extremes along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.control_flow import loop
from torchferry.converter.write.kernel import is_floating, is_integer, single
from torchferry.seams.operators import aten

__all__ = ["LOWEST", "multiply", "nothing", "running"]

Dtype = torch.dtype | None
Values = Sequence[ir.Value]

_INT32, _INT64 = ir.DataType.INT32, ir.DataType.INT64
# onnxruntime has no kernel; the wider dtype holds the same values.
_WIDER = {
    ir.DataType.BOOL: _INT32, ir.DataType.INT8: _INT32, ir.DataType.UINT8: _INT32,
    ir.DataType.INT16: _INT32, ir.DataType.UINT16: _INT32, ir.DataType.UINT32: _INT64,
}  # fmt: skip
# onnxruntime's ReduceLogSumExp takes 0 for the greatest where the first element is -inf. Sums of
# what is held at this are at most this again, in float32 and float64.
LOWEST = torch.finfo(torch.float32).min
_CUMPROD = 26  # the first opset that has the operator


def running(
    b: Block,
    x: ir.Value,
    axis: int,
    states: Sequence[ir.Value],
    step: Callable[..., Sequence[ir.Value]],
    kept: int,
) -> tuple[ir.Value, ...]:
    """A step over every slice along an axis, on what the steps before it left.

    A Loop that cuts the slices itself: onnxruntime's Scan refuses an axis of length 0, and divides
    by zero where another axis is empty.

    Args:
        b: where the nodes go.
        x: at least one axis.
        axis: the axis, from 0 on.
        states: what the first step is given.
        step: ``step(inner, *states, slice, index)`` writes one step; it returns the next states.
        kept: how many of the states are kept after every step.

    Returns:
        The last states, then every kept one, in the shape of ``x``.
    """
    size = b.dim(x, axis)

    def write(inner: Block, index: ir.Value, *now: ir.Value) -> tuple[Values, Values]:
        following = step(inner, *now, inner.Gather(x, index, axis=axis), index)
        return following, following[:kept]

    results = loop(b, size, states, write)
    last, every = results[: len(states)], results[len(states) :]
    rank = len(x.shape or ())
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    turned = [b.Transpose(value, perm=order) if axis else value for value in every]
    if isinstance(size, ir.Value) and kept:  # after no step at all the other axes are not known
        turned = [b.Reshape(value, b.shape(x), allowzero=1) for value in turned]
    return (*last, *turned)


def multiply(
    inner: Block, so_far: ir.Value, slice: ir.Value, index: ir.Value
) -> Sequence[ir.Value]:
    """The step of a product."""
    return [inner.Mul(so_far, slice)]


_ENDS = {"ReduceMin": "max", "ReduceMax": "min"}


def nothing(b: Block, x: ir.Value, axis: int, reduction: str) -> ir.Value:
    """What a reduction gives for an empty axis, in the shape of a slice: where a run begins."""
    if reduction in _ENDS and x.dtype is not None and is_integer(x):  # before 1.27 it is 0
        zeros = nothing(b, x, axis, "ReduceSum")
        return b.Add(zeros, b.constant(getattr(np.iinfo(x.dtype.numpy()), _ENDS[reduction]), x))
    return b.add(reduction, (b.Slice(x, [0], [0], [axis]), [axis]), keepdims=0)


def _wider(b: Block, x: ir.Value) -> ir.Value:
    return b.cast(x, _WIDER[x.dtype]) if x.dtype is not None and x.dtype in _WIDER else x


def _operand(b: Block, x: ir.Value, dtype: Dtype) -> ir.Value:
    """Integers are summed as int64."""
    if dtype is not None:
        return b.cast(x, dtype)
    integer = x.dtype is not None and (x.dtype in _WIDER or x.dtype == _INT32)
    return b.cast(x, _INT64) if integer else x


@lowers(aten.cumsum.default)
def cumsum(b: Block, x: ir.Value, dim: int, dtype: Dtype = None) -> ir.Value:
    operand = _operand(b, x, dtype)
    if not len(x.shape or ()):
        return b.Identity(operand)
    wide = _wider(b, operand)
    return b.CumSum(wide, dim)


@lowers(aten.cumprod.default)
def cumprod(b: Block, x: ir.Value, dim: int, dtype: Dtype = None) -> ir.Value:
    operand = _operand(b, x, dtype)
    rank = len(x.shape or ())
    if not rank:
        return b.Identity(operand)
    wide = _wider(b, operand)
    if b.opset >= _CUMPROD:
        return b.CumProd(wide, dim)
    axis = range(rank)[dim]
    return running(b, wide, axis, [nothing(b, wide, axis, "ReduceProd")], multiply, 1)[1]


@lowers(aten.logcumsumexp.default, aten._logcumsumexp.default)
def logcumsumexp(b: Block, x: ir.Value, dim: int) -> ir.Value:
    if not len(x.shape or ()):
        return b.Identity(x)

    def step(
        inner: Block, so_far: ir.Value, slice: ir.Value, index: ir.Value
    ) -> Sequence[ir.Value]:
        both = inner.Concat(inner.Unsqueeze(so_far, [0]), inner.Unsqueeze(slice, [0]), axis=0)
        return [inner.ReduceLogSumExp(both, [0], keepdims=0)]

    finite = b.Max(single(b, x), LOWEST)
    axis = range(len(x.shape or ()))[dim]
    first = nothing(b, finite, axis, "ReduceMax")  # of nothing: -inf, or the lowest
    _, sums = running(b, finite, axis, [b.Max(first, LOWEST)], step, 1)
    return b.Where(b.LessOrEqual(sums, LOWEST), -float("inf"), sums)


def _extremes(compare: str, start: str) -> Callable[..., tuple[ir.Value, ir.Value]]:
    """The extreme of all slices up to each, and where the last of them is."""

    def write(b: Block, x: ir.Value, dim: int) -> tuple[ir.Value, ir.Value]:
        if not len(x.shape or ()):
            return b.Identity(x), b.constant(0)
        axis = range(len(x.shape or ()))[dim]
        wide = _wider(b, x)
        floating = is_floating(wide)
        first = nothing(b, wide, axis, start)
        nowhere = b.cast(nothing(b, wide, axis, "ReduceSum"), _INT64)

        def step(
            inner: Block, best: ir.Value, place: ir.Value, slice: ir.Value, index: ir.Value
        ) -> Sequence[ir.Value]:
            better = inner.add(compare, (slice, best))
            if floating:  # NaN beats every number, and a later NaN an earlier one
                better = inner.Or(better, inner.IsNaN(slice))
            return [inner.Where(better, slice, best), inner.Where(better, index, place)]

        _, _, values, places = running(b, wide, axis, [first, nowhere], step, 2)
        return values, places

    return write


lowers(aten.cummax.default)(_extremes("GreaterOrEqual", "ReduceMax"))
lowers(aten.cummin.default)(_extremes("LessOrEqual", "ReduceMin"))
