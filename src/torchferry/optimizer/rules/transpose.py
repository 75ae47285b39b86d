"""Transposes that meet."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, rank
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule

__all__ = ["RULES"]


class TransposeTranspose(Rule):
    """Transpose(Transpose(x))  →  Transpose(x), or x"""

    since = 1
    keeps_interior = True

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Transpose(p.Transpose(x, name="first"), name="second")

    def check(self, x: ir.Value) -> None:
        rank(x)

    def rewrite(self, b: Block, x: ir.Value, first: ir.Node, second: ir.Node) -> Any:
        back = list(range(rank(x)))[::-1]
        inner, outer = attribute(first, "perm", back), attribute(second, "perm", back)
        perm = [inner[axis] for axis in outer]
        return x if perm == sorted(perm) else b.Transpose(x, perm=perm)


RULES: tuple[Rule, ...] = (TransposeTranspose(),)
