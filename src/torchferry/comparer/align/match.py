"""Aligning by numbers: for ONNX files whose nodes say nothing of where they came from.

Both sides are run once; of each value only its shape, mean and spread are kept. A match is no more
than that: when the whole values turn out to differ it is dropped, not reported.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

import onnx_ir as ir
import torch

from torchferry.comparer.align.align import Origin, in_order
from torchferry.comparer.reference.reference import Reference
from torchferry.comparer.run.piece import ort_value
from torchferry.comparer.run.trace import trace_onnx
from torchferry.errors import RunError

__all__ = ["match_numbers"]

_CLOSE = 1e-4  # of the spread
_Print = tuple[float, float]  # mean and standard deviation


def match_numbers(
    reference: Reference, model: ir.Model, feeds: Mapping[str, torch.Tensor]
) -> dict[str, Origin]:
    """The origins of a reference, and those of further values that have the same numbers.

    Values of one number, or of the same everywhere, are left out: they say nothing.

    Args:
        reference: a program, or another ONNX model.
        model: the ONNX model.
        feeds: its inputs.
    """
    found = dict(reference.origins)
    if not (names := _computed(reference)):
        return found
    used = {origin.key for origin in found.values()} | reference.chance.dependent()
    known: dict[tuple[int, ...], list[tuple[str, _Print]]] = defaultdict(list)
    for name, tensor in reference.values(names - used):
        if (said := _fingerprint(tensor)) is not None:
            known[tuple(tensor.shape)].append((name, said))
    given = {name: ort_value(tensor) for name, tensor in feeds.items()}
    try:
        for name, tensor in trace_onnx(model, given):
            said = None if name in found else _fingerprint(tensor)
            if said is not None:
                candidates = known[tuple(tensor.shape)]
                place = next((i for i, (_, p) in enumerate(candidates) if _same(p, said)), None)
                if place is not None:
                    found[name] = Origin(candidates.pop(place)[0], "number")
    except RunError:
        pass  # what comes before the node that fails is matched; the walk tells of the rest
    return in_order(found, model.graph)


def _computed(reference: Reference) -> set[str]:
    """Names of all that a reference computes; none of one that does not tell."""
    if reference.plain is not None:
        return {node.name for node in reference.plain.graph.nodes if node.op == "call_function"}
    nodes = () if reference.model is None else reference.model.graph
    return {str(value.name) for node in nodes for value in node.outputs if value.name}


def _fingerprint(tensor: torch.Tensor) -> _Print | None:
    if not tensor.is_floating_point() or tensor.numel() < 2:
        return None
    wide = tensor.double()
    spread = float(wide.std())
    return (float(wide.mean()), spread) if spread > 0 and math.isfinite(spread) else None


def _same(one: _Print, other: _Print) -> bool:
    limit = _CLOSE * one[1]
    return abs(one[0] - other[0]) <= limit and abs(one[1] - other[1]) <= limit
