"""Gathering that takes everything as it stands."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, axes_of, rank, shape
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.sizes import contents

__all__ = ["RULES"]


class GatherEverything(Rule):
    """GatherND(x, the positions of x along its axes, in order)  →  Unsqueeze(x)

    As transformers reads a mask: ``mask[rows[:, None, None, None], columns[None, None, None]]``.
    """

    def pattern(self, p: Ops, x: Var) -> Any:
        positions = p.Concat(p.rest("parts"), axis=lambda _: True, name="positions")
        return p.GatherND(x, positions, name="node")

    def check(
        self, x: ir.Value, parts: tuple[ir.Value, ...], positions: ir.Node, node: ir.Node
    ) -> None:
        require(not attribute(node, "batch_dims", 0), "it gathers within a batch")
        around, extents = rank(positions.outputs[0]), shape(x)
        side = positions.attributes["axis"].as_int() in (-1, around - 1)
        require(side and len(parts) == len(extents), "the positions are not side by side")
        axes = self._axes(x, parts)
        require(axes == sorted(set(axes)) and axes[-1] < around - 1, "the axes change places")
        wanted: list[Size] = [1] * (around - 1)
        for axis, extent in zip(axes, extents, strict=True):
            wanted[axis] = extent
        require(shape(node.outputs[0]) == tuple(wanted), "what is gathered is repeated, or cut")

    def rewrite(
        self, b: Block, x: ir.Value, parts: tuple[ir.Value, ...], positions: ir.Node
    ) -> Any:
        taken = self._axes(x, parts)
        new = [axis for axis in range(rank(positions.outputs[0]) - 1) if axis not in taken]
        return b.Unsqueeze(x, new) if new else x

    def _axes(self, x: ir.Value, parts: tuple[ir.Value, ...]) -> list[int]:
        return [_counted(part, item) for part, item in zip(parts, shape(x), strict=True)]


def _counted(value: ir.Value | None, extent: Size) -> int:
    """The axis along which a value counts 0, 1, … up to an extent; along others it repeats itself.

    Where a number of one element is repeated along the axis too, the result has another size.

    Raises:
        Declined: it does not count, or that is not known.
    """
    node = None if value is None or value.is_graph_input() else value.producer()
    if node is None or node.domain:
        raise Declined("a position is not counted")
    if node.op_type == "Range":
        counted = [contents(item) for item in node.inputs]
        require(counted == [(0,), (extent,), (1,)], "it does not count up to the extent")
        return 0
    if node.op_type == "Expand":
        before, after = rank(node.inputs[0]), rank(value)
        return _counted(node.inputs[0], extent) + after - before
    if node.op_type == "Unsqueeze":
        axis, around = _counted(node.inputs[0], extent), rank(value)
        new = axes_of(node.inputs[1], around)
        return [item for item in range(around) if item not in new][axis]
    require(node.op_type in ("Cast", "Identity"), "a position is not counted")
    return _counted(node.inputs[0], extent)


RULES: tuple[Rule, ...] = (GatherEverything(),)
