"""Operators that run graphs: torch.cond, while_loop, scan, map, and blocks run in place.

A graph is given as a `Body`, which is written into whatever block runs it. Sizes are int64 values
of shape [1], also where a loop carries them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.control_flow import branch, inlined, loop, scan
from torchferry.converter.write.promote import onnx_dtype
from torchferry.seams.operators import higher_order as hop

__all__: list[str] = []

Body = Any  # torchferry.converter.driver.Body: the driver imports what imports this
Values = Sequence[Any]


def _value(b: Block, item: Any) -> ir.Value:
    """A tensor, or a size in the form that sizes have."""
    return item if isinstance(item, ir.Value) else b.constant([item])


def _truth(b: Block, item: Any) -> ir.Value:
    """A condition, of shape []."""
    if not isinstance(item, ir.Value):
        return b.constant(bool(item))
    return b.scalar(item)


@lowers(hop.cond)
def cond(b: Block, pred: Any, true_fn: Body, false_fn: Body, operands: Values) -> list[Any]:
    if not isinstance(pred, ir.Value):
        return inlined(b, true_fn if pred else false_fn, operands)

    def writing(body: Body) -> Callable[[Block], list[ir.Value]]:
        return lambda inner: [_value(inner, result) for result in body(inner, *operands)]

    return list(branch(b, pred, writing(true_fn), writing(false_fn)))


@lowers(hop.while_loop)
def while_loop(
    b: Block, cond_fn: Body, body_fn: Body, carried_inputs: Values, additional_inputs: Values
) -> list[ir.Value]:
    start = [_value(b, item) for item in carried_inputs]

    def step(inner: Block, index: ir.Value, *state: ir.Value) -> tuple[list[ir.Value], Values]:
        made = body_fn(inner, *state, *additional_inputs)
        following = [_value(inner, result) for result in made]
        return [_asked(inner, cond_fn, [*following, *additional_inputs]), *following], ()

    first = _asked(b, cond_fn, [*start, *additional_inputs])
    formals = [_formal(node) for node in body_fn.placeholders[: len(start)]]
    return list(loop(b, None, start, step, condition=first, formals=formals))


def _asked(b: Block, cond_fn: Body, values: Values) -> ir.Value:
    """The condition of a loop, for what it carries now.

    It is written into a block of its own that has the same nodes: the sizes it computes have the
    names of those in the body, and other values.
    """
    own = Block(b.opset, b.constants, b.outer)
    own.nodes, own.domains = b.nodes, b.domains
    (answer,) = inlined(own, cond_fn, values)
    return _truth(own, answer)


def _formal(node: fx.Node) -> ir.Value:
    """A value that a loop carries, as its body knows it."""
    example = node.meta["val"]
    if not isinstance(example, torch.Tensor):
        return ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
    if example.dtype.is_complex:
        raise ValueError("a loop carries complex numbers, use torch.view_as_real around it")
    shape = [size if isinstance(size, int) else str(size) for size in example.shape]
    return ir.Value(type=ir.TensorType(onnx_dtype(example.dtype)), shape=ir.Shape(shape))


@lowers(hop.scan)
def scan_(
    b: Block, combine_fn: Body, init: Values, xs: Values, additional_inputs: Values
) -> list[ir.Value]:
    states = [_value(b, item) for item in init]

    def step(inner: Block, *given: ir.Value) -> tuple[list[ir.Value], list[ir.Value]]:
        made = [_value(inner, r) for r in combine_fn(inner, *given, *additional_inputs)]
        return made[: len(states)], made[len(states) :]

    return list(scan(b, states, xs, step))


@lowers(hop.map_impl)
def mapped(b: Block, f: Body, xs: Values, pos_args: Values) -> list[ir.Value]:
    def step(inner: Block, index: ir.Value) -> tuple[Values, list[ir.Value]]:
        slices = [inner.Gather(x, index, axis=0) for x in xs]
        return (), [_value(inner, result) for result in f(inner, *slices, *pos_args)]

    return list(loop(b, b.dim(xs[0], 0), (), step))


@lowers(hop.associative_scan)
def associative_scan(
    b: Block, combine_fn: Body, xs: Values, additional_inputs: Values
) -> list[ir.Value]:
    first = [b.Gather(x, 0, axis=0) for x in xs]
    rest = [b.Slice(x, [1], [2**63 - 1], [0]) for x in xs]
    size = b.dim(xs[0], 0)

    def step(inner: Block, index: ir.Value, *so_far: ir.Value) -> tuple[Values, Values]:
        slices = [inner.Gather(x, index, axis=0) for x in rest]
        made = combine_fn(inner, *so_far, *slices, *additional_inputs)
        return made, made

    trips = size - 1 if isinstance(size, int) else b.Sub(size, [1])
    kept = loop(b, trips, first, step)[len(xs) :]
    heads = [b.Unsqueeze(value, [0]) for value in first]
    return [b.Concat(*pair, axis=0) for pair in zip(heads, kept, strict=True)]


# Blocks in place -------------------------------------------------------------------------------


@lowers(hop.wrap_with_set_grad_enabled)
def wrap_with_set_grad_enabled(
    b: Block, enable_grad: bool, wrapped_func: Body, *args: Any
) -> list[Any]:
    return inlined(b, wrapped_func, args)


@lowers(hop.wrap_with_autocast)
def wrap_with_autocast(
    b: Block,
    device_type: str,
    dtype: torch.dtype | None,
    enabled: bool,
    cache_enabled: bool | None,
    wrapped_func: Body,
    *args: Any,
) -> list[Any]:
    if enabled:
        raise ValueError(
            "what torch.autocast casts is not in the program, call "
            "program.run_decompositions({}) first or cast in the model"
        )
    return inlined(b, wrapped_func, args)


@lowers(hop.strict_mode)
def strict_mode(b: Block, callable: Body, operands: Values) -> list[Any]:
    return inlined(b, callable, operands)


@lowers(hop.invoke_subgraph)
def invoke_subgraph(b: Block, subgraph: Body, identifier: str | None, *operands: Any) -> list[Any]:
    return inlined(b, subgraph, operands)


@lowers(hop.wrap_activation_checkpoint, hop.tag_activation_checkpoint, hop.wrap)
def wrap_activation_checkpoint(b: Block, wrapped_func: Body, *args: Any) -> list[Any]:
    return inlined(b, wrapped_func, args)
