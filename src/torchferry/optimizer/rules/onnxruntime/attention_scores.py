"""What the scores of attention are made of: products, scales, masks."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from torchferry.optimizer.facts import attribute, number, rank, shape
from torchferry.optimizer.rule import Declined, require
from torchferry.optimizer.rules.onnxruntime.attention_mask import is_number, made_by

__all__ = ["HEADS_FIRST", "Scores", "is_product", "once", "read_scores", "ungrouped"]

HEADS_FIRST = [0, 1, 2, 3]
"""The order of the axes of a key: batch, heads, length, width."""

_AXES = 4
_HIDDEN = -1e30
"""A score that is replaced by less than this has no weight."""


@dataclass
class Scores:
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
        return once(self.key) if self.order == HEADS_FIRST else self.key


def _scaled(value: ir.Value | None) -> tuple[ir.Value, float]:
    """A value without the constant numbers it is multiplied by, and their product."""
    factor = 1.0
    if value is None:
        raise Declined("there is no value")
    while (node := made_by(value, "Mul", "Div")) is not None:
        left, right = node.inputs
        if node.op_type == "Mul" and is_number(left):
            left, right = right, left
        if not is_number(right) or rank(right) > _AXES or left is None:
            break
        if not (by := float(number(right))):
            break
        factor = factor * by if node.op_type == "Mul" else factor / by
        value = left
    return value, factor


def read_scores(scores: ir.Value) -> Scores:
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
        capped = any(_is_capped(value) for value in sides)
        require(not capped, "onnxruntime 1.26 caps scores when the mask is added already")
        products = [value for value in sides if is_product(value)]
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
    order = HEADS_FIRST if attribute(turn, "perm") == [0, 1, 3, 2] else [0, 2, 1, 3]
    key, by_key_before = _scaled(turn.inputs[0])
    scale *= by_query * by_key * by_key_before
    require(scale > 0, "the scale is not positive")
    return Scores(query, key, order, scale, bias, mask, hidden)


def _is_capped(value: ir.Value | None) -> bool:
    node = None if value is None else made_by(_scaled(value)[0], "Tanh")
    return node is not None and is_product(node.inputs[0])


def is_product(value: ir.Value | None) -> bool:
    """Whether a value with four axes is a product, scaled or not."""
    if value is None or value.shape is None or len(value.shape) != 4:
        return False
    try:
        return bool(_product(_scaled(value)[0]))
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
    return ungrouped(node.inputs[0], value), node


def ungrouped(rows: ir.Value | None, value: ir.Value) -> ir.Value:
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


def once(value: ir.Value) -> ir.Value:
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
