"""Sizes, asked of the inputs of the graph."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import shape
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule
from torchferry.optimizer.sizes import contents

__all__ = ["RULES"]


class ShapeOfInput(Rule):
    """Shape(f(x))[i:j]  →  Shape(x)[k:l], when these sizes are sizes of x, an input of the graph

    What was computed may vanish when nothing else asks for it.
    """

    since = 15

    def pattern(self, p: Ops, y: Var) -> Any:
        return p.Shape(y, name="node")

    def starts(self, node: ir.Node) -> bool:
        """Whether the sizes are those of a value that is computed."""
        return node.inputs[0] is not None and node.inputs[0].producer() is not None

    def check(self, node: ir.Node) -> None:
        self._place(node)

    def rewrite(self, b: Block, node: ir.Node) -> Any:
        value, start, end = self._place(node)
        return b.Shape(value, start=start, end=end)

    def _place(self, node: ir.Node) -> tuple[ir.Value, int, int]:
        sizes = contents(node.outputs[0])
        if not sizes or all(isinstance(item, int) for item in sizes):
            raise Declined("the sizes are numbers, or not known")
        for value in [] if node.graph is None else node.graph.inputs:
            if isinstance(value.type, ir.TensorType) and value.shape is not None:
                have: tuple[Size, ...] = shape(value)
                for start in range(len(have) - len(sizes) + 1):
                    if have[start : start + len(sizes)] == sizes:
                        return value, start, start + len(sizes)
        raise Declined("no input of the graph has these sizes")


RULES: tuple[Rule, ...] = (ShapeOfInput(),)
