"""Arithmetic of two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers

__all__: list[str] = []

aten = torch.ops.aten
Lowered = Callable[..., ir.Value]


def _scaled(op_type: str) -> Lowered:
    """``x ± alpha * other``."""

    def write(b: Block, x: ir.Value, other: Any, alpha: Any = 1) -> ir.Value:
        if alpha != 1:
            other = b.Mul(other, b.constant(alpha, x))
        result: ir.Value = b.add(op_type, (x, other))
        return result

    return write


lowers(aten.add.Tensor, aten.add.Scalar, promote="default")(_scaled("Add"))
lowers(aten.sub.Tensor, aten.sub.Scalar, promote="default")(_scaled("Sub"))


@lowers(aten.mul.Tensor, aten.mul.Scalar, promote="default")
def mul(b: Block, x: ir.Value, other: Any) -> ir.Value:
    if x.dtype == ir.DataType.BOOL:
        return b.And(x, other)
    return b.Mul(x, other)


@lowers(aten.div.Tensor, aten.div.Scalar, promote="float")
def div(b: Block, x: ir.Value, other: Any) -> ir.Value:
    return b.Div(x, other)
