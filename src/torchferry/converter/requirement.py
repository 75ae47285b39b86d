"""Conditions that only the running graph can test: it fails with a sentence if one is broken."""

from __future__ import annotations

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.graph.runtime import REQUIREMENT

__all__ = ["required"]


def required(b: Block, x: ir.Value, holds: ir.Value, message: str) -> ir.Value:
    """A value of a graph that fails with a message where a condition does not hold.

    ONNX has no assertion, but Gather tests its index, in onnxruntime at least: that of one element
    can only be 0.

    Args:
        b: where to write.
        x: what nobody may read otherwise, of rank 1 at least.
        holds: bool, of shape [1].
        message: without quotation marks; ``onnxruntime`` gives it back as the name of a node.
    """
    zero = b.Gather(b.constant([0], ir.DataType.INT64), b.cast(b.Not(holds), ir.DataType.INT64))
    zero.producer().name = f"{REQUIREMENT}{message} [{len(b.nodes)}]"
    # All of it: a slice whose start nobody knows beforehand is left alone by optimizers.
    result: ir.Value = b.Slice(x, zero, [2**63 - 1], [0])
    result.shape = x.shape
    return result
