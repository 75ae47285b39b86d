"""Several tensors as one."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.rare.complex.complex_number import pair
from torchferry.converter.ops.shape.axes import (
    Size,
    axis_of,
    kept_complex,
    moves,
    plus,
    rank,
    sizes_of,
    times,
)  # fmt: skip
from torchferry.converter.ops.shape.view import at_least, reshaped
from torchferry.converter.write.kernel import widened
from torchferry.converter.write.promote import promoted_dtype
from torchferry.seams.operators import aten

__all__ = ["joined", "padded"]

_PADS = {ir.DataType.INT16, ir.DataType.UINT16}  # onnxruntime has no kernel


def joined(b: Block, tensors: Sequence[ir.Value], dim: int) -> ir.Value:
    """Concatenation, of tensors that may differ in dtype; vectors of no element count as none."""
    dtype = promoted_dtype(tensors)
    if dtype.is_complex:
        dtype = dtype.to_real()
        tensors = [pair(b, x, b.constant(0, dtype)) for x in tensors]
    kept = [x for x in tensors if not (rank(x) == 1 and b.dim(x, 0) == 0)] or tensors[:1]
    cast = [b.cast(x, dtype) for x in kept]
    if len(cast) == 1:
        return cast[0]
    return kept_complex(cast[0], b.Concat(*cast, axis=axis_of(cast[0], dim)))


@moves(aten.cat.default, aten.concat.default, aten.concatenate.default)
def cat(b: Block, tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    return joined(b, tensors, dim)


@moves(aten.stack.default)
def stack(b: Block, tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    axis = range(rank(tensors[0]) + 1)[dim]
    return joined(b, [kept_complex(x, b.Unsqueeze(x, [axis])) for x in tensors], axis)


@moves(aten.hstack.default)
def hstack(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    rows = [at_least(b, x, 1) for x in tensors]
    return joined(b, rows, 0 if rank(rows[0]) == 1 else 1)


@moves(aten.vstack.default, aten.row_stack.default)
def vstack(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    return joined(b, [at_least(b, x, 2) for x in tensors], 0)


@moves(aten.dstack.default)
def dstack(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    return joined(b, [at_least(b, x, 3) for x in tensors], 2)


@moves(aten.column_stack.default)
def column_stack(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    columns = [x if rank(x) > 1 else reshaped(b, x, [_length(b, x), 1]) for x in tensors]
    return joined(b, columns, 1)


def _length(b: Block, x: ir.Value) -> Size:
    return b.dim(x, 0) if rank(x) else 1


# Products --------------------------------------------------------------------------------------


def padded(b: Block, x: ir.Value, before: Size, after: Size, axis: int) -> ir.Value:
    """``x`` with zeros around it along an axis."""
    if isinstance(before, int) and isinstance(after, int) and before == after == 0:
        return x
    if x.dtype in _PADS:
        wide = b.cast(x, ir.DataType.INT32)
        return b.cast(padded(b, wide, before, after, axis), x)
    return kept_complex(x, b.Pad(x, b.vector([before, after]), None, [axis]))


@lowers(aten.block_diag.default)
def block_diag(b: Block, tensors: Sequence[ir.Value]) -> ir.Value:
    blocks = [at_least(b, x, 2) for x in tensors]
    dtype = promoted_dtype(blocks)
    blocks = [b.cast(x, dtype) for x in blocks]
    before: list[Size] = [0]
    for x in blocks:
        before.append(plus(b, before[-1], b.dim(x, 1)))
    after: list[Size] = [0]
    for x in reversed(blocks):
        after.append(plus(b, after[-1], b.dim(x, 1)))
    rows = [padded(b, x, before[i], after[-i - 2], 1) for i, x in enumerate(blocks)]
    return rows[0] if len(rows) == 1 else b.Concat(*rows, axis=0)


@lowers(aten.kron.default, promote="default")
def kron(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    """Kronecker's product: every element of ``x`` times all of ``other``."""
    axes = max(rank(x), rank(other))
    first = [*[1] * (axes - rank(x)), *sizes_of(b, x)]
    second = [*[1] * (axes - rank(other)), *sizes_of(b, other)]
    rows = reshaped(b, x, [size for one in first for size in (one, 1)])
    columns = reshaped(b, other, [size for one in second for size in (1, one)])
    op_type = "And" if x.dtype == ir.DataType.BOOL else "Mul"
    product = widened(b, op_type, rows, columns)
    return reshaped(b, product, [times(b, *pair) for pair in zip(first, second, strict=True)])
