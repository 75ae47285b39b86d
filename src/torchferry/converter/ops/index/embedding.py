"""Rows of a table: embedding, bags of them, one-hot."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import steps
from torchferry.seams.operators import aten

__all__: list[str] = []

Size = int | ir.Value

_SUM, _MEAN, _MAX = range(3)
_HALVES = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}
_FAST = {*_HALVES, ir.DataType.FLOAT}


@lowers(aten.embedding.default)
def embedding(
    b: Block,
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: Size = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    return b.Gather(weight, indices)


@lowers(aten.one_hot.default)
def one_hot(b: Block, x: ir.Value, num_classes: Size = -1) -> ir.Value:
    depth = num_classes
    if isinstance(depth, int) and depth < 0:
        depth = b.Add(b.ReduceMax(x, keepdims=0), 1)
    if not x.shape:  # OneHot wants an axis
        return b.cast(b.Equal(b.Range(0, b.scalar(depth), 1), x), ir.DataType.INT64)
    if isinstance(depth, int):
        depth = b.constant([depth])
    return b.OneHot(x, depth, b.constant([0, 1]))


# Bags ----------------------------------------------------------------------------------------


@lowers(aten.embedding_bag.padding_idx)
def embedding_bag(
    b: Block,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[ir.Value, None, None, None]:
    dtype = weight.dtype
    offsets, indices = (b.cast(v, ir.DataType.INT64) for v in (offsets, indices))
    end = None
    if include_last_offset:
        end, offsets = b.Slice(offsets, [-1], [2**63 - 1], [0]), b.Slice(offsets, [0], [-1], [0])
    bag = _bag_of(b, indices, offsets)
    rows = b.Gather(weight, indices)
    rows = b.cast(rows, ir.DataType.FLOAT) if dtype in _HALVES else rows
    if per_sample_weights is not None:
        rows = b.Mul(rows, b.Unsqueeze(b.cast(per_sample_weights, rows), [1]))
    counted = None
    if padding_idx is not None:
        counted = b.Not(b.Equal(indices, padding_idx))
        filler = b.constant(-np.inf if mode == _MAX else 0.0, rows)
        rows = b.Where(b.Unsqueeze(counted, [1]), rows, filler)
    elif end is not None and mode != _MAX and dtype in _FAST:
        # Indices after the last offset belong to no bag, and PyTorch's fast sums leave them out.
        inside = b.Less(steps(b, 0, b.dim(indices, 0)), end)
        rows = b.Where(b.Unsqueeze(inside, [1]), rows, b.constant(0.0, rows))
    bags = b.dim(offsets, 0)
    result = _gathered(b, rows, bag, bags, b.dim(weight, 1), mode)
    if mode != _SUM:
        counts = _counts(b, bag, bags, rows, counted)
        if mode == _MEAN:
            result = b.Div(result, b.Max(counts, b.constant(1, counts)))
        else:
            result = b.Where(b.Greater(counts, 0), result, b.constant(0, result))
    return (result if dtype is None else b.cast(result, dtype)), None, None, None


def _bag_of(b: Block, indices: ir.Value, offsets: ir.Value) -> ir.Value:
    """Which bag each index is in: how many bags begin no later, but the first."""
    later = b.Slice(offsets, [1], [2**63 - 1], [0])
    size = b.dim(indices, 0)
    # an empty bag at the end begins one place behind the last index
    more = size + 1 if isinstance(size, int) else b.Add(size, 1)
    zeros = b.Expand(b.constant(0), b.vector([more]))
    ones = b.Expand(b.constant(1), b.shape(later))
    begun = b.CumSum(b.ScatterElements(zeros, later, ones, reduction="add"), b.constant(0))
    return b.Slice(begun, [0], b.vector([size]), [0])


def _gathered(
    b: Block, rows: ir.Value, bag: ir.Value, bags: Size, width: Size, mode: int
) -> ir.Value:
    start = b.constant(-np.inf if mode == _MAX else 0.0, rows)
    places = b.Expand(b.Unsqueeze(bag, [1]), b.Shape(rows))
    empty = b.Expand(start, b.vector([bags, width]))
    reduction = "max" if mode == _MAX else "add"
    return b.ScatterElements(empty, places, rows, axis=0, reduction=reduction)


def _counts(
    b: Block, bag: ir.Value, bags: Size, rows: ir.Value, counted: ir.Value | None
) -> ir.Value:
    """How many of each bag count, in the dtype of ``rows``, [bags, 1]."""
    ones: Any = b.Expand(b.constant(1, rows), b.Shape(bag))
    if counted is not None:
        ones = b.cast(counted, rows)
    zeros = b.Expand(b.constant(0, rows), b.vector([bags]))
    return b.Unsqueeze(b.ScatterElements(zeros, bag, ones, reduction="add"), [1])


@lowers(
    aten._embedding_bag.default, aten._embedding_bag_forward_only.default,
    aten.embedding_bag.default,
)  # fmt: skip
def _embedding_bag(
    b: Block,
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[ir.Value, None, None, None]:
    return embedding_bag(
        b, weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, None if padding_idx == -1 else padding_idx,
    )  # fmt: skip
