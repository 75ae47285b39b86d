"""Transposes that meet."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, rank
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

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


class MatMulTranspose(Rule):
    """MatMul(Transpose(x), w)  →  Transpose(MatMul(x, w))

    In half precision, where w is a matrix and the first two of three axes change places:
    onnxruntime 1.32 ends the process as it fuses that Transpose into a MatMul it casts to float32.
    """

    def pattern(self, p: Ops, x: Var, w: Var) -> Any:
        return p.MatMul(p.Transpose(x, name="turned"), w)

    def check(self, x: ir.Value, w: ir.Value, turned: ir.Node) -> None:
        half = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
        require(x.dtype in half, "x is not in half precision")
        require(rank(w) == 2, "w is no matrix")
        require(attribute(turned, "perm", []) == [1, 0, 2], "other axes change places")

    def rewrite(self, b: Block, x: ir.Value, w: ir.Value, turned: ir.Node) -> Any:
        return b.Transpose(b.MatMul(x, w), perm=attribute(turned, "perm", []))


RULES: tuple[Rule, ...] = (TransposeTranspose(), MatMulTranspose())
