"""Mixtures of experts, as sorted rows and loops over groups of them → MoE."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import constant, ints, number, rank, same_size, size, tensor_of
from torchferry.optimizer.matcher import matches
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.rules.onnxruntime.attention_mask import made_by
from torchferry.optimizer.sizes import contents

__all__ = ["RULES"]

_MS = "com.microsoft"
_FLOAT, _INT32, _INT64, _DOUBLE = 1, 6, 7, 11  # as the attribute of Cast has them
_LEAST = 1024
"""The hidden size from which on the kernel is no slower when many rows go to each expert: its
SiLU is computed number by number, whose share of the time is the smaller the larger this is."""


def _last(axes: np.ndarray[Any, Any]) -> bool:
    """Whether the last of two axes is meant."""
    return axes.tolist() in ([1], [-1])


class _Groups(Rule):
    """One turn of the loop: the rows of a group times its matrix, put behind the others"""

    def pattern(self, p: Ops, done: Var, turn: Var, rows: Var, ends: Var, weights: Var) -> Any:
        here = p.Unsqueeze(turn, [0])
        bounds = p.Gather(ends, here), p.Gather(ends, p.Add(here, [1]))
        return p.SequenceInsert(
            done, p.MatMul(p.Slice(rows, *bounds, [0]), p.Gather(weights, turn))
        )


class _Gated(Rule):
    """SiLU(first half) * second half, of what a loop made"""

    def pattern(self, p: Ops) -> Any:
        both = p.ConcatFromSequence(p.Loop(p.rest("looped"), name="loop"), axis=0)
        gate, up = p.Split(both, p.rest("parts"), outputs=2, name="halves")
        quick = p.QuickGelu(gate, domain=_MS, alpha=1.0)
        return p.Mul(p.any_of(quick, p.Mul(gate, p.Sigmoid(gate))), up)


class _Rows(Rule):
    """The row that each place in the order belongs to: x[order // k]"""

    def pattern(self, p: Ops, x: Var, order: Var) -> Any:
        k = p.constant(None, "k")
        signed = p.Mul(p.Sign(order), p.Mod(order, k))  # negative where the quotient is rounded up
        less = p.Cast(p.Less(signed, 0), to=_INT64)
        return p.Gather(x, p.Sub(p.Div(order, k), less))


class _Ends(Rule):
    """Where each group ends among sorted numbers of groups: sums of a histogram"""

    def pattern(self, p: Ops, numbers: Var) -> Any:
        wide = p.Cast(p.Cast(numbers, to=_FLOAT), to=_DOUBLE)
        inside = p.And(p.GreaterOrEqual(wide, 0.0), p.LessOrEqual(wide, p.constant(None, "most")))
        part = p.Mul(p.Div(wide, p.constant(None, "width")), p.constant(None, "bins"))
        place = p.Min(p.Cast(p.Where(inside, part, 0.0), to=_INT64), p.constant(None, "last"))
        zeros = p.constant(None, "zeros")
        counts = p.ScatterElements(zeros, place, p.Cast(inside, to=_FLOAT), reduction="add")
        sums = p.Cast(p.CumSum(p.Cast(counts, to=_INT32), 0), to=_INT64)
        return p.Concat([0], p.Slice(sums, [0], [-1], [0]), p.constant(None, "beyond"), axis=0)


_GROUPS, _GATED, _ROWS, _ENDS = _Groups(), _Gated(), _Rows(), _Ends()


@dataclass(frozen=True)
class _Experts:
    """What the loops compute: rows x (tokens, hidden), weights (experts, in, out)."""

    x: ir.Value
    gate_up: ir.Value
    down: ir.Value


class MixtureOfExperts(Rule):
    """experts of rows sorted by their routers' choice, summed  →  com.microsoft.MoE(rows, logits)

    Of a softmax router, normalized or not, and experts down(SiLU(gate(x)) * up(x)). The kernel
    gives a row 0 whose logits are not numbers: times the sum of the scores, it is no number again.
    """

    since = 18
    processors = frozenset({"CPU"})
    keeps_interior = True  # what is shared by layers stays; the loops are looked at in the check

    def pattern(self, p: Ops, logits: Var, count: Var, blank: Var, many: Var) -> Any:
        scores = p.Softmax(logits, axis=lambda axis: axis in (-1, 1), name="softmax")
        capped = p.Min(p.Cast(scores, to=_DOUBLE), p.constant(lambda a: a.size == 1 and a >= 1))
        ranked = p.Where(p.IsNaN(scores), p.constant(lambda a: np.all(a == np.inf)), capped)
        _, chosen = p.TopK(p.any_of(ranked, scores), p.constant(None, "k"), outputs=2,
                           axis=lambda axis: axis in (-1, 1), largest=1)  # fmt: skip
        taken = p.GatherElements(scores, chosen, axis=1)
        total = p.ReduceSum(taken, p.constant(_last), keepdims=1)
        share = p.any_of(p.Div(taken, total, name="normalized"), taken)
        _, order = p.TopK(p.Reshape(chosen, [-1], name="flat"), count, outputs=2, axis=0,
                          largest=0, sorted=1, name="sort")  # fmt: skip
        down = p.ConcatFromSequence(p.Loop(p.rest("looped"), name="loop"), axis=0)
        factor = p.Unsqueeze(p.Gather(p.Reshape(share, [-1]), order), p.constant(_last))
        back = p.ScatterND(blank, p.Unsqueeze(order, p.constant(_last)), p.Range(0, many, 1))
        rows = p.Gather(p.Mul(down, factor), back)
        return p.ReduceSum(p.Reshape(rows, p.constant(None, "parts")), [1], keepdims=0)

    def check(
        self, logits: ir.Value, count: ir.Value, blank: ir.Value, many: ir.Value, k: ir.Value,
        flat: ir.Node, sort: ir.Node, loop: ir.Node, parts: ir.Value,
    ) -> None:  # fmt: skip
        pairs = (size(flat.outputs[0], 0),)
        require(contents(count) == pairs == contents(many), "not all pairs are sorted")
        made = made_by(blank, "ConstantOfShape")
        require(made and contents(made.inputs[0]) == pairs, "not all pairs are put back")
        found = _experts(loop, sort, number(k))
        experts, inner, hidden = tensor_of(found.down).shape.numpy()
        require(rank(logits) == 2 and size(logits, 1) == experts, "there are more experts")
        require(rank(found.x) == 2 and size(found.x, 1) == hidden, "x has not two axes")
        require(same_size(found.x, 0, logits, 0), "there are more rows than are routed")
        require(tuple(tensor_of(found.gate_up).shape) == (experts, hidden, 2 * inner), "sizes")
        require(ints(parts) == [-1, number(k), hidden], "it is not the experts that are summed")
        require(hidden >= _LEAST, f"many rows of less than {_LEAST} numbers would take longer")
        for value in (found.x, logits, found.gate_up, found.down):
            require(value.dtype == ir.DataType.FLOAT, "it is not float32")

    def rewrite(
        self, b: Block, logits: ir.Value, k: ir.Value, softmax: ir.Node,
        normalized: ir.Node | None, sort: ir.Node, loop: ir.Node,
    ) -> Any:  # fmt: skip
        found = _experts(loop, sort, number(k))
        result = b.MoE(
            found.x, logits, b.constant(_interleaved(tensor_of(found.gate_up))), None,
            b.constant(tensor_of(found.down).numpy().transpose(0, 2, 1)), domain=_MS,
            like=found.x, k=number(k), activation_type="swiglu", swiglu_fusion=1,
            activation_alpha=1.0, activation_beta=0.0,
            normalize_routing_weights=int(normalized is not None),
        )  # fmt: skip
        # A product, as before 1.32 onnxruntime has no sums of no rows.
        ones = np.ones((int(str(size(logits, 1))), 1), np.float32)
        return b.Mul(result, b.MatMul(softmax.outputs[0], b.constant(ones)))


def _experts(loop: ir.Node, sort: ir.Node, k: int) -> _Experts:
    """The weights and the rows of the second of two loops over the same groups.

    Args:
        loop: the second, with the products that come out.
        sort: makes the sorted numbers of the experts, and the order of the pairs.
        k: experts of each row.

    Raises:
        Declined: they are not the experts that the kernel has.
    """
    second = _groups(loop)
    gated = _inside(_GATED, second["rows"], "the experts have no SiLU gate")
    first = _groups(gated["loop"])
    halves = gated["halves"].outputs
    inner = tensor_of(second["weights"]).shape.numpy()[1]
    sizes = [size(value, 1) for value in halves]
    require(rank(halves[0]) == 2 and sizes == [inner, inner], "gate and up are not two halves")
    require(first["ends"] is second["ends"], "the loops are over other groups")
    ends = _inside(_ENDS, second["ends"], "the groups are not those of a histogram")
    rows = _inside(_ROWS, first["rows"], "the rows are not those of the pairs")
    numbers, order = sort.outputs
    require(ends["numbers"] is numbers and rows["order"] is order, "another order is meant")
    require(number(rows["k"]) == k, "another number of experts is meant")
    count = tensor_of(second["weights"]).shape.numpy()[0]
    told = [number(ends[name]) for name in ("most", "width", "last", "bins")]
    require(told == [count - 1, count - 1, count - 1, count], "there are other groups")
    zeros = tensor_of(ends["zeros"])
    require(tuple(zeros.shape) == (count,) and not zeros.numpy().any(), "it does not begin at 0")
    require(number(ends["beyond"]) >= 2**31, "rows behind the last group are lost")
    return _Experts(rows["x"], first["weights"], second["weights"])


def _groups(loop: ir.Node) -> dict[str, Any]:
    """What a loop over groups multiplies: ``rows``, ``ends`` and ``weights``.

    Raises:
        Declined: it does something else, or others read what it makes.
    """
    body = loop.attributes["body"].as_graph()
    places = len(loop.inputs), len(body.inputs), len(body.outputs)
    require(places == (3, 3, 2), "the loop carries more than the products")
    going, products = body.outputs
    found = _inside(_GROUPS, products, "the loop is not over products of groups")
    made = found["rows"].producer()
    require(made is not None and made.graph is loop.graph, "the rows are made in the loop")
    turn, before, done = body.inputs
    kept = made_by(going, "Identity")
    goes_on = kept is not None and kept.inputs[0] is before
    require(found["turn"] is turn and found["done"] is done and goes_on, "the loop ends early")
    times, begins, empty = loop.inputs
    require(made_by(empty, "SequenceEmpty"), "the loop begins with products")
    require(constant(begins) is not None and number(begins) is True, "the loop may not begin")
    weights = tensor_of(found["weights"])
    require(len(weights.shape) == 3 and number(times) == weights.shape[0], "groups are left out")
    require(len(loop.outputs[0].uses()) == 1, "the products are read elsewhere")
    return found


def _inside(shape: Rule, value: ir.Value, reason: str) -> dict[str, Any]:
    """What the names of a pattern are bound to that ends in a value; declines if it does not."""
    node = value.producer()
    match = None if node is None else next(matches(shape, node), None)
    if match is None:
        raise Declined(reason)
    return match.found


def _interleaved(weights: ir.TensorProtocol) -> ir.TensorProtocol:
    """(experts, 2 * inner, hidden), gate and up in turn, of (experts, hidden, gates then ups).

    Made when it is written: it is a copy.
    """
    experts, hidden, both = weights.shape.numpy()
    split = (experts, hidden, 2, both // 2)

    def made() -> ir.TensorProtocol:
        turned = weights.numpy().reshape(split).transpose(0, 3, 2, 1)
        return ir.Tensor(turned.reshape(experts, both, hidden))

    return ir.LazyTensor(made, dtype=weights.dtype, shape=ir.Shape((experts, both, hidden)))


RULES: tuple[Rule, ...] = (MixtureOfExperts(),)
