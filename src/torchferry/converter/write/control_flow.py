"""If, Loop and Scan around a function that writes their body.

Lowerings use these where the number of steps is a size, and those of ``torch.cond`` and its
sisters where the program itself branches or repeats. A body sees every value of the blocks around
it. What it makes gets a name of its own, since ONNX lets no inner value be called as an outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block

__all__ = ["branch", "inlined", "loop", "scan"]

Values = Sequence[ir.Value]


def branch(
    b: Block,
    condition: ir.Value,
    then: Callable[[Block], Values],
    other: Callable[[Block], Values],
) -> tuple[ir.Value, ...]:
    """One of two bodies, as a bool of one element says.

    Args:
        b: where the If goes.
        condition: bool, of shape ``[]`` or ``[1]``.
        then: writes what is done when it is true; returns its results.
        other: the same for false. The results' dtypes must be those of ``then``.

    Returns:
        The results of the body that ran.
    """
    graphs, results = [], []
    for name, write in (("then", then), ("else", other)):
        inner = b.inner()
        results.append(list(write(inner)))
        graphs.append(_graph(b, inner, (), results[-1], name))
    outputs = b.add(
        "If", (condition,), outputs=len(results[0]), then_branch=graphs[0], else_branch=graphs[1]
    )
    return _typed(outputs, [_either(*pair) for pair in zip(*results, strict=True)])


def loop(
    b: Block,
    trips: int | ir.Value | None,
    carried: Values,
    step: Callable[..., tuple[Values, Values]],
    *,
    condition: ir.Value | None = None,
    formals: Values | None = None,
) -> tuple[ir.Value, ...]:
    """A body that is run again and again on what it made the last time.

    Args:
        b: where the Loop goes.
        trips: most runs, int64 of shape ``[]`` or ``[1]``; no limit when ``None``.
        carried: what the first run is given.
        step: ``step(inner, index, *carried)`` writes one run into ``inner``; ``index`` is int64
            of shape ``[]``. It returns what is carried on and what is kept of every run. With a
            ``condition`` the first value carried on says whether there is another run.
        condition: bool of shape ``[]``; whether there is a first run. Runs ``trips`` times when
            ``None``.
        formals: new values that the body calls what it is given, with dtypes and shapes; like
            ``carried`` when ``None``.

    Returns:
        What was carried out of the last run, then what was kept, stacked along a new first axis.
    """
    inner = b.inner()
    index = _formal(ir.DataType.INT64, ())
    if formals is None:
        formals = [_formal(value.dtype, value.shape) for value in carried]
    go_on = _formal(ir.DataType.BOOL, ())
    following, kept = step(inner, index, *formals)
    ahead = list(following)
    again = ahead.pop(0) if condition is not None else inner.Identity(go_on)
    body = _graph(b, inner, [index, go_on, *formals], [again, *ahead, *kept], "body")
    limit = b.scalar(trips) if trips is not None else None
    start = b.constant(True) if condition is None and not carried else condition
    outputs = b.add("Loop", (limit, start, *carried), outputs=len(ahead) + len(kept), body=body)
    # a body may return another shape than it is given
    models = [_either(start, end) for start, end in zip(carried, ahead, strict=True)]
    return _typed(outputs, [*models, *(_stacked(value) for value in kept)])


def scan(
    b: Block,
    states: Values,
    sequences: Values,
    step: Callable[..., tuple[Values, Values]],
    *,
    axes: Sequence[int] | None = None,
    kept_axes: Sequence[int] | None = None,
    reverse: bool = False,
) -> tuple[ir.Value, ...]:
    """A body that is run on every slice of sequences, one after the other.

    Args:
        b: where the Scan goes.
        states: what the first run is given; shapes and dtypes stay.
        sequences: values of one length, cut along ``axes``.
        step: ``step(inner, *states, *slices)`` writes one run into ``inner``; it returns the next
            states and what is kept of the run.
        axes: the axis of each sequence; the first when ``None``.
        kept_axes: where the runs are stacked in each result; in front when ``None``.
        reverse: from the last slice to the first. What is kept stays where its slice is.

    Returns:
        The last states, then what was kept.
    """
    inner = b.inner()
    cut = [0] * len(sequences) if axes is None else list(axes)
    formals = [_formal(value.dtype, value.shape) for value in states]
    slices = [_formal(v.dtype, _without(v, axis)) for v, axis in zip(sequences, cut, strict=True)]
    following, kept = step(inner, *formals, *slices)
    body = _graph(b, inner, [*formals, *slices], [*following, *kept], "body")
    directions = [int(reverse)]
    outputs = b.add(
        "Scan",
        (*states, *sequences),
        outputs=len(following) + len(kept),
        body=body,
        num_scan_inputs=len(sequences),
        scan_input_axes=cut,
        scan_output_axes=list(kept_axes) if kept_axes else None,
        scan_input_directions=directions * len(sequences) if reverse else None,
        scan_output_directions=directions * len(kept) if reverse and kept else None,
    )
    return _typed(outputs, [*states, *(_plain(value.dtype) for value in kept)])


def inlined(b: Block, body: Callable[..., list[Any]], values: Sequence[Any]) -> list[Any]:
    """What a body makes of values, written in place, under names that are found nowhere else."""
    prefix, first = _place(b), len(b.nodes)
    results = body(b, *values)
    for node in b.nodes[first:]:
        for value in node.outputs:
            value.name = f"{prefix}_{value.name}" if value.name else None
            value.meta.pop("finished", None)
    return results


def _graph(
    b: Block, inner: Block, inputs: Values, outputs: Sequence[ir.Value], role: str
) -> ir.Graph:
    """The body as a graph: outputs made inside it, names found nowhere else."""
    made = {value for node in inner.nodes for value in node.outputs}
    seen: set[ir.Value] = set()
    returned = []
    for value in outputs:
        own = value in made and value not in seen  # ONNX returns neither outer values nor twice
        result = value if own else inner.Identity(value)
        if not own and value.shape is not None:
            result.shape = ir.Shape(value.shape)
        seen.add(result)
        returned.append(result)
    prefix = f"{_place(b)}_{role}"
    values = [*inputs, *(value for node in inner.nodes for value in node.outputs)]
    for number, value in enumerate(values):
        value.name = f"{prefix}_{value.name or number}"
    for number, node in enumerate(inner.nodes):
        node.name = f"{prefix}_node_{number}"
    return b.graph(inner, inputs, returned, prefix)


def _place(b: Block) -> str:
    """Where the next node of a block will stand, counted through the blocks around it.

    No other node has that place, and so no other body its name.
    """
    outer = f"{_place(b.outer)}_" if b.outer is not None else "block_"
    return f"{outer}{len(b.nodes)}"


def _formal(dtype: ir.DataType | None, shape: Any) -> ir.Value:
    value = _plain(dtype)
    value.shape = None if shape is None else ir.Shape(shape)
    return value


def _plain(dtype: ir.DataType | None) -> ir.Value:
    return ir.Value(type=None if dtype is None else ir.TensorType(dtype))


def _without(value: ir.Value, axis: int) -> list[Any] | None:
    if value.shape is None:
        return None
    sizes = list(value.shape)
    del sizes[axis]
    return sizes


def _either(one: ir.Value, other: ir.Value) -> ir.Value:
    """A value that both could be."""
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return _plain(one.dtype)
    sizes = [
        size if size == another else ir.SymbolicDim(None)
        for size, another in zip(one.shape, other.shape, strict=True)
    ]
    return _formal(one.dtype, sizes)


def _stacked(value: ir.Value) -> ir.Value:
    sizes = None if value.shape is None else [ir.SymbolicDim(None), *value.shape]
    return _formal(value.dtype, sizes)


def _typed(outputs: Any, models: Values) -> tuple[ir.Value, ...]:
    """The outputs with the dtypes and shapes of the models."""
    values = (outputs,) if isinstance(outputs, ir.Value) else tuple(outputs)
    for value, model in zip(values, models, strict=True):
        value.type = model.type
        value.shape = None if model.shape is None else ir.Shape(model.shape)
    return values
