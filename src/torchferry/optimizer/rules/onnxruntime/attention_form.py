"""Attention in the form that onnxruntime's kernel is fastest with: heads within the last axis.

With heads as an axis, queries, keys, values and the result have to be transposed by nodes of their
own; the kernel reads them as the projections before it write them.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, rank, shape, size
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.rules.onnxruntime.attention_mask import hides, made_by, sees

__all__ = ["RULES"]

_CPU = frozenset({"CPU"})
"""Where it was measured to pay."""

_HEADS_LAST = [0, 2, 1, 3]


def _whole(value: ir.Value | None) -> ir.Value:
    """What is split into heads, (batch, length, heads · width), of (batch, heads, length, width).

    Raises:
        Declined: the value is not made by such a split.
    """
    transpose = made_by(value, "Transpose")
    reshape = made_by(transpose.inputs[0], "Reshape") if transpose is not None else None
    found = reshape.inputs[0] if reshape is not None else None
    if transpose is None or reshape is None or found is None:
        raise Declined("the heads are not made by Reshape and Transpose")
    require(attribute(transpose, "perm") == _HEADS_LAST, "the heads are transposed otherwise")
    batch, length, heads, width = _four(reshape.outputs[0])
    known = isinstance(heads, int) and isinstance(width, int)
    require(known and shape(found) == (batch, length, heads * width), "it is no split into heads")
    return found


def _four(value: ir.Value | None) -> tuple[Size, Size, Size, Size]:
    sizes = shape(value)
    if len(sizes) != 4:
        raise Declined("there are not four axes")
    return sizes[0], sizes[1], sizes[2], sizes[3]


def _heads(value: ir.Value) -> int:
    """How many heads a value with four axes has; `_whole` has looked that it is a number."""
    return int(str(size(value, 1)))


def _split(b: Block, value: ir.Value, heads: int, width: int) -> ir.Value:
    """(batch, heads, length, width) of (batch, length, heads · width)."""
    found: ir.Value = b.Transpose(b.Reshape(value, [0, 0, heads, width]), perm=_HEADS_LAST)
    return found


class RotaryFlat(Rule):
    """RotaryEmbedding(Transpose(Reshape(x)))  →  Transpose(Reshape(RotaryEmbedding(x)))"""

    since = 23
    processors = _CPU

    def pattern(self, p: Ops, heads: Var) -> Any:
        return p.RotaryEmbedding(heads, p.rest("caches"), name="node")

    def check(self, heads: ir.Value) -> None:
        require(0 not in shape(_whole(heads)), "it is empty")

    def rewrite(self, b: Block, heads: ir.Value, caches: Any, node: ir.Node) -> Any:
        flat, count = _whole(heads), _heads(heads)
        turned = b.again(node, [flat, *caches], num_heads=count)
        turned.type, turned.shape = flat.type, flat.shape
        return _split(b, turned, count, int(str(size(heads, 3))))


class AttentionFlat(Rule):
    """Transpose(Attention of Transpose(Reshape(x)) thrice)  →  Reshape(Attention(x, x, x))

    The Reshape vanishes with the one that joins the heads again.
    """

    since = 23
    processors = _CPU
    keeps_interior = True

    def pattern(self, p: Ops, q: Var, k: Var, v: Var) -> Any:
        attention = p.Attention(q, k, v, p.rest("others"), name="node")
        return p.Transpose(attention, perm=_HEADS_LAST, name="joined")

    def check(self, q: ir.Value, k: ir.Value, v: ir.Value, node: ir.Node) -> None:
        for value in (q, k, v):
            _whole(value)
        result = node.outputs[0]
        alone = len(result.uses()) == 1 and not result.is_graph_output()
        require(alone, "the heads are used apart too")

    def rewrite(
        self, b: Block, q: ir.Value, k: ir.Value, v: ir.Value, others: Any, node: ir.Node,
        joined: ir.Node,
    ) -> Any:  # fmt: skip
        heads, width = _heads(q), int(str(size(v, 3)))
        inputs = [*map(_whole, (q, k, v)), *others]
        made = b.again(node, inputs, q_num_heads=heads, kv_num_heads=_heads(k))
        result, *caches = [made] if isinstance(made, ir.Value) else made
        for value, old in zip(caches, node.outputs[1:], strict=True):
            value.type, value.shape = old.type, old.shape
        result.type = q.type
        result.shape = ir.Shape([*list(inputs[0].shape or ())[:2], heads * width])
        apart = b.Reshape(result, [0, 0, heads, width])
        return {joined.outputs[0]: apart, **dict(zip(node.outputs[1:], caches, strict=True))}


class SeenRows(Rule):
    """Where(a row of the mask is seen, Attention(…, Where(mask, 0, -inf)), 0)  →  the Attention

    Of a row that is hidden as a whole the kernel makes zeros itself.
    """

    since = 23
    processors = _CPU
    keeps_interior = True

    def pattern(self, p: Ops, seen: Var, q: Var, k: Var, v: Var, mask: Var) -> Any:
        added = p.Where(mask, p.constant(0), p.constant(hides))
        attention = p.Attention(q, k, v, added, p.rest("past"), name="attention")
        return p.Where(seen, attention, p.constant(0, "zero"), name="node")

    def check(self, seen: ir.Value, mask: ir.Value, zero: ir.Value, attention: ir.Node) -> None:
        require(sees(seen, mask), "it is not asked whether the mask hides a row")
        sizes, result = shape(seen), shape(attention.outputs[0])
        require(len(sizes) <= len(result), "the result has more axes")
        pairs = zip(sizes[::-1], result[::-1], strict=False)
        require(all(a in (1, b) for a, b in pairs), "the result is broadcast")
        require(rank(zero) <= len(result), "the result has more axes")

    def rewrite(self, b: Block, attention: ir.Node) -> Any:
        return attention.outputs[0]


RULES: tuple[Rule, ...] = (SeenRows(), RotaryFlat(), AttentionFlat())
