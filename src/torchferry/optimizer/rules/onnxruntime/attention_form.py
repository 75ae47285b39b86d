"""Attention in the form that onnxruntime's kernel is fastest with: heads within the last axis.

With heads as an axis, queries, keys, values and the result have to be transposed by nodes of their
own; the kernel reads them as the projections before it write them.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.dims import Size
from torchferry.graph.runtime import HIDDEN_ROWS, Ability
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import attribute, rank, shape, size
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.rules.onnxruntime.attention_mask import hides, is_finite, made_by, sees

__all__ = ["RULES"]

_CPU = frozenset({"CPU"})
"""Where it was measured to pay."""

_HEADS_LAST = [0, 2, 1, 3]


def _apart(value: ir.Value | None) -> ir.Value:
    """What is transposed, (batch, length, heads, width), into (batch, heads, length, width).

    Raises:
        Declined: the value is not made so, or how many heads there are is not known.
    """
    transpose = made_by(value, "Transpose")
    found = transpose.inputs[0] if transpose is not None else None
    if transpose is None or found is None:
        raise Declined("the heads are not transposed")
    require(attribute(transpose, "perm") == _HEADS_LAST, "the heads are transposed otherwise")
    heads, width = _four(found)[2:]
    require(isinstance(heads, int) and isinstance(width, int), "the heads are not known")
    return found


def _whole(b: Block, value: ir.Value | None) -> ir.Value:
    """(batch, length, heads · width), what was split into heads if they are as they were."""
    apart = _apart(value)
    batch, length, heads, width = _four(apart)
    reshape = made_by(apart, "Reshape")
    before = reshape.inputs[0] if reshape is not None else None
    joined = int(str(heads)) * int(str(width))
    if (
        before is not None
        and before.shape is not None
        and shape(before) == (batch, length, joined)
    ):
        return before
    found: ir.Value = b.Reshape(apart, [0, 0, joined])
    found.type, found.shape = apart.type, ir.Shape([*list(apart.shape or ())[:2], joined])
    return found


def _four(value: ir.Value | None) -> tuple[Size, Size, Size, Size]:
    sizes = shape(value)
    if len(sizes) != 4:
        raise Declined("there are not four axes")
    return sizes[0], sizes[1], sizes[2], sizes[3]


def _heads(value: ir.Value) -> int:
    """How many heads a value with four axes has; `_apart` has looked that it is a number."""
    return int(str(size(value, 1)))


def _split(b: Block, value: ir.Value, heads: int, width: int) -> ir.Value:
    """(batch, heads, length, width) of (batch, length, heads · width)."""
    found: ir.Value = b.Transpose(b.Reshape(value, [0, 0, heads, width]), perm=_HEADS_LAST)
    return found


class RotaryFlat(Rule):
    """RotaryEmbedding(Transpose(Reshape(x)))  →  Transpose(Reshape(RotaryEmbedding(x)))

    What is transposed may be something else, such as a norm of each head; it is joined then.
    """

    since = 23
    processors = _CPU

    def pattern(self, p: Ops, heads: Var) -> Any:
        return p.RotaryEmbedding(heads, p.rest("caches"), name="node")

    def check(self, heads: ir.Value) -> None:
        require(0 not in shape(_apart(heads)), "it is empty")

    def rewrite(self, b: Block, heads: ir.Value, caches: Any, node: ir.Node) -> Any:
        flat, count = _whole(b, heads), _heads(heads)
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
            _apart(value)
        result = node.outputs[0]
        alone = len(result.uses()) == 1 and not result.is_graph_output()
        require(alone, "the heads are used apart too")

    def rewrite(
        self, b: Block, q: ir.Value, k: ir.Value, v: ir.Value, others: Any, node: ir.Node,
        joined: ir.Node,
    ) -> Any:  # fmt: skip
        heads, width = _heads(q), int(str(size(v, 3)))
        inputs = [*(_whole(b, value) for value in (q, k, v)), *others]
        made = b.again(node, inputs, q_num_heads=heads, kv_num_heads=_heads(k))
        result, *caches = [made] if isinstance(made, ir.Value) else made
        for value, old in zip(caches, node.outputs[1:], strict=True):
            value.type, value.shape = old.type, old.shape
        result.type = q.type
        result.shape = ir.Shape([*list(inputs[0].shape or ())[:2], heads * width])
        apart = b.Reshape(result, [0, 0, heads, width])
        return {joined.outputs[0]: apart, **dict(zip(node.outputs[1:], caches, strict=True))}


class SeenRows(Rule):
    """Where(a row of the mask is seen, Attention(…, mask), 0)  →  the Attention

    Of a row that is hidden as a whole, by -inf, the kernel makes zeros itself. The mask is true
    where a score counts, or is added and keeps its -inf.
    """

    since = 23
    processors = _CPU
    keeps_interior = True

    def pattern(self, p: Ops, seen: Var, q: Var, k: Var, v: Var, mask: Var) -> Any:
        chosen = p.Where(mask, p.constant(0), p.constant(hides))
        bounded = p.Max(mask, p.constant(), name="bounded")
        added = p.any_of(chosen, p.Where(p.IsInf(mask), mask, bounded), bounded, mask)
        attention = p.Attention(q, k, v, added, p.rest("past"), name="attention")
        return p.Where(seen, attention, p.constant(0, "zero"), name="node")

    def check(
        self, seen: ir.Value, mask: ir.Value, zero: ir.Value, attention: ir.Node,
        bounded: ir.Node | None,
    ) -> None:  # fmt: skip
        require(sees(seen, mask), "it is not asked whether the mask hides a row")
        if mask is attention.inputs[3]:
            require(mask.dtype == ir.DataType.BOOL, "the mask may hide by the least number")
        if bounded is not None and bounded.outputs[0] is attention.inputs[3]:
            require(is_finite(mask), "the mask may hide by -inf, which Max does not keep")
        sizes, result = shape(seen), shape(attention.outputs[0])
        require(len(sizes) <= len(result), "the result has more axes")
        pairs = zip(sizes[::-1], result[::-1], strict=False)
        require(all(a in (1, b) for a, b in pairs), "the result is broadcast")
        require(rank(zero) <= len(result), "the result has more axes")

    def needs(self) -> tuple[Ability, ...]:
        """Zeros for hidden rows."""
        return (HIDDEN_ROWS,)

    def rewrite(self, b: Block, attention: ir.Node) -> Any:
        return attention.outputs[0]


RULES: tuple[Rule, ...] = (SeenRows(), RotaryFlat(), AttentionFlat())
