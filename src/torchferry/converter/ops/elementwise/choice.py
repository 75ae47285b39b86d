"""Choices between two values, element by element."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.kernel import widened
from torchferry.seams.operators import aten

__all__ = ["chosen"]

BOOL = ir.DataType.BOOL


def chosen(b: Block, condition: ir.Value, x: Any, other: Any) -> ir.Value:
    """``x`` where the condition holds, else ``other``; both of one dtype, bool too."""
    like = next(v for v in (x, other) if isinstance(v, ir.Value))
    if like.dtype == BOOL:
        x, other = (b.cast(b.cast(v, BOOL), ir.DataType.UINT8) for v in (x, other))
        return b.cast(b.Where(condition, x, other), BOOL)
    return widened(b, "Where", condition, b.cast(x, like), b.cast(other, like))


@lowers(
    aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar,
    promote="default", operands=("x", "other"),
)  # fmt: skip
def where(b: Block, condition: ir.Value, x: Any, other: Any) -> ir.Value:
    return chosen(b, b.cast(condition, BOOL), x, other)


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(b: Block, x: ir.Value, mask: ir.Value, value: Any) -> ir.Value:
    return chosen(b, b.cast(mask, BOOL), b.cast(value, x), x)
