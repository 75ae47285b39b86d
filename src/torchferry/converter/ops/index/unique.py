"""Each element once, and how often elements are there."""

from __future__ import annotations

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.index.index import vector
from torchferry.converter.ops.index.sort import ordered
from torchferry.converter.ops.shape.axes import Size, axis_of, rank, sizes_of
from torchferry.converter.ops.shape.permute import swapped
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.converter.write.kernel import is_floating
from torchferry.seams.operators import aten

__all__: list[str] = []

Triple = tuple[ir.Value | None, ir.Value | None, ir.Value | None]
BOOL, INT64 = ir.DataType.BOOL, ir.DataType.INT64
_KERNELS = (ir.DataType.INT64, ir.DataType.INT8)  # of Unique, for integers


def _runs(b: Block, changes: ir.Value, size: Size) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Runs of equal elements, from where one differs from the one before, [size - 1].

    Returns:
        Whether a run begins [size], the number of each element's run [size], the length of each.
    """
    begins = b.Concat([True], changes, axis=0)
    if isinstance(size, ir.Value) or size == 0:  # of nothing, there is no first
        begins = b.Slice(begins, [0], size if isinstance(size, ir.Value) else [size])
    numbers = b.Sub(b.CumSum(b.cast(begins, INT64), 0), 1)
    starts = b.Squeeze(b.NonZero(begins), [0])
    ends = b.Concat(b.Slice(starts, [1], [2**63 - 1]), b.vector([size]), axis=0)
    kept = b.Slice(ends, [0], b.Shape(starts))  # none of nothing
    return begins, numbers, b.Sub(kept, starts)


def _differs(b: Block, line: ir.Value) -> ir.Value:
    """Where an element of a vector is not equal to the one before; NaN never is."""
    before, after = b.Slice(line, [0], [-1]), b.Slice(line, [1], [2**63 - 1])
    return b.Not(b.Equal(after, before))


def _comparable(b: Block, x: ir.Value) -> ir.Value:
    """Integers and bools in a dtype that onnxruntime's Unique has a kernel for."""
    if x.dtype == BOOL:
        return b.cast(x, ir.DataType.INT8)
    return x if x.dtype in _KERNELS else b.cast(x, INT64)


def _unique_floats(b: Block, line: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Sorted, then in runs: onnxruntime's Unique loses NaN, each of which counts for itself."""
    size = b.dim(line, 0)
    values, places = ordered(b, line, size, 0, largest=False)
    begins, numbers, counts = _runs(b, _differs(b, values), size)
    inverse = b.ScatterElements(numbers, places, numbers)
    return b.Compress(values, begins, axis=0), inverse, counts


@lowers(aten._unique2.default)
def _unique2(
    b: Block,
    x: ir.Value,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Triple:
    line = flat(b, x)
    if is_floating(x):
        values, inverse, counts = _unique_floats(b, line)
    else:
        values, _, inverse, counts = b.Unique(_comparable(b, line), sorted=1, outputs=4)
        inverse.type = counts.type = ir.TensorType(INT64)
        values = b.cast(values, x)
    return (
        values,
        reshaped(b, inverse, sizes_of(b, x)) if return_inverse else None,
        counts if return_counts else None,
    )


@lowers(aten._unique.default)
def _unique(
    b: Block, x: ir.Value, sorted: bool = True, return_inverse: bool = False
) -> tuple[ir.Value | None, ir.Value | None]:
    values, inverse, _ = _unique2(b, x, sorted, return_inverse)
    return values, inverse


@lowers(aten.unique_dim.default)
def unique_dim(
    b: Block,
    x: ir.Value,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> Triple:
    axis = axis_of(x, dim)
    if is_floating(x):  # numbers in the same order stand in for them, NaN too
        _, ranks, _ = _unique_floats(b, flat(b, x))
        keys = reshaped(b, ranks, sizes_of(b, x))
    else:
        keys = _comparable(b, x)
    _, places, inverse, counts = b.Unique(keys, axis=axis, sorted=1, outputs=4)
    for value in (places, inverse, counts):
        value.type = ir.TensorType(INT64)
    return (
        b.Gather(x, places, axis=axis),
        inverse if return_inverse else None,
        counts if return_counts else None,
    )


@lowers(aten.unique_consecutive.default)
def unique_consecutive(
    b: Block,
    x: ir.Value,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Triple:
    if dim is None:
        line, axis = flat(b, x), 0
        begins, numbers, counts = _runs(b, _differs(b, line), b.dim(line, 0))
        values = b.Compress(line, begins, axis=0)
        inverse = reshaped(b, numbers, sizes_of(b, x))
    else:
        axis = axis_of(x, dim)
        whole = vector(b, x)
        size = b.dim(whole, axis)
        begins, inverse, counts = _runs(b, _rows_differ(b, swapped(b, whole, 0, axis)), size)
        values = b.Compress(whole, begins, axis=axis)
    return (
        values,
        inverse if return_inverse else None,
        counts if return_counts else None,
    )


def _rows_differ(b: Block, rows: ir.Value) -> ir.Value:
    before, after = (
        b.Slice(rows, [start], [end], [0]) for start, end in ((0, -1), (1, 2**63 - 1))
    )
    differ = b.cast(b.Not(b.Equal(after, before)), INT64)
    if rank(rows) == 1:
        return b.cast(differ, BOOL)
    return b.cast(b.ReduceSum(differ, list(range(1, rank(rows))), keepdims=0), BOOL)


# Counting ------------------------------------------------------------------------------------


@lowers(aten.bincount.default)
def bincount(
    b: Block, x: ir.Value, weights: ir.Value | None = None, minlength: Size = 0
) -> ir.Value:
    places = b.cast(x, INT64)
    shortest = minlength if isinstance(minlength, ir.Value) else b.constant([minlength])
    most = b.ReduceMax(b.Concat(b.Add(places, 1), shortest, axis=0))
    if weights is None:
        ones = b.Expand(b.constant([1]), b.shape(places))
    else:
        single = weights.dtype == ir.DataType.FLOAT
        ones = b.cast(weights, ir.DataType.FLOAT if single else ir.DataType.DOUBLE)
    nothing = b.Expand(b.constant(0, ones), b.Reshape(most, [1]))
    return b.ScatterElements(nothing, places, ones, reduction="add")
