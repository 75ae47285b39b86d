"""Residuals that onnxruntime would fuse into a slower kernel."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]

_NORMS = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


class SumBeforeNorm(Rule):
    """LayerNormalization(x + y)  →  LayerNormalization(Sum(x, y))

    When a session is made, onnxruntime makes SkipLayerNormalization of an Add and the norm behind
    it, which takes its CPU kernel five times as long as the two; a Sum, it leaves alone.
    """

    since = 13
    processors = frozenset({"CPU"})

    def pattern(self, p: Ops, x: Var, y: Var) -> Any:
        return p.Add(x, y, name="node")

    def starts(self, node: ir.Node) -> bool:
        """Whether a norm reads the result."""
        readers = node.outputs[0].uses()
        return any(user.op_type in _NORMS and index == 0 for user, index in readers)

    def check(self, node: ir.Node) -> None:
        require(node.outputs[0].dtype in _TYPES, "there is no kernel for the type")

    def rewrite(self, b: Block, x: ir.Value, y: ir.Value, node: ir.Node) -> Any:
        return b.Sum(x, y, like=node.outputs[0])


RULES: tuple[Rule, ...] = (SumBeforeNorm(),)
