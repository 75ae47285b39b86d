"""onnxscript's fusions for onnxruntime, until rules of our own do all that they do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir

from torchferry.optimizer.facts import is_nameless
from torchferry.optimizer.place import all_nodes

__all__ = ["fuse"]

_LOGGERS = ("onnx_ir", "onnxscript")


def fuse(model: ir.Model) -> int:
    """Fuse attention, normalization and the like into operators of onnxruntime.

    Models that onnxscript's passes are known to break are left as they are: see `_unfit`.

    Args:
        model: changed in place.

    Returns:
        How many fusions were made.
    """
    from torchferry.seams.fusions import fuse_for_onnxruntime

    if _unfit(model):
        return 0
    with _quiet():
        counts = fuse_for_onnxruntime(model)
    for node in all_nodes(model):
        _describe(node)
    return sum(counts.values())


def _unfit(model: ir.Model) -> bool:
    """Whether onnxscript would change what a model takes, gives or computes.

    It drops the default values of inputs, renames an input that is an output too, cannot store
    strings, and takes sizes called ``?`` for one size.
    """
    graph = model.graph
    if any(value.is_initializer() for value in graph.inputs):
        return True
    if any(value.is_graph_input() or value.is_initializer() for value in graph.outputs):
        return True
    made = [value for node in all_nodes(model) for value in node.outputs]
    values = [*graph.inputs, *graph.initializers.values(), *made]
    return any(value.dtype == ir.DataType.STRING or _nameless(value) for value in values)


def _nameless(value: ir.Value) -> bool:
    sizes = () if value.shape is None else tuple(value.shape)
    names = [size.value for size in sizes if isinstance(size, ir.SymbolicDim)]
    return any(name is not None and is_nameless(name) for name in names)


def _describe(node: ir.Node) -> None:
    """Give the result of MultiHeadAttention its shape, from which those behind it follow."""
    if node.op_type != "MultiHeadAttention" or node.outputs[0].shape is not None:
        return
    query, value = node.inputs[0], node.inputs[2] if len(node.inputs) > 2 else None
    if query is None or value is None or query.shape is None or value.shape is None:
        return
    if len(query.shape) == len(value.shape) == 3:
        node.outputs[0].shape = ir.Shape([query.shape[0], query.shape[1], value.shape[2]])


@contextmanager
def _quiet() -> Iterator[None]:
    """Warnings about what those passes leave alone are none of the user's."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
