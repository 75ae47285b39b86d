"""Products of complex tensors, and what is added to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.matrix import complex_matmul
from torchferry.converter.ops.rare.complex.complex_number import (
    conj,
    div,
    pair,
    pair_product,
    times,
)
from torchferry.converter.ops.shape.axes import kept_complex
from torchferry.seams.operators import aten

__all__: list[str] = []


@lowers(aten.outer.default, aten.ger.default, promote="default", complex=True)
def outer(b: Block, x: ir.Value, vec2: ir.Value) -> ir.Value:
    like = b.constant(0, x)
    column, row = (b.Unsqueeze(pair(b, v, like), [axis]) for v, axis in ((x, 1), (vec2, 0)))
    return pair_product(b, column, row)


@lowers(aten.vdot.default, complex=True)
def vdot(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return complex_matmul(b, kept_complex(x, conj(b, x)), other)


def _added(product: Callable[[Block, Any, Any], ir.Value]) -> Callable[..., ir.Value]:
    """``x + value * tensor1 · tensor2``, of which some may be real."""

    def write(
        b: Block, x: ir.Value, tensor1: ir.Value, tensor2: ir.Value, value: Any = 1
    ) -> ir.Value:
        like = b.constant(0, x)
        made = product(b, *(pair(b, v, like) for v in (tensor1, tensor2)))
        if isinstance(value, ir.Value) or value != 1:
            made = times(b, made, value)
        return b.Add(pair(b, x, like), b.cast(made, like))

    return write


_OPERANDS = ("x", "tensor1", "tensor2")
lowers(aten.addcmul.default, promote="default", operands=_OPERANDS, complex=True)(_added(times))
lowers(aten.addcdiv.default, promote="default", operands=_OPERANDS, complex=True)(_added(div))


@lowers(aten.lerp.Scalar, aten.lerp.Tensor, complex=True)
def lerp(b: Block, x: ir.Value, end: ir.Value, weight: Any) -> ir.Value:
    """In float64, which leaves the end exact at a weight of 1."""
    like = b.constant(0, ir.DataType.DOUBLE)
    start, final = (pair(b, v, like) for v in (x, end))
    return b.Add(start, pair_product(b, b.Sub(final, start), pair(b, weight, like)))
