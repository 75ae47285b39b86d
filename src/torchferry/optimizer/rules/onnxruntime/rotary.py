"""Rotary position embeddings, spelled out → RotaryEmbedding."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import (
    array,
    attribute,
    constant,
    ints,
    rank,
    same_size,
    size,
)
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require

__all__ = ["RULES"]

_MS = "com.microsoft"
_OWN_OPSET = 23
"""From here on ONNX has RotaryEmbedding, which takes a cosine for each position as it stands."""
_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_LAST = (-1, 3)
_SAME_ON_HALVES = frozenset({"Cos", "Sin", "Cast", "Identity", "Unsqueeze", "Squeeze"})
"""What makes equal halves of equal halves."""


def _halves(p: Ops, x: Any) -> Any:
    """Concat(-second half, first half), the halves made by two slices or a split."""
    cut = {"axis": lambda axis: axis in _LAST}
    first = p.Slice(x, p.constant(), p.constant(), p.rest("first_axes"), name="first")
    second = p.Slice(x, p.constant(), p.constant(), p.rest("second_axes"), name="second")
    left, right = p.Split(x, p.rest("parts"), outputs=2, name="split", **cut)
    return p.any_of(
        p.Concat(p.Neg(second), first, **cut),
        p.Concat(p.Neg(right), left, **cut),
    )


def _check_slice(node: ir.Node, start: int, end: int) -> None:
    """Decline unless a Slice takes start to end of the last of four axes."""
    begins, ends = ints(node.inputs[1]), ints(node.inputs[2])
    axes = ints(node.inputs[3]) if len(node.inputs) > 3 else []
    steps = ints(node.inputs[4]) if len(node.inputs) > 4 else [1]
    width = size(node.inputs[0], -1)
    require(isinstance(width, int), "the last size is not known")
    require(axes in ([3], [-1]) and steps == [1], "it is no slice of the last axis")
    taken = range(int(str(width)))[begins[0] : ends[0]]
    require((taken.start, taken.stop) == (start, end), "the slices are not the two halves")


def _equal_halves(value: ir.Value | None) -> bool:
    """Whether the second half of the last axis is the first half again."""
    tensor = constant(value)
    if tensor is not None:
        content = array(value, most=1 << 24)
        half = content.shape[-1] // 2 if content.ndim else 0
        return half > 0 and np.array_equal(content[..., :half], content[..., half:])
    node = None if value is None else value.producer()
    if node is None or node.domain:
        return False
    if node.op_type in _SAME_ON_HALVES:
        return not _moves_last(node) and _equal_halves(node.inputs[0])
    if node.op_type == "Mul":
        pairs = (node.inputs, node.inputs[::-1])
        return any(_single(a) and _equal_halves(b) for a, b in pairs)
    if node.op_type == "Concat":
        around = rank(node.outputs[0])
        same = len(node.inputs) == 2 and node.inputs[0] is node.inputs[1]
        return same and attribute(node, "axis") in (-1, around - 1)
    if node.op_type == "Gather":
        over = rank(node.inputs[0])
        return attribute(node, "axis", 0) == 0 and over > 1 and _equal_halves(node.inputs[0])
    return False


def _moves_last(node: ir.Node) -> bool:
    """Whether an Unsqueeze or Squeeze touches the last axis."""
    if node.op_type not in ("Unsqueeze", "Squeeze"):
        return False
    if len(node.inputs) < 2:
        return True
    around = rank(node.outputs[0] if node.op_type == "Unsqueeze" else node.inputs[0])
    return any(axis % around == around - 1 for axis in ints(node.inputs[1]))


def _single(value: ir.Value | None) -> bool:
    tensor = constant(value)
    return tensor is not None and tensor.size == 1


class Rotary(Rule):
    """x * cos + Concat(-second half of x, first half of x) * sin  →  RotaryEmbedding(x, cos, sin)

    With halves of cos and sin that are equal. Before opset 23 com.microsoft's, which takes them
    by position: every position is made the number of its own row.
    """

    since = 15  # Shape of some axes only

    def pattern(self, p: Ops, x: Var, cos: Var, sin: Var) -> Any:
        return p.Add(p.Mul(x, cos), p.Mul(_halves(p, x), sin))

    def check(
        self, x: ir.Value, cos: ir.Value, sin: ir.Value, split: ir.Node | None,
        first: ir.Node | None, second: ir.Node | None,
    ) -> None:  # fmt: skip
        require(x.dtype in _TYPES, "x is neither float32 nor float16")
        require(rank(x) == 4, "x has not four axes")
        width = size(x, -1)
        if not isinstance(width, int) or width % 2 or not isinstance(size(x, 1), int):
            raise Declined("the number of heads or an even last size is not known")
        if first is not None and second is not None:
            _check_slice(first, 0, width // 2)
            _check_slice(second, width // 2, width)
        if split is not None:
            require(size(split.outputs[0], -1) == width // 2, "the parts are not two halves")
        for value in (cos, sin):
            require(rank(value) == 4, "the cosine has not four axes")
            require(size(value, 0) in (1, size(x, 0)) and size(value, 1) == 1, "it is broadcast")
            require(same_size(value, 2, x, 2) and size(value, 3) == width, "it is broadcast")
            require(_equal_halves(value), "the halves of the cosine may differ")

    def rewrite(self, b: Block, x: ir.Value, cos: ir.Value, sin: ir.Value) -> Any:
        if b.opset >= _OWN_OPSET:
            caches = [self._cache(b, value, x) for value in (cos, sin)]
            return b.RotaryEmbedding(x, *caches, like=x)
        rows = [b.Reshape(_first_half(b, value), [-1, self._half(value)]) for value in (cos, sin)]
        return b.RotaryEmbedding(x, self._rows(b, x, cos), *rows, domain=_MS, like=x)

    def _half(self, value: ir.Value) -> int:
        return int(str(size(value, 3))) // 2

    def _cache(self, b: Block, value: ir.Value, x: ir.Value) -> ir.Value:
        """(batch, positions, half) of (batch or 1, 1, positions, width)."""
        half = b.Squeeze(_first_half(b, value), [1])
        if not same_size(value, 0, x, 0):
            batch = b.Shape(_uncut(x), start=0, end=1)
            half = b.Expand(half, b.Concat(batch, b.constant([1, 1]), axis=0))
        found: ir.Value = half
        return found

    def _rows(self, b: Block, x: ir.Value, cos: ir.Value) -> ir.Value:
        """The row of each position, int64 (batch, positions)."""
        whole = _uncut(x)
        batch, length = (b.Shape(whole, start=axis, end=axis + 1) for axis in (0, 2))
        both = b.Concat(batch, length, axis=0)
        many = b.Mul(batch, length) if same_size(cos, 0, x, 0) else length
        zero, one = b.constant(0), b.constant(1)
        rows = b.Range(zero, b.Squeeze(many, [0]), one)
        found: ir.Value = b.Expand(rows, both) if many is length else b.Reshape(rows, both)
        return found


def _uncut(x: ir.Value) -> ir.Value:
    """What a value is a part of along the last axis, or the value itself."""
    node = x.producer()
    if node is None or node.domain or node.inputs[0] is None:
        return x
    if node.op_type == "Slice" and len(node.inputs) > 3 and constant(node.inputs[3]) is not None:
        return node.inputs[0] if ints(node.inputs[3]) in ([3], [-1]) else x
    split = node.op_type == "Split" and attribute(node, "axis", 0) in _LAST
    return node.inputs[0] if split else x


def _first_half(b: Block, value: ir.Value) -> ir.Value:
    """The first half of the last axis: of what a value was made of, rather than cut off it."""
    node = value.producer()
    made = node is not None and not node.domain and constant(value) is None
    if node is not None and made and node.op_type == "Concat":
        return _input(node, 0)
    if node is not None and made and (node.op_type in _SAME_ON_HALVES or node.op_type == "Mul"):
        index = 1 if node.op_type == "Mul" and _single(node.inputs[0]) else 0
        inputs = list(node.inputs)
        inputs[index] = _first_half(b, _input(node, index))
        made_again: ir.Value = b.again(node, inputs)
        return made_again
    found: ir.Value = b.Slice(value, [0], [int(str(size(value, -1))) // 2], [-1])
    return found


def _input(node: ir.Node, index: int) -> ir.Value:
    value = node.inputs[index]
    if value is None:
        raise Declined(f"{node.op_type} lacks an input")
    return value


class RotaryPart(Rule):
    """Concat(RotaryEmbedding(a first part of x), the rest)  →  RotaryEmbedding(x) of that part"""

    def pattern(self, p: Ops, x: Var) -> Any:
        cut = {"axis": lambda axis: axis in _LAST}
        first = p.Slice(x, p.constant(), p.constant(), p.rest("first_axes"), name="first")
        second = p.Slice(x, p.constant(), p.constant(), p.rest("second_axes"), name="second")
        left, right = p.Split(x, p.rest("parts"), outputs=2, name="split", **cut)
        caches = p.rest("caches")
        return p.any_of(
            *(
                p.Concat(p.RotaryEmbedding(part, caches, domain=d, name="node"), other, **cut)
                for d in ("", _MS)
                for part, other in ((first, second), (left, right))
            )
        )

    def check(
        self, x: ir.Value, first: ir.Node | None, second: ir.Node | None, node: ir.Node
    ) -> None:
        require(rank(x) == 4 and isinstance(size(x, 1), int), "x has not four axes and its heads")
        width, turned = size(x, -1), size(node.inputs[0], -1)
        if not (isinstance(width, int) and isinstance(turned, int)):
            raise Declined("the last size is not known")
        require(not attribute(node, "rotary_embedding_dim", 0), "a part of it is turned already")
        if first is not None and second is not None:
            _check_slice(first, 0, turned)
            _check_slice(second, turned, width)

    def rewrite(self, b: Block, x: ir.Value, caches: Any, node: ir.Node) -> Any:
        turned, heads = int(str(size(node.inputs[0], -1))), int(str(size(x, 1)))
        result = b.again(node, [x, *caches], rotary_embedding_dim=turned, num_heads=heads)
        value: ir.Value = result if isinstance(result, ir.Value) else result[0]
        value.type, value.shape = x.type, x.shape
        return value


RULES: tuple[Rule, ...] = (Rotary(), RotaryPart())
