"""Scaled dot product attention, as converters and eager modules spell it, → ONNX's Attention.

onnxruntime's kernel for it needs neither repeated heads nor a transposed key, and makes the new
cache itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.dims import Size
from torchferry.graph.runtime import HIDDEN_ROWS, Ability
from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import (
    attribute,
    number,
    rank,
    same_size,
    shape,
    size,
)
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require
from torchferry.optimizer.rules.onnxruntime.attention_mask import (
    hides_or_keeps,
    is_causal,
    is_finite,
    is_number,
    least,
    made_by,
    sees,
)
from torchferry.optimizer.rules.onnxruntime.attention_scores import (
    HEADS_FIRST,
    Scores,
    is_product,
    once,
    read_scores,
    ungrouped,
)
from torchferry.optimizer.sizes import is_told

__all__ = ["RULES"]

_FAR = -1e38  # no score is seen beside what hides it by as much
_LEAST = float(np.nextafter(np.finfo(np.float32).min, np.float32(0)))
"""The most that hides a score here: not quite the least float32, as of a row that has nothing but
this or -inf the kernel makes zeros, where a Softmax makes equal weights, or NaN."""

_WHERE = frozenset({"CPU"})
"""Where it was measured to pay."""


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


def _check_mask(mask: ir.Value, scores: tuple[Size, ...]) -> None:
    axes = shape(mask)
    require(len(axes) in (2, 4), "the mask has not two or four axes")
    # A size that nobody knows may be another one: then the node says so when it runs.
    fits = all(
        a in (1, s) or not (is_told(a) and is_told(s))
        for a, s in zip(axes, scores[-len(axes) :], strict=True)
    )
    require(fits, "the mask is larger than the scores")


def _is_guarded(result: ir.Value, mask: ir.Value) -> bool:
    """Whether rows that see nothing are put aside by all who read the result."""
    readers = list(result.consumers())
    put = [node for node in readers if node.op_type == "Where" and node.inputs[1] is result]
    if not put or len(put) != len(readers) or result.is_graph_output():
        return False
    return all(sees(node.inputs[0], mask) and is_finite(node.inputs[2]) for node in put)


def _is_safe(found: Scores) -> bool:
    """Whether no row can be masked as a whole, so that its Softmax is NaN."""
    return is_finite(found.bias if found.mask is None else found.hidden)


def _with_nan(b: Block, mask: ir.Value) -> ir.Value:
    """What is added, with NaN where a row is masked as a whole: NaN is its Softmax."""
    most = b.ReduceMax(mask, b.constant([-1]), keepdims=1)
    whole = b.Equal(most, b.constant(-np.inf, mask))
    marked: ir.Value = b.Where(whole, b.constant(np.nan, mask), mask, like=mask)
    return marked


def _added(b: Block, found: Scores) -> ir.Value | None:
    """What the kernel adds to the scores, so that it hides what was hidden and nothing more."""
    if found.mask is not None:
        zero = b.constant(0, found.query)
        hidden = max(float(number(found.hidden)), _LEAST) if is_finite(found.hidden) else -np.inf
        added = b.Where(found.mask, zero, b.constant(hidden, found.query))
        added.type, added.shape = zero.type, found.mask.shape
    elif found.bias is None or least(found.bias) >= _LEAST or hides_or_keeps(found.bias):
        return found.bias
    else:
        added = b.Max(found.bias, _LEAST, like=found.bias)
        if not is_finite(found.bias):
            infinite = b.IsInf(found.bias)
            added = b.Where(infinite, found.bias, added, like=found.bias)
    result: ir.Value = added
    return result


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


class MaskTerms(Rule):
    """Softmax((scores + bias) + mask)  →  Softmax(scores + (bias + mask)), which layers share"""

    since = 23
    processors = _WHERE

    def pattern(self, p: Ops, scores: Var, bias: Var, mask: Var) -> Any:
        total = p.Add(p.Add(scores, bias), mask)
        return p.Softmax(total, axis=lambda axis: axis in (-1, 3), name="softmax")

    def check(self, scores: ir.Value, bias: ir.Value, mask: ir.Value) -> None:
        require(scores.dtype == ir.DataType.FLOAT, "half-precise scores may round otherwise")
        require(is_product(scores) and not is_product(bias), "the scores are no product")
        for value in (bias, mask):
            _check_mask(value, shape(scores))

    def rewrite(
        self, b: Block, scores: ir.Value, bias: ir.Value, mask: ir.Value, softmax: ir.Node
    ) -> Any:
        added = _bounded(b, mask) if least(bias) >= _LEAST / 2 else mask
        return b.again(softmax, [b.Add(scores, b.Add(bias, added))])


class MaskedScores(Rule):
    """Softmax(Where(c, scores, low) + mask)  →  Softmax(scores + (Where(c, 0, low) + mask))

    The mask hides by the same number, so that a row that is hidden in parts by each of them, or
    by both, is what it was.
    """

    since = 23
    processors = _WHERE

    def pattern(self, p: Ops, condition: Var, scores: Var, low: Var, mask: Var) -> Any:
        total = p.Add(p.Where(condition, scores, low), mask)
        return p.Softmax(total, axis=lambda axis: axis in (-1, 3), name="softmax")

    def check(self, condition: ir.Value, scores: ir.Value, low: ir.Value, mask: ir.Value) -> None:
        require(scores.dtype == ir.DataType.FLOAT, "half-precise scores may round otherwise")
        require(is_product(scores), "the scores are no product")
        require(is_number(low) and float(number(low)) <= _FAR, "hidden scores count")
        for value in (condition, mask):
            _check_mask(value, shape(scores))
        node = made_by(mask, "Where")
        numbers = [] if node is None else node.inputs[1:]
        same = bool(numbers) and all(map(is_number, numbers)) and (
            {float(number(value)) for value in numbers} <= {0.0, float(number(low))}
        )  # fmt: skip
        require(same, "the mask does not hide by the same number")

    def rewrite(
        self, b: Block, condition: ir.Value, scores: ir.Value, low: ir.Value, mask: ir.Value,
        softmax: ir.Node,
    ) -> Any:  # fmt: skip
        chosen = b.Where(condition, b.constant(0, scores), low)
        return b.again(softmax, [b.Add(scores, b.Add(chosen, mask))])


def _bounded(b: Block, mask: ir.Value) -> ir.Value:
    """A chosen 0 or the least float32, not so low that a sum with it must be bounded anew."""
    node = made_by(mask, "Where")
    if node is None or not (is_finite(mask) and all(map(is_number, node.inputs[1:]))):
        return mask
    numbers = [b.constant(max(float(number(v)), _LEAST / 2), mask) for v in node.inputs[1:]]
    found: ir.Value = b.Where(node.inputs[0], *numbers, like=mask)
    return found


class Attention(Rule):
    """Softmax(scale * query keyᵀ + mask) value  →  Attention(query, key, value, mask)

    The scale may stand anywhere, and repeated heads are not repeated any longer. The mask becomes
    what is added: 0, or what hid a score. Rows that are masked as a whole keep what is made of
    them. The kernel refuses what is empty: no batch, no queries, no keys.
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
        found = read_scores(scores)
        key = found.shared_key
        require(rank(key) == 4, "there are not four axes")
        _check_sizes(found.query, _in_order(shape(key), found.order), shape(once(value)))
        mask = found.mask if found.mask is not None else found.bias
        if mask is not None and not self._is_causal(found):
            length = _in_order(shape(key), found.order)[2]
            _check_mask(mask, (*shape(found.query)[:3], length))
            added = found.bias if found.mask is None else found.hidden
            exact = found.query.dtype == ir.DataType.FLOAT or hides_or_keeps(added)
            require(exact, "half-precise scores and their mask may round otherwise")

    def needs(self, scores: ir.Value, cleared: ir.Node | None) -> tuple[Ability, ...]:
        """Zeros for hidden rows, if those are what is made of them."""
        found = read_scores(scores)
        if cleared is None or found.mask is found.bias is None or self._is_causal(found):
            return ()
        return () if _is_safe(found) else (HIDDEN_ROWS,)

    def rewrite(
        self,
        b: Block,
        scores: ir.Value,
        value: ir.Value,
        cleared: ir.Node | None,
        product: ir.Node,
    ) -> Any:
        found = read_scores(scores)
        query, key = found.query, found.shared_key
        causal = self._is_causal(found)
        mask = None if causal else _added(b, found)
        length = _in_order(shape(key), found.order)[2]
        if found.order != HEADS_FIRST:
            key = b.Transpose(key, perm=found.order)
        if mask is not None:
            told = found.bias if found.mask is None else found.mask
            guarded = told is not None and _is_guarded(product.outputs[0], told)
            if not (_is_safe(found) or cleared is not None or guarded):
                mask = _with_nan(b, mask)
            mask = _whole(b, mask, query, length, key)
        return b.Attention(
            query, key, once(value), mask, scale=found.scale, is_causal=1 if causal else None
        )

    def _is_causal(self, found: Scores) -> bool:
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
        ungrouped(None if rows is None else rows.outputs[0], product.outputs[0])
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


RULES: tuple[Rule, ...] = (
    KeyTransposed(), MaskTerms(), MaskedScores(), Attention(), AttentionGrouped(),
    AttentionCache(),
)  # fmt: skip
