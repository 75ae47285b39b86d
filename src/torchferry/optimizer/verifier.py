"""Check the model after every rewrite, so that a wrong one is named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx
import onnx_ir as ir
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]  # it ships none

from torchferry.errors import RuleBroke, UsageError
from torchferry.optimizer.driver import Verifier
from torchferry.optimizer.inference import light

__all__ = ["verifier"]

_ELSEWHERE = "com.microsoft"
_CONTRIBUTED = frozenset({"SimplifiedLayerNormalization"})
"""Operators that onnxruntime keeps in ONNX's own domain, where the checker does not know them."""

_FAULTS = (
    onnx.checker.ValidationError, onnx.shape_inference.InferenceError, EncodeError, ValueError,
)  # fmt: skip


def verifier(model: ir.Model) -> Verifier:
    """What checks a model after every rewrite.

    Args:
        model: is checked now, so that rules are not blamed for what was wrong before.

    Raises:
        UsageError: the model is invalid already.
    """
    fault = _fault(model)
    if fault is not None:
        raise UsageError(
            f"the model is invalid before anything is rewritten: {fault}; it can be optimized "
            "only without checking it after every rewrite"
        )

    def verify(rule: str, nodes: Sequence[ir.Node]) -> None:
        fault = _fault(model)
        if fault is not None:
            made = ", ".join(str(node.name) for node in nodes) or "no node"
            raise RuleBroke(f"{rule} broke the model ({made}): {fault}", rule=rule)

    return verify


def _fault(model: ir.Model) -> str | None:
    """What onnx's checker and its shape inference find wrong, in its first line."""
    try:
        with light(model):
            proto = ir.to_proto(model)
        _set_aside(proto.graph.node)
        for function in proto.functions:
            _set_aside(function.node)
        onnx.checker.check_model(proto, full_check=True)
    except _FAULTS as error:
        return str(error).strip().splitlines()[0]
    return None


def _set_aside(nodes: Iterable[onnx.NodeProto]) -> None:
    """Let the checker take operators of onnxruntime for what it does not check."""
    for node in nodes:
        if node.op_type in _CONTRIBUTED and not node.domain:
            node.domain = _ELSEWHERE
        for attribute in node.attribute:
            _set_aside(attribute.g.node)
