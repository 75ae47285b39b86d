"""Matrix products."""

from __future__ import annotations

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers

__all__: list[str] = []

aten = torch.ops.aten


@lowers(aten.linear.default)
def linear(b: Block, x: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    if len(x.shape or ()) == 2 and bias is not None:
        return b.Gemm(x, weight, bias, transB=1)
    product: ir.Value = b.MatMul(x, b.transposed(weight))
    return product if bias is None else b.Add(product, bias)


@lowers(aten.matmul.default)
def matmul(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return b.MatMul(x, other)
