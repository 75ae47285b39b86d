"""Reshape, Squeeze, Unsqueeze, Expand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import (
    attribute,
    axes_of,
    ints,
    is_constant,
    rank,
    same_size,
    shape,
    size,
)
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.sizes import contents

__all__ = ["RULES"]

_BINARY = (
    "Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "LessOrEqual",
    "Greater", "GreaterOrEqual", "Mod",
)  # fmt: skip


class ReshapeReshape(Rule):
    """Reshape(Reshape(x, _), target)  →  Reshape(x, target)"""

    keeps_interior = True

    def pattern(self, p: Ops, x: Var, between: Var, target: Var) -> Any:
        return p.Reshape(p.Reshape(x, between, name="inner"), target, name="outer")

    def check(self, x: ir.Value, inner: ir.Node, target: ir.Value, outer: ir.Node) -> None:
        copies = not attribute(outer, "allowzero", 0) or 0 not in ints(target)
        require(copies, "a 0 is a size of 0")
        self._target(x, inner, target)

    def rewrite(self, b: Block, x: ir.Value, inner: ir.Node, target: ir.Value) -> Any:
        return b.Reshape(x, self._target(x, inner, target))

    def _target(self, x: ir.Value, inner: ir.Node, target: ir.Value) -> list[int]:
        """A 0 copies a size of what is reshaped, which is now another value."""
        wanted = ints(target)
        for axis, copied in enumerate(wanted):
            if copied == 0:
                known = size(inner.outputs[0], axis)
                if isinstance(known, int) and known > 0:
                    wanted[axis] = known
                else:
                    here = axis < rank(x) and same_size(x, axis, inner.outputs[0], axis)
                    require(here, "a 0 copies a size that x does not have")
        return wanted


class SqueezeReshape(Rule):
    """Reshape(Squeeze or Unsqueeze(x), target)  →  Reshape(x, target), when target has no 0"""

    keeps_interior = True

    def pattern(self, p: Ops, x: Var, axes: Var, target: Var) -> Any:
        inner = p.op(("Squeeze", "Unsqueeze"), x, p.optional(axes), name="inner")
        return p.Reshape(inner, target)

    def check(self, target: ir.Value) -> None:
        require(0 not in ints(target), "a 0 copies a size of what is reshaped")

    def rewrite(self, b: Block, x: ir.Value, target: ir.Value) -> Any:
        return b.Reshape(x, target)


class ReshapeConstant(Rule):
    """Reshape(x, sizes computed in the graph)  →  Reshape(x, constant of sizes, 0 and -1)

    With allowzero too: a computed size of 0 is one that is copied.
    """

    def pattern(self, p: Ops, x: Var, target: Var) -> Any:
        return p.Reshape(x, target, name="node")

    def check(self, x: ir.Value, target: ir.Value) -> None:
        require(not is_constant(target), "the target is constant already")
        self._target(x, target)

    def rewrite(self, b: Block, x: ir.Value, target: ir.Value) -> Any:
        return b.Reshape(x, self._target(x, target))

    def _target(self, x: ir.Value, target: ir.Value) -> list[int]:
        wanted = contents(target)
        if wanted is None:
            raise Declined("the target is not known")
        found = _written(wanted, shape(x))
        require(found.count(-1) <= 1, "two sizes would have to be found out")
        return _without_rest(found, shape(x)) if {0, -1} <= set(found) else found


def _written(wanted: Sequence[Size], have: Sequence[Size]) -> list[int]:
    """Sizes as a constant says them: a number, 0 for a copy, -1 for what is left."""
    found = []
    for axis, item in enumerate(wanted):
        if isinstance(item, int):
            require(item != 0, "a size of 0 means a copy")
            found.append(item)
        else:
            found.append(0 if axis < len(have) and have[axis] == item else -1)
    return found


class ReshapeRest(Rule):
    """Reshape(x, [0, …, -1])  →  Reshape(x, [0, …, n]), when n follows from the shape of x

    What is left for -1 is found by a division, which a copied size of 0 makes impossible.
    """

    def pattern(self, p: Ops, x: Var, target: Var) -> Any:
        return p.Reshape(x, target, name="node")

    def check(self, x: ir.Value, target: ir.Value, node: ir.Node) -> None:
        require(not attribute(node, "allowzero", 0), "a 0 is a size of 0")
        self._target(x, target)

    def rewrite(self, b: Block, x: ir.Value, target: ir.Value) -> Any:
        return b.Reshape(x, self._target(x, target))

    def _target(self, x: ir.Value, target: ir.Value) -> list[int]:
        wanted = ints(target)
        require(0 in wanted and -1 in wanted, "no size is copied, or none is left open")
        return _without_rest(wanted, shape(x))


def _without_rest(wanted: Sequence[int], have: Sequence[Size]) -> list[int]:
    """A target with a number for -1.

    Raises:
        Declined: it depends on the inputs. A division by copied sizes, which may be 0, finds it.
    """
    left = [size for axis, size in enumerate(have) if axis >= len(wanted) or wanted[axis] != 0]
    rest = math.prod(left)
    part = math.prod(item for item in wanted if item > 0)
    known = isinstance(rest, int) and rest > 0 and rest % part == 0
    require(known, "a size of 0 would leave another one open")
    return [int(str(rest)) // part if item == -1 else item for item in wanted]


class UnsqueezeUnsqueeze(Rule):
    """Unsqueeze(Unsqueeze(x, i), j)  →  Unsqueeze(x, both)"""

    keeps_interior = True

    def pattern(self, p: Ops, x: Var, first: Var, second: Var) -> Any:
        return p.Unsqueeze(p.Unsqueeze(x, first), second)

    def check(self, x: ir.Value, first: ir.Value, second: ir.Value) -> None:
        ints(first), ints(second), rank(x)

    def rewrite(self, b: Block, x: ir.Value, first: ir.Value, second: ir.Value) -> Any:
        between = rank(x) + len(ints(first))
        whole = between + len(ints(second))
        outer = axes_of(second, whole)
        left = [axis for axis in range(whole) if axis not in outer]
        return b.Unsqueeze(x, sorted([*outer, *(left[i] for i in axes_of(first, between))]))


class SqueezeUnsqueeze(Rule):
    """Squeeze(Unsqueeze(x, axes), axes), or the other way round  →  x"""

    keeps_interior = True

    def pattern(self, p: Ops, x: Var, first: Var, second: Var) -> Any:
        return p.any_of(
            p.Squeeze(p.Unsqueeze(x, first), second, name="outer"),
            p.Unsqueeze(p.Squeeze(x, first), second, name="outer"),
        )

    def check(self, x: ir.Value, first: ir.Value, second: ir.Value, outer: ir.Node) -> None:
        grown = rank(x) + len(ints(first)) if outer.op_type == "Squeeze" else rank(x)
        require(axes_of(first, grown) == axes_of(second, grown), "the axes differ")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class ExpandBroadcast(Rule):
    """f(Expand(x, _), y)  →  f(x, y), when y is as large as the result"""

    def pattern(self, p: Ops, x: Var, target: Var, y: Var) -> Any:
        return p.any_of(
            p.op(_BINARY, p.Expand(x, target), y, name="node"),
            p.op(_BINARY, y, p.Expand(x, target), name="node"),
        )

    def check(self, x: ir.Value, y: ir.Value, node: ir.Node) -> None:
        wanted, have = shape(node.outputs[0]), shape(x)
        require(len(have) <= len(wanted), "x has more axes")
        padded = (1,) * (len(wanted) - len(have)) + have
        other = shape(y)
        other = (1,) * (len(wanted) - len(other)) + other
        fits = all(w in (o, h) for w, o, h in zip(wanted, other, padded, strict=True))
        require(fits, "y is smaller than the result")

    def rewrite(self, b: Block, x: ir.Value, y: ir.Value, node: ir.Node) -> Any:
        first = node.inputs[0] is y
        return b.again(node, [y, x] if first else [x, y])


RULES: tuple[Rule, ...] = (
    ReshapeReshape(), SqueezeReshape(), ReshapeConstant(), ReshapeRest(), UnsqueezeUnsqueeze(),
    SqueezeUnsqueeze(), ExpandBroadcast(),
)  # fmt: skip
