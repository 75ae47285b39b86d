"""Scaled dot product attention, as converters and eager modules spell it, → ONNX's Attention.

onnxruntime's kernel for it needs neither repeated heads nor a transposed key, and makes the new
cache itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.dims import Size
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import (
    array,
    attribute,
    constant,
    number,
    rank,
    same_size,
    shape,
    size,
)
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.rules.onnxruntime.attention_mask import (
    is_causal,
    is_finite,
    is_number,
    made_by,
    sees,
)

__all__ = ["RULES"]

_HIDDEN = -1e30
"""A score that is replaced by less than this has no weight."""

_LEAST = -1e38
"""What hides a score here: of a row that has the least float32 or -inf everywhere, the kernel
makes zeros, where a Softmax makes equal weights of the first and NaN of the second."""

_WHERE = frozenset({"CPU"})
"""Where it was measured to pay."""

_HEADS_FIRST = [0, 1, 2, 3]


@dataclass
class _Scores:
    """What scores are made of: scale · query · keyᵀ + bias, or ``hidden`` where a mask is false.

    Attributes:
        order: how the axes of the key are put into the order (batch, heads, length, width).
    """

    query: ir.Value
    key: ir.Value
    order: list[int]
    scale: float
    bias: ir.Value | None = None
    mask: ir.Value | None = None
    hidden: ir.Value | None = None

    @property
    def shared_key(self) -> ir.Value:
        """The key before its heads were repeated."""
        return _once(self.key) if self.order == _HEADS_FIRST else self.key


def _scaled(value: ir.Value | None) -> tuple[ir.Value, float]:
    """A value without the constant numbers it is multiplied by, and their product."""
    factor = 1.0
    if value is None:
        raise Declined("there is no value")
    while (node := made_by(value, "Mul", "Div")) is not None:
        left, right = node.inputs
        if node.op_type == "Mul" and is_number(left):
            left, right = right, left
        if not is_number(right) or left is None:
            break
        by = float(number(right))
        require(by > 0, "a scale is not positive")
        factor = factor * by if node.op_type == "Mul" else factor / by
        value = left
    return value, factor


def _read(scores: ir.Value) -> _Scores:
    """Take the input of a Softmax apart.

    Raises:
        Declined: it is made otherwise.
    """
    bias = mask = hidden = None
    if (node := made_by(scores, "Where")) is not None:
        mask, scores, hidden = node.inputs  # type: ignore[assignment]  # it has three
        require(is_number(hidden) and float(number(hidden)) < _HIDDEN, "hidden scores count")
    elif (node := made_by(scores, "Add")) is not None:
        sides = [value for value in node.inputs if value is not None]
        products = [value for value in sides if _is_product(value)]
        require(len(products) == 1, "it is not clear which term is the mask")
        scores = products[0]
        bias = sides[1] if sides[0] is scores else sides[0]
    product, scale = _scaled(scores)
    left, node = _product(product)
    query, by_query = _scaled(left)
    turned, by_key = _scaled(node.inputs[1])
    turn = made_by(turned, "Transpose")
    if turn is None or attribute(turn, "perm") not in ([0, 1, 3, 2], [0, 2, 3, 1]):
        raise Declined("the key is not transposed in its last axes")
    order = _HEADS_FIRST if attribute(turn, "perm") == [0, 1, 3, 2] else [0, 2, 1, 3]
    key, by_key_before = _scaled(turn.inputs[0])
    scale *= by_query * by_key * by_key_before
    return _Scores(query, key, order, scale, bias, mask, hidden)


def _is_product(value: ir.Value | None) -> bool:
    if value is None or value.shape is None or len(value.shape) != 4:
        return False
    product = _scaled(value)[0]
    try:
        return bool(_product(product))
    except Declined:
        return False


def _product(value: ir.Value) -> tuple[ir.Value | None, ir.Node]:
    """The left side of a product, and the MatMul; the heads of a group may be rows of one matrix.

    Raises:
        Declined: it is no product.
    """
    node = made_by(value, "MatMul")
    if node is not None:
        return node.inputs[0], node
    parted = made_by(value, "Reshape")
    node = None if parted is None else made_by(parted.inputs[0], "MatMul")
    if node is None:
        raise Declined("the scores are no product")
    return _ungrouped(node.inputs[0], value), node


def _ungrouped(rows: ir.Value | None, value: ir.Value) -> ir.Value:
    """(batch, heads, length, n) of (batch, groups, heads / groups · length, n).

    Args:
        rows: the second.
        value: has as many heads and the same length.

    Raises:
        Declined: that is not so.
    """
    node = made_by(rows, "Reshape")
    if node is None or node.inputs[0] is None:
        raise Declined("the rows of a group are not made by a Reshape")
    whole, joined, like = shape(node.inputs[0]), shape(rows), shape(value)
    require(len(whole) == len(joined) == len(like) == 4, "there are not four axes")
    kept = (whole[0], whole[3]) == (joined[0], joined[3]) and whole[:3] == like[:3]
    require(kept, "more than heads and rows are joined")
    heads, groups = whole[1], joined[1]
    known = isinstance(heads, int) and isinstance(groups, int) and groups > 0
    require(known and heads % groups == 0, "the heads are not in groups")
    return node.inputs[0]


def _once(value: ir.Value) -> ir.Value:
    """A key or a value without the repetition of its heads, if they are repeated in order."""
    reshape = made_by(value, "Reshape")
    expand = made_by(reshape.inputs[0], "Expand") if reshape else None
    unsqueeze = made_by(expand.inputs[0], "Unsqueeze") if expand else None
    if reshape is None or expand is None or unsqueeze is None:
        return value
    inner = unsqueeze.inputs[0]
    if inner is None or inner.shape is None or len(inner.shape) != 4:
        return value
    batch, heads, length, width = shape(inner)
    grown = shape(expand.outputs[0])
    if len(grown) != 5 or not (isinstance(heads, int) and isinstance(grown[2], int)):
        return value
    same = grown == (batch, heads, grown[2], length, width)
    apart = shape(unsqueeze.outputs[0]) == (batch, heads, 1, length, width)
    joined = shape(value) == (batch, heads * grown[2], length, width)
    return inner if same and apart and joined else value


def _check_sizes(query: ir.Value, key: tuple[Size, ...], value: tuple[Size, ...]) -> None:
    require(query.dtype in (ir.DataType.FLOAT, ir.DataType.FLOAT16), "it is not float32 or 16")
    sizes = shape(query)
    require(len(sizes) == len(key) == len(value) == 4, "there are not four axes")
    require(0 not in (*sizes, *key, *value), "it is empty, which the kernel refuses")
    heads, groups = sizes[1], key[1]
    known = isinstance(heads, int) and isinstance(groups, int)
    require(known, "a number of heads is not known")
    require(groups and heads % groups == 0 and value[1] == groups, "heads are broadcast")
    require(sizes[0] == key[0] == value[0], "the batch is broadcast")
    require(sizes[3] == key[3], "query and key differ in their last size")


def _check_mask(mask: ir.Value, query: ir.Value) -> None:
    axes, sizes = shape(mask), shape(query)
    require(len(axes) in (2, 4), "the mask has not two or four axes")
    fits = all(a in (1, s) for a, s in zip(axes[:-2], sizes, strict=False))
    require(fits, "the mask is larger than the scores")


def _is_guarded(result: ir.Value, mask: ir.Value) -> bool:
    """Whether rows that see nothing are put aside by all who read the result."""
    readers = list(result.consumers())
    put = [node for node in readers if node.op_type == "Where" and node.inputs[1] is result]
    if not put or len(put) != len(readers) or result.is_graph_output():
        return False
    return all(sees(node.inputs[0], mask) and is_finite(node.inputs[2]) for node in put)


def _added(b: Block, found: _Scores) -> ir.Value | None:
    """What the kernel adds to the scores, so that it hides what was hidden and nothing more."""
    if found.mask is not None:
        zero = b.constant(0, found.query)
        hidden = max(float(number(found.hidden)), _LEAST) if is_finite(found.hidden) else -np.inf
        added = b.Where(found.mask, zero, b.constant(hidden, found.query))
        added.type, added.shape = zero.type, found.mask.shape
    elif found.bias is None or (constant(found.bias) is not None and _is_moderate(found.bias)):
        return found.bias
    else:
        added = b.Max(found.bias, _LEAST, like=found.bias)
        if not is_finite(found.bias):
            infinite = b.IsInf(found.bias)
            added = b.Where(infinite, found.bias, added, like=found.bias)
    result: ir.Value = added
    return result


def _is_moderate(bias: ir.Value) -> bool:
    return bool((array(bias, most=1 << 24) >= _LEAST).all())


def _whole(b: Block, mask: ir.Value, query: ir.Value, length: Size, key: ir.Value) -> ir.Value:
    """A mask that is as large as the scores in its last two axes, which the kernel asks for."""
    axes, have = shape(mask), (size(query, 2), length)
    if axes[-2:] == have:
        return mask
    ends = [b.Shape(query, start=2, end=3), b.Shape(key, start=2, end=3)]
    target = b.Concat(b.constant([1] * (len(axes) - 2)), *ends, axis=0) if len(axes) > 2 else (
        b.Concat(*ends, axis=0)
    )  # fmt: skip
    whole: ir.Value = b.Expand(mask, target)
    return whole


class KeyTransposed(Rule):
    """Reshape(Transpose(Reshape(x, (·, L, D)), (0, 2, 1)), (B, N, D, L))  →  Transpose(x)

    In the last two axes, as torch.onnx writes it.
    """

    def pattern(self, p: Ops, x: Var, flat: Var, target: Var) -> Any:
        turned = p.Transpose(p.Reshape(x, flat, name="first"), perm=[0, 2, 1])
        return p.Reshape(turned, target, name="last")

    def check(self, x: ir.Value, first: ir.Node, last: ir.Node) -> None:
        require(rank(x) == 4 and rank(first.outputs[0]) == 3, "the axes are not four, then three")
        sizes = shape(x)
        kept = shape(first.outputs[0])[1:] == sizes[2:]
        require(kept, "more than the leading axes are joined")
        wanted = (*sizes[:2], sizes[3], sizes[2])
        require(shape(last.outputs[0]) == wanted, "it is no transposition")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return b.Transpose(x, perm=[0, 1, 3, 2])


class Attention(Rule):
    """Softmax(scale * query keyᵀ + mask) value  →  Attention(query, key, value, mask)

    The scale may stand anywhere, and repeated heads are not repeated any longer. The mask becomes
    what is added: 0, or what hid a score. Rows that are masked as a whole keep what is made of
    them, or this declines. The kernel refuses an empty batch.
    """

    since = 23
    processors = _WHERE

    def pattern(self, p: Ops, scores: Var, value: Var) -> Any:
        softmax = p.Softmax(scores, axis=lambda axis: axis in (-1, 3))
        cleared = p.Where(p.IsNaN(softmax), p.constant(0), softmax, name="cleared")
        return p.MatMul(p.any_of(softmax, cleared), value, name="product")

    def check(
        self, scores: ir.Value, value: ir.Value, cleared: ir.Node | None, product: ir.Node
    ) -> None:
        found = _read(scores)
        key = found.shared_key
        require(rank(key) == 4, "there are not four axes")
        _check_sizes(found.query, _in_order(shape(key), found.order), shape(_once(value)))
        mask = found.mask if found.mask is not None else found.bias
        if mask is not None and not self._is_causal(found):
            _check_mask(mask, found.query)
            safe = is_finite(found.bias if found.mask is None else found.hidden)
            exact = found.query.dtype == ir.DataType.FLOAT or (found.mask is not None and not safe)
            require(exact, "half-precise scores and their mask may round otherwise")
            kept = safe or cleared is not None or _is_guarded(product.outputs[0], mask)
            require(kept, "a row may be masked as a whole, and be NaN")

    def rewrite(self, b: Block, scores: ir.Value, value: ir.Value) -> Any:
        found = _read(scores)
        query, key = found.query, found.shared_key
        causal = self._is_causal(found)
        mask = None if causal else _added(b, found)
        length = _in_order(shape(key), found.order)[2]
        if found.order != _HEADS_FIRST:
            key = b.Transpose(key, perm=found.order)
        if mask is not None:
            mask = _whole(b, mask, query, length, key)
        return b.Attention(
            query, key, _once(value), mask, scale=found.scale, is_causal=1 if causal else None
        )

    def _is_causal(self, found: _Scores) -> bool:
        length = _in_order(shape(found.shared_key), found.order)[2]
        return is_causal(found.bias, size(found.query, 2), length)


class AttentionGrouped(Attention):
    """The same, of heads that share a key  →  Attention

    Where the heads of a group are more rows of one matrix, before each of the two products.
    """

    def pattern(self, p: Ops, scores: Var, value: Var) -> Any:
        softmax = p.Softmax(scores, axis=lambda axis: axis in (-1, 3))
        rows = p.Reshape(softmax, p.rest("joined"), name="rows")
        return p.Reshape(p.MatMul(rows, value), p.rest("parted"), name="product")

    def starts(self, node: ir.Node) -> bool:
        """Whether it is a product that is laid out otherwise."""
        maker = node.inputs[0].producer() if node.inputs[0] is not None else None
        return maker is not None and maker.op_type == "MatMul"

    def check(
        self, scores: ir.Value, value: ir.Value, cleared: ir.Node | None, product: ir.Node,
        rows: ir.Node | None = None,
    ) -> None:  # fmt: skip
        _ungrouped(None if rows is None else rows.outputs[0], product.outputs[0])
        super().check(scores, value, cleared, product)


def _in_order(sizes: tuple[Size, ...], order: list[int]) -> tuple[Size, ...]:
    return tuple(sizes[i] for i in order)


class AttentionCache(Rule):
    """Attention(q, Concat(past, k), Concat(past, v), mask)  →  Attention(q, k, v, mask, past…)

    The concatenations are its further outputs.
    """

    since = 23
    processors = _WHERE

    def pattern(self, p: Ops, q: Var, k: Var, v: Var, past_k: Var, past_v: Var, mask: Var) -> Any:
        keys = p.Concat(past_k, k, axis=lambda axis: axis in (2, -2))
        values = p.Concat(past_v, v, axis=lambda axis: axis in (2, -2))
        return p.Attention(q, keys, values, mask, outputs=1, name="node")[0], keys, values

    def check(
        self, k: ir.Value, v: ir.Value, past_k: ir.Value, past_v: ir.Value, node: ir.Node
    ) -> None:
        require(node.attributes.keys() <= {"scale"}, "it is causal or capped, or of three axes")
        require({rank(value) for value in (k, v, past_k, past_v)} == {4}, "not four axes")
        require(same_size(k, 2, v, 2), "keys and values are not known to be as many")

    def rewrite(
        self, b: Block, q: ir.Value, k: ir.Value, v: ir.Value, past_k: ir.Value,
        past_v: ir.Value, mask: ir.Value, node: ir.Node,
    ) -> Any:  # fmt: skip
        scale = attribute(node, "scale")
        return b.op("Attention", q, k, v, mask, past_k, past_v, outputs=3, scale=scale)


RULES: tuple[Rule, ...] = (KeyTransposed(), Attention(), AttentionGrouped(), AttentionCache())
