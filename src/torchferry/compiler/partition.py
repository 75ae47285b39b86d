"""Take the operators that onnxruntime cannot run out of a graph; the rest becomes pieces."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from operator import getitem
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from torchferry.compiler.aot import is_known
from torchferry.compiler.views import is_separate
from torchferry.converter.program.randomness import is_random

__all__ = ["Refused", "obstacles", "partition", "tell"]

_log = logging.getLogger("torchferry")

Refused = dict[fx.Node, str]
_RANDOM = "it draws PyTorch's random numbers"
_VIEW = "it makes a result that is a view"
_LEVELS = {_RANDOM: logging.INFO, _VIEW: logging.DEBUG}


def obstacles(module: fx.GraphModule) -> Refused:
    """The nodes that cannot be written in ONNX, or must not, and why."""
    found: Refused = {}
    for node in module.graph.nodes:
        reason = _reason(node, module)
        if reason:
            found[node] = reason
    return found


def tell(refused: Mapping[fx.Node, str]) -> None:
    """One log line for each reason, which names the operators."""
    for reason in dict.fromkeys(refused.values()):
        names = Counter(str(node.target) for node, why in refused.items() if why == reason)
        text = ", ".join(f"{name} ({count}x)" for name, count in names.items())
        level = _LEVELS.get(reason, logging.WARNING)
        _log.log(level, "%s runs in eager: %s", text, reason)


def partition(module: fx.GraphModule, refused: Mapping[fx.Node, str]) -> fx.GraphModule:
    """Put what stands between the refused nodes into submodules.

    A single node between two refused ones stays: a session for it would cost more than it does.

    Args:
        module: changed in place.
        refused: nodes of its graph.

    Returns:
        The module, whose ``call_module`` nodes are the pieces.
    """
    return CapabilityBasedPartitioner(module, _Support(refused)).partition_and_fuse()


class _Support(OperatorSupportBase):
    def __init__(self, refused: Mapping[fx.Node, str]) -> None:
        self._refused = set(refused)

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        del submodules
        if node.op != "call_function":
            return False
        # An item of a tuple stays with what made the tuple.
        source: Any = node.args[0] if node.target is getitem else node
        return node not in self._refused and source not in self._refused


def _reason(node: fx.Node, module: fx.GraphModule) -> str:
    if node.op == "call_module":
        return "it is a module"
    if node.op != "call_function":
        return ""
    if is_separate(node):
        return _VIEW
    if is_random(node):
        return _RANDOM
    if not is_known(node.target):
        return "it has no ONNX form"
    for argument in node.all_input_nodes:  # the bodies of conditions and loops
        body = getattr(module, str(argument.target), None) if argument.op == "get_attr" else None
        if isinstance(body, fx.GraphModule) and obstacles(body):
            return "a graph inside it has operators without an ONNX form"
    return ""
