"""Differences of neighbours."""

from __future__ import annotations

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import axis_of
from torchferry.converter.ops.shape.join import joined
from torchferry.seams.operators import aten

__all__: list[str] = []


@lowers(aten.diff.default)
def diff(
    b: Block,
    x: ir.Value,
    n: int = 1,
    dim: int = -1,
    prepend: ir.Value | None = None,
    append: ir.Value | None = None,
) -> ir.Value:
    axis = axis_of(x, dim)
    parts = [part for part in (prepend, x, append) if part is not None]
    if len(parts) > 1:
        x = joined(b, parts, axis)
    for _ in range(n):
        after = b.Slice(x, [1], [2**63 - 1], [axis])
        before = b.Slice(x, [0], [-1], [axis])
        x = b.Xor(after, before) if x.dtype == ir.DataType.BOOL else b.Sub(after, before)
    return x
