"""Sequences of parts, as torch.onnx writes a split."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, ints, number, rank
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]


class SplitSequence(Rule):
    """SequenceAt(SplitToSequence(x, sizes), i) for every i  →  the outputs of Split(x, sizes)"""

    since = 18
    keeps_interior = True

    def pattern(self, p: Ops, x: Var) -> Any:
        parts = p.SplitToSequence(x, p.constant(None, "sizes"), name="split")
        return p.SequenceAt(parts, p.constant(None, "which"), name="at")

    def check(self, sizes: ir.Value, split: ir.Node) -> None:
        require(rank(sizes) == 1, "the parts are of one size, the last perhaps smaller")
        require(all(size >= 0 for size in ints(sizes)), "a size is negative")
        for node in split.outputs[0].consumers():
            require(node.op_type == "SequenceAt", "the sequence is read otherwise")
            require(node.graph is split.graph, "a part is read in a subgraph")
            require(-len(ints(sizes)) <= number(node.inputs[1]) < len(ints(sizes)), "no such part")

    def rewrite(self, b: Block, x: ir.Value, sizes: ir.Value, split: ir.Node) -> Any:
        count = len(ints(sizes))
        axis = attribute(split, "axis", 0)
        parts = b.Split(x, [int(size) for size in ints(sizes)], axis=axis, outputs=count)
        values = (parts,) if count == 1 else parts
        return {
            node.outputs[0]: values[number(node.inputs[1])]
            for node in split.outputs[0].consumers()
        }


RULES: tuple[Rule, ...] = (SplitSequence(),)
