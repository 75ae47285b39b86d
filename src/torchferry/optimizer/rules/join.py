"""Slice, Split, Concat, Gather, Where: parts and wholes."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, axes_of, ints, rank, same_shape, size
from torchferry.optimizer.known_sizes import sliced
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require

__all__ = ["RULES"]


class SliceAll(Rule):
    """Slice(x), of all that is there  →  x"""

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Slice(x, p.rest("where"), name="node")

    def check(self, x: ir.Value, node: ir.Node) -> None:
        taken = sliced(node).items()
        require(all(length == size(x, axis) for axis, length in taken), "it may take a part")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class SplitConcat(Rule):
    """Concat(all parts of Split(x), in order)  →  x"""

    def pattern(self, p: Ops) -> Any:
        return p.Concat(p.rest("parts"), name="concat")

    def check(self, parts: tuple[ir.Value, ...], concat: ir.Node) -> None:
        self._whole(parts, concat)

    def rewrite(self, b: Block, parts: tuple[ir.Value, ...], concat: ir.Node) -> Any:
        return self._whole(parts, concat)

    def _whole(self, parts: tuple[ir.Value, ...], concat: ir.Node) -> ir.Value | None:
        """What was split."""
        split = parts[0].producer() if parts else None
        if split is None or split.op_type != "Split" or tuple(split.outputs) != parts:
            raise Declined("not all parts of a Split in order")
        around = rank(split.inputs[0])
        here, there = attribute(split, "axis", 0), attribute(concat, "axis")
        require(here % around == there % around, "along another axis")
        return split.inputs[0]


class ConcatConcat(Rule):
    """Concat(…, Concat(y, z), …)  →  Concat(…, y, z, …)"""

    since = 1

    def pattern(self, p: Ops) -> Any:
        return p.Concat(p.rest("parts"), name="concat")

    def check(self, parts: tuple[ir.Value, ...], concat: ir.Node) -> None:
        require(any(self._inner(part, concat) for part in parts), "no part is a Concat")

    def rewrite(self, b: Block, parts: tuple[ir.Value, ...], concat: ir.Node) -> Any:
        flat: list[ir.Value | None] = []
        for part in parts:
            inner = self._inner(part, concat)
            flat += [part] if inner is None else list(inner.inputs)
        return b.again(concat, flat)

    def _inner(self, part: ir.Value, concat: ir.Node) -> ir.Node | None:
        node = part.producer()
        alone = not part.is_graph_output() and len(part.uses()) == 1
        if node is None or node.op_type != "Concat" or node.domain or not alone:
            return None
        same = attribute(node, "axis") == attribute(concat, "axis")
        return node if same and node.graph is concat.graph else None


class ConcatEmpty(Rule):
    """Concat(x, nothing, y)  →  Concat(x, y), where a part has size 0 along the axis"""

    since = 4

    def pattern(self, p: Ops) -> Any:
        return p.Concat(p.rest("parts"), name="concat")

    def starts(self, node: ir.Node) -> bool:
        """Whether a part may be empty."""
        return any(v is not None and v.shape is not None and 0 in v.shape for v in node.inputs)

    def check(self, parts: tuple[ir.Value, ...], concat: ir.Node) -> None:
        require(len(self._kept(parts, concat)) in range(1, len(parts)), "no part is empty")

    def rewrite(self, b: Block, parts: tuple[ir.Value, ...], concat: ir.Node) -> Any:
        kept = self._kept(parts, concat)
        return kept[0] if len(kept) == 1 else b.again(concat, kept)

    def _kept(self, parts: tuple[ir.Value, ...], concat: ir.Node) -> list[ir.Value]:
        axis = attribute(concat, "axis")
        return [part for part in parts if part.shape is None or size(part, axis) != 0]


class GatherShape(Rule):
    """Gather(Shape(x), [i, i + 1, …])  →  Shape(x, start=i, end=…)"""

    since = 15
    keeps_interior = True

    def pattern(self, p: Ops, x: Var, indices: Var) -> Any:
        return p.Gather(p.Shape(x, name="sizes"), indices)

    def check(self, x: ir.Value, indices: ir.Value, sizes: ir.Node) -> None:
        require(not sizes.attributes, "it is a part of the shape already")
        require(rank(indices) == 1 and ints(indices), "the indices are no vector")
        taken = axes_of(indices, rank(x))
        require(taken == list(range(taken[0], taken[0] + len(taken))), "not one after the other")
        require([i % rank(x) for i in ints(indices)] == taken, "not in order")

    def rewrite(self, b: Block, x: ir.Value, indices: ir.Value) -> Any:
        taken = axes_of(indices, rank(x))
        return b.Shape(x, start=taken[0], end=taken[-1] + 1)


class WhereNot(Rule):
    """Where(Not(c), x, y)  →  Where(c, y, x)"""

    since = 9
    keeps_interior = True

    def pattern(self, p: Ops, c: Var, x: Var, y: Var) -> Any:
        return p.Where(p.Not(c), x, y)

    def rewrite(self, b: Block, c: ir.Value, x: ir.Value, y: ir.Value) -> Any:
        return b.Where(c, y, x)


class WhereSame(Rule):
    """Where(c, x, x)  →  x, when c is no larger"""

    since = 9

    def pattern(self, p: Ops, c: Var, x: Var) -> Any:
        return p.Where(c, x, x, name="node")

    def check(self, x: ir.Value, node: ir.Node) -> None:
        require(same_shape(x, node.outputs[0]), "c may stretch x")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


RULES: tuple[Rule, ...] = (
    SliceAll(), SplitConcat(), ConcatConcat(), ConcatEmpty(), GatherShape(), WhereNot(),
    WhereSame(),
)  # fmt: skip
