"""Which elements are true, and those elements alone."""

from __future__ import annotations

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.index.index import vector
from torchferry.converter.ops.shape.axes import Size, common_sizes, expanded, rank
from torchferry.converter.ops.shape.view import flat
from torchferry.seams.operators import aten

__all__: list[str] = []

# onnxruntime's NonZero has kernels for these; the others become bool, which NaN is true in
_COUNTED = {
    ir.DataType.BOOL, ir.DataType.FLOAT, ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT8
}  # fmt: skip


def _places(b: Block, x: ir.Value) -> ir.Value:
    """The coordinates of what is not zero, [rank, n]; a scalar is a vector of one."""
    return b.NonZero(vector(b, x if x.dtype in _COUNTED else b.cast(x, ir.DataType.BOOL)))


@lowers(aten.nonzero.default, aten.argwhere.default)
def nonzero(b: Block, x: ir.Value) -> ir.Value:
    found = _places(b, x)
    if rank(x) == 0:  # it has no coordinates: n rows of nothing
        rows = b.Concat(b.Shape(found, start=1), [0], axis=0)
        return b.Expand(b.constant([[]], torch.int64), rows)
    return b.Transpose(found, perm=[1, 0])


@lowers(aten.nonzero_static.default)
def nonzero_static(b: Block, x: ir.Value, size: Size, fill_value: int = -1) -> ir.Value:
    filler = b.Expand(b.constant(fill_value), b.vector([size, rank(x)]))
    rows = b.Concat(nonzero(b, x), filler, axis=0)
    return b.Slice(rows, [0], b.vector([size]), [0])


@lowers(aten.nonzero_numpy.default)
def nonzero_numpy(b: Block, x: ir.Value) -> list[ir.Value]:
    found = _places(b, x)
    return [b.Gather(found, axis, axis=0) for axis in range(max(rank(x), 1))]


@lowers(aten.where.default)
def where(b: Block, condition: ir.Value) -> list[ir.Value]:
    return nonzero_numpy(b, condition)


@lowers(aten.masked_select.default)
def masked_select(b: Block, x: ir.Value, mask: ir.Value) -> ir.Value:
    sizes = common_sizes(b, x, mask)
    whole, held = (expanded(b, v, sizes) for v in (x, mask))
    return b.Compress(vector(b, whole), flat(b, b.cast(held, ir.DataType.BOOL)))
