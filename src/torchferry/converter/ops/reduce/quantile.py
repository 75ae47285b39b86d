"""Quantiles: sorted elements, and what lies between two of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []

_INT64 = ir.DataType.INT64
_ROUNDED = {"lower": "Floor", "higher": "Ceil", "nearest": "Round"}


def _quantile(ignore_nan: bool) -> Callable[..., ir.Value]:
    """Quantiles along an axis; NaN among the elements counts as the result, or not at all."""

    def write(
        b: Block,
        x: ir.Value,
        q: Any,
        dim: int | None = None,
        keepdim: bool = False,
        interpolation: str = "linear",
    ) -> ir.Value:
        rank = len(x.shape or ())
        axis = range(rank)[dim] if dim is not None and rank else None
        rows = _last(b, x, axis)
        count = b.vector([b.dim(rows, -1)])
        nan = b.IsNaN(rows)
        ordered, _ = b.TopK(b.Where(nan, float("inf"), rows), count, largest=0, outputs=2)
        ordered.shape = rows.shape
        spoiled = b.ReduceSum(b.cast(nan, _INT64), [-1], keepdims=1)
        valid = b.Sub(count, spoiled) if ignore_nan else count
        scalar = not isinstance(q, ir.Value) or not len(q.shape or ())
        wanted = b.Reshape(b.cast(q, x), [-1]) if scalar else q
        ranks = b.Max(b.Mul(wanted, b.cast(b.Sub(valid, 1), x)), 0)
        found = _between(b, ranks, _elements(b, ordered, spread=ignore_nan), interpolation)
        lost = b.Equal(valid, 0) if ignore_nan else b.Greater(spoiled, 0)
        result = b.Where(lost, float("nan"), found)
        return _arranged(b, result, axis, rank, scalar, keepdim)

    return write


def _last(b: Block, x: ir.Value, axis: int | None) -> ir.Value:
    """``x`` with an axis moved to the end, or as one row."""
    if axis is None:
        return b.Reshape(x, [-1])
    rank = len(x.shape or ())
    order = [*(i for i in range(rank) if i != axis), axis]
    return x if order == list(range(rank)) else b.Transpose(x, perm=order)


def _elements(b: Block, ordered: ir.Value, spread: bool) -> Callable[[ir.Value], ir.Value]:
    """How to read elements of every row by places, the same for all rows or each its own."""

    def at(places: ir.Value) -> ir.Value:
        index = b.cast(places, _INT64)
        if spread:
            return b.GatherElements(ordered, index, axis=-1)
        return b.Gather(ordered, index, axis=-1)

    return at


def _between(
    b: Block, ranks: ir.Value, at: Callable[[ir.Value], ir.Value], interpolation: str
) -> ir.Value:
    if interpolation in _ROUNDED:
        return at(b.add(_ROUNDED[interpolation], (ranks,)))
    below = b.Floor(ranks)
    low, high = at(below), at(b.Ceil(ranks))
    distance = b.Sub(high, low)
    if interpolation == "midpoint":
        return b.Sub(high, b.Mul(distance, 0.5))
    weight = b.Sub(ranks, below)
    # as torch.lerp: from the nearer end, so that the end itself is exact
    from_low = b.Add(low, b.Mul(weight, distance))
    from_high = b.Sub(high, b.Mul(distance, b.Sub(b.constant(1, weight), weight)))
    return b.Where(b.Less(weight, 0.5), from_low, from_high)


def _arranged(
    b: Block, result: ir.Value, axis: int | None, rank: int, scalar: bool, keepdim: bool
) -> ir.Value:
    """The quantiles, which are the last axis, as PyTorch returns them: in front, or without it."""
    if axis is None:
        if scalar:
            return b.Reshape(result, [1] * rank) if keepdim else b.Squeeze(result, [0])
        return b.Unsqueeze(result, list(range(1, rank + 1))) if keepdim and rank else result
    if scalar and not keepdim:
        return b.Squeeze(result, [-1])
    if scalar:
        order = [*range(axis), rank - 1, *range(axis, rank - 1)]
        return b.Transpose(result, perm=order)
    front = b.Transpose(result, perm=[rank - 1, *range(rank - 1)])
    return b.Unsqueeze(front, [axis + 1]) if keepdim else front


lowers(aten.quantile.default, aten.quantile.scalar)(_quantile(ignore_nan=False))
lowers(aten.nanquantile.default, aten.nanquantile.scalar)(_quantile(ignore_nan=True))
