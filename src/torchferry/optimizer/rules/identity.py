"""Nodes that change nothing."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, ints, number, rank, same_shape
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]


class Identity(Rule):
    """Identity(x)  →  x"""

    since = 1

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Identity(x)

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class Dropout(Rule):
    """Dropout(x), as it is when the model is not trained  →  x"""

    def pattern(self, p: Ops, x: Var, ratio: Var, training: Var) -> Any:
        return p.Dropout(x, p.optional(ratio), p.optional(training), name="dropout")

    def check(self, ratio: ir.Value | None, training: ir.Value | None) -> None:
        idle = training is None or not number(training)
        require(idle or (ratio is not None and number(ratio) == 0), "it drops in training")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class Neutral(Rule):
    """x + 0, x * 1, x ** 1, x | False, x & True  →  x"""

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.any_of(
            p.op(("Add", "Or", "BitwiseOr", "BitwiseXor", "Xor"), x, p.constant(_all(0), "c")),
            p.op(("Mul", "And"), x, p.constant(_all(1), "c")),
            p.op(("Sub",), x, p.constant(_all(0), "c")),
            p.op(("Div", "Pow"), x, p.constant(_all(1), "c")),
        )

    def check(self, x: ir.Value, c: ir.Value) -> None:
        require(rank(x) >= rank(c), "the constant gives x more axes")
        # -0.0 + 0.0 is 0.0, which is equal; no other number changes

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class Not(Rule):
    """Not(Not(x))  →  x"""

    since = 1
    keeps_interior = True

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Not(p.Not(x))

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class Neg(Rule):
    """Neg(Neg(x))  →  x"""

    since = 1
    keeps_interior = True

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Neg(p.Neg(x))

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class ConcatOne(Rule):
    """Concat(x)  →  x

    Not of Max: it stands between nodes of which onnxruntime would make one that is wrong.
    """

    since = 1

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.op(("Concat", "Min", "Sum", "Mean"), x, name="node")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class Pad(Rule):
    """Pad(x, zeros)  →  x"""

    def pattern(self, p: Ops, x: Var, pads: Var) -> Any:
        return p.Pad(x, pads, p.rest("others"), name="pad")

    def check(self, pads: ir.Value) -> None:
        require(not any(ints(pads)), "it pads")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class Tile(Rule):
    """Tile(x, ones)  →  x"""

    def pattern(self, p: Ops, x: Var, repeats: Var) -> Any:
        return p.Tile(x, repeats)

    def check(self, repeats: ir.Value) -> None:
        require(all(times == 1 for times in ints(repeats)), "it repeats")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class SameShape(Rule):
    """Reshape(x, shape) or Expand(x, shape), when x has the shape already  →  x"""

    def pattern(self, p: Ops, x: Var, target: Var) -> Any:
        return p.op(("Reshape", "Expand"), x, target, name="node")

    def check(self, x: ir.Value, node: ir.Node) -> None:
        require(same_shape(x, node.outputs[0]), "the shape may change")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class TransposeInOrder(Rule):
    """Transpose(x, perm=[0, 1, …])  →  x"""

    since = 1

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Transpose(x, name="node")

    def check(self, x: ir.Value, node: ir.Node) -> None:
        perm = attribute(node, "perm") or list(range(rank(x)))[::-1]
        require(perm == sorted(perm), "axes change places")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


def _all(wanted: int) -> Any:
    return lambda content: content.size == 1 and bool((content == wanted).all())


RULES: tuple[Rule, ...] = (
    Identity(), Dropout(), Neutral(), Not(), Neg(), ConcatOne(), Pad(), Tile(), SameShape(),
    TransposeInOrder(),
)  # fmt: skip
