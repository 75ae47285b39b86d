"""onnxscript's lowerings, through the private parts of torch.onnx that call them."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import onnx_ir as ir
from torch import fx

from torchferry.seams.table import probe

__all__ = ["dispatch", "has_lowering", "new_opset", "new_recorder", "recorded_by", "stand_in"]

_EXPORTER = "torch.onnx._internal.exporter"
_new_opset = probe("onnxscript.values.Opset")
_default_as = probe("onnxscript.evaluator.default_as")
_dispatch = probe(f"{_EXPORTER}._dispatching.dispatch")
_OpRecorder = probe(f"{_EXPORTER}._building.OpRecorder")
_SymbolicTensor = probe(f"{_EXPORTER}._tensors.SymbolicTensor")


@cache
def _registry() -> Any:
    """The registry of lowerings; ``None`` where any part of what calls them is gone."""
    registry = probe(f"{_EXPORTER}._registration.ONNXRegistry")
    if None in (registry, _new_opset, _default_as, _dispatch, _OpRecorder, _SymbolicTensor):
        return None
    # It warns of every package of operators that is not installed.
    logger = logging.getLogger(registry.__module__)
    disabled, logger.disabled = logger.disabled, True
    try:
        return registry.from_torchlib()
    finally:
        logger.disabled = disabled


def has_lowering(target: Any) -> bool:
    """Whether onnxscript has a lowering for an overload."""
    return _registry() is not None and bool(_registry().get_decomps(target))


def dispatch(node: fx.Node) -> tuple[Any, str]:
    """The lowering for a node, or ``None``; and why there is none."""
    if _registry() is None:
        return None, "this version of torch or onnxscript has none that torchferry can call"
    return _dispatch(node, _registry())


def new_opset(version: int) -> Any:
    """An operator set as onnxscript's lowerings know it."""
    return _new_opset("", version)


def new_recorder(opset: Any) -> Any:
    """What keeps the nodes that a lowering writes: ``.nodes`` and ``.functions``."""
    return _OpRecorder(opset, {})


def recorded_by(recorder: Any) -> AbstractContextManager[None]:
    """Operators that are called in the block are written to the recorder."""
    return _default_as(recorder)


def stand_in(value: ir.Value, opset: Any) -> Any:
    """A value of the class whose ``x * y`` is an ONNX node."""
    return _SymbolicTensor(
        opset, value.name, value.shape, value.type, const_value=value.const_value
    )
