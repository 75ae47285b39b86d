"""A computation that is repeated until it is done: ONNX's Loop around a few values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block

__all__ = ["name_inside", "repeated"]

Step = Callable[..., Sequence[ir.Value]]


def repeated(
    b: Block, name: str, states: Sequence[ir.Value], step: Step, *,
    times: ir.Value | int | None = None, going: ir.Value | None = None,
) -> tuple[ir.Value, ...]:  # fmt: skip
    """Change values step by step.

    Args:
        b: where the loop goes.
        name: what is repeated; it is in the names inside the loop.
        states: the values before the first step; their dtypes and shapes stay.
        step: ``step(b, count, *states)`` gives the states after it, and whether to go on before
            them when ``going`` is given.
        times: the most steps, int64 of shape []; without end when None.
        going: whether to make the first step, bool of shape [].

    Returns:
        The states after the last step.
    """
    inner = b.inner()
    count = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(()))
    still = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(()))
    carried = [ir.Value(type=state.type, shape=state.shape) for state in states]
    after = list(step(inner, count, *carried))
    if going is None:
        after = [still, *after]
    returned = [inner.Identity(value) for value in after]
    inputs = [count, still, *carried]
    body = b.graph(inner, inputs, returned, name_inside(b, name, inner, inputs))
    limit: Any = b.constant(times) if isinstance(times, int) else times
    results = b.Loop(limit, going, *states, body=body, outputs=len(states))
    results = results if isinstance(results, tuple) else (results,)
    for result, state in zip(results, states, strict=True):
        result.type, result.shape = state.type, state.shape
    return results


def name_inside(b: Block, name: str, inner: Block, inputs: Sequence[ir.Value]) -> str:
    """Name all values of a body as no other value is: ONNX lets none hide behind another.

    Returns:
        A name for the graph of the body.
    """
    places = []
    outer: Block | None = b
    while outer is not None:
        places.append(str(len(outer.nodes)))
        outer = outer.outer
    prefix = f"{name}_{'_'.join(reversed(places))}"
    values = [*inputs, *(value for node in inner.nodes for value in node.outputs)]
    for number, value in enumerate(values):
        value.name = f"{prefix}_{number}"
    for number, node in enumerate(inner.nodes):
        node.name = f"{prefix}_node_{number}"
    return prefix
