"""Where values stand among others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.create.creation import linspace
from torchferry.converter.ops.index.index import vector
from torchferry.converter.ops.shape.axes import rank
from torchferry.converter.ops.shape.view import flat
from torchferry.converter.write.kernel import is_floating
from torchferry.converter.write.promote import promoted_dtype, torch_dtype
from torchferry.seams.operators import aten

__all__: list[str] = []

INT64 = ir.DataType.INT64


def _before(b: Block, sequence: ir.Value, values: Any, right: bool) -> ir.Value:
    """How many elements of a sorted sequence (along the last axis) stand before each value.

    NaN stands behind all numbers.
    """
    given = values if isinstance(values, ir.Value) else b.constant(values)
    dtype = promoted_dtype(
        [sequence, vector(b, given) if isinstance(values, ir.Value) else values]
    )
    sequence, given = b.cast(sequence, dtype), b.cast(given, dtype)
    columns = b.Unsqueeze(given, [rank(given)])
    rows = b.Unsqueeze(sequence, [rank(sequence) - 1]) if rank(sequence) > 1 else sequence
    before = b.Not(b.add("Greater" if right else "GreaterOrEqual", (rows, columns)))
    return b.ReduceSum(b.cast(before, INT64), [-1], keepdims=0)


@lowers(aten.searchsorted.Tensor, aten.searchsorted.Scalar)
def searchsorted(
    b: Block,
    sorted_sequence: ir.Value,
    x: Any,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    if sorter is not None:
        sorted_sequence = b.GatherElements(sorted_sequence, sorter, axis=-1)
    return _before(b, sorted_sequence, x, right or side == "right")


@lowers(aten.bucketize.Tensor, aten.bucketize.Scalar)
def bucketize(
    b: Block, x: Any, boundaries: ir.Value, out_int32: bool = False, right: bool = False
) -> ir.Value:
    return _before(b, boundaries, x, right)


@lowers(aten.isin.Tensor_Tensor, aten.isin.Tensor_Scalar, aten.isin.Scalar_Tensor)
def isin(
    b: Block,
    elements: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
) -> ir.Value:
    dtype = promoted_dtype([elements, test_elements])
    x, tested = (b.cast(v, dtype) for v in (elements, test_elements))
    if isinstance(test_elements, ir.Value) and rank(tested):
        same = b.Equal(b.Unsqueeze(x, [rank(x)]), flat(b, tested))
        count = b.ReduceSum(b.cast(same, INT64), [-1], keepdims=0)
        found = b.Greater(count, 0)
    else:
        found = b.Equal(x, tested)
    return b.Not(found) if invert else found


@lowers(aten.histc.default)
def histc(b: Block, x: ir.Value, bins: int = 100, min: Any = 0, max: Any = 0) -> ir.Value:
    """Counts of elements in bins of one width; the last one holds its upper edge, too."""
    line = flat(b, x)
    wide = b.cast(line, ir.DataType.DOUBLE)
    low, high = _edges(b, wide, min, max)
    inside = b.And(b.GreaterOrEqual(wide, low), b.LessOrEqual(wide, high))
    scaled = b.Mul(b.Div(b.Sub(wide, low), b.Sub(high, low)), float(bins))
    place = b.Min(b.cast(b.Where(inside, scaled, 0.0), INT64), bins - 1)
    ones = b.cast(inside, x if is_floating(x) and x.dtype != ir.DataType.FLOAT16 else INT64)
    nothing = b.Expand(b.constant(0, ones), [bins])
    return b.ScatterElements(nothing, place, ones, reduction="add")


def _edges(b: Block, x: ir.Value, low: Any, high: Any) -> tuple[ir.Value, ir.Value]:
    """The outer edges; those of the elements when they are given as equal."""
    if isinstance(low, ir.Value) or isinstance(high, ir.Value):
        raise ValueError("the edges of its bins depend on the inputs, write it with bucketize")
    if low != high:
        return b.constant(low, x), b.constant(high, x)
    least, most = b.ReduceMin(x, keepdims=0), b.ReduceMax(x, keepdims=0)
    equal = b.Equal(least, most)
    return b.Where(equal, b.Sub(least, 1.0), least), b.Where(equal, b.Add(most, 1.0), most)


@lowers(aten.histogram.bins_tensor)
def histogram(
    b: Block,
    x: ir.Value,
    bins: ir.Value,
    weight: ir.Value | None = None,
    density: bool = False,
) -> tuple[ir.Value, ir.Value]:
    """Counts of elements between edges; the last bin holds its upper edge, too."""
    line = flat(b, x)
    inside = b.And(
        b.GreaterOrEqual(line, _end(b, bins, 0)), b.LessOrEqual(line, _end(b, bins, -1))
    )
    last = b.Sub(b.Shape(bins), [2])
    place = b.Min(b.Sub(_before(b, bins, line, right=True), 1), last)
    counted = b.cast(inside, x) if weight is None else b.Where(inside, flat(b, weight), 0.0)
    nothing = b.Expand(b.constant(0, x), b.Add(last, [1]))
    found = b.ScatterElements(nothing, b.Where(inside, place, 0), counted, reduction="add")
    if density:
        upper, lower = b.Slice(bins, [1], [2**63 - 1], [0]), b.Slice(bins, [0], [-1], [0])
        found = b.Div(found, b.Mul(b.ReduceSum(found, keepdims=1), b.Sub(upper, lower)))
    return found, bins


def _end(b: Block, edges: ir.Value, place: int) -> ir.Value:
    return b.Gather(edges, b.constant([place]), axis=0)


@lowers(aten.histogram.bin_ct)
def histogram_bin_ct(
    b: Block,
    x: ir.Value,
    bins: int = 100,
    range: Sequence[float] | None = None,
    weight: ir.Value | None = None,
    density: bool = False,
) -> tuple[ir.Value, ir.Value]:
    if range is not None and range[0] != range[1]:
        low, high = range[0], range[1]
    else:
        given = (x, x) if range is None else tuple(b.constant(v, x) for v in range)
        least, most = b.ReduceMin(given[0], keepdims=0), b.ReduceMax(given[1], keepdims=0)
        wider = b.Where(b.Equal(least, most), b.constant(0.5, x), b.constant(0.0, x))
        low, high = b.Sub(least, wider), b.Add(most, wider)
    edges = linspace(b, low, high, bins + 1, torch_dtype(x.dtype))
    return histogram(b, x, b.cast(edges, x), weight, density)
