"""Which nodes of a segment are at fault: those that make the first wrong value from right ones."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
import torch

from torchferry.comparer.align.segment import Segment
from torchferry.comparer.comparison import Apart
from torchferry.comparer.explain.judge import Allows
from torchferry.comparer.reference.twin import twin_values
from torchferry.comparer.run.piece import reads
from torchferry.comparer.setting import Setting
from torchferry.judge.value import difference_of

__all__ = ["blame"]


def blame(
    segment: Segment,
    setting: Setting,
    feeds: Mapping[str, torch.Tensor],
    expected: torch.Tensor,
    allows: Allows,
    *,
    apart: Apart = difference_of,
) -> list[ir.Node]:
    """Nodes of a segment that makes a wrong value: one where that can be told.

    Each node is given what a twin of the segment has, where there is one, so that its own error is
    seen. A value that holds already what is to come out is right too.

    Args:
        segment: the nodes.
        setting: what is compared.
        feeds: the reference's values of the inputs.
        expected: what is to come out.
        allows: whether a value passes.
        apart: how far two values are apart.
    """
    if len(segment.nodes) == 1:
        return list(segment.nodes)
    there = twin_values(segment, setting, expected, allows)
    here, failed = segment.run(feeds, there)
    there[str(segment.output.name)] = expected
    right = set(segment.inputs)
    culprit, wanted = segment.nodes[-1], expected
    for node in segment.nodes:
        judged = [(v, there[str(v.name)]) for v in node.outputs if v.name in there]
        wrong = [w for v, w in judged if not allows(w, apart(w, here.get(str(v.name))))]
        if wrong or node in failed:
            culprit, wanted = node, wrong[0] if wrong else expected
            break
        right |= {value for value, _ in judged}
    for value in (value for node in segment.nodes for value in node.outputs):
        got = here.get(str(value.name))
        if got is not None and allows(wanted, apart(wanted, got)):
            right.add(value)
    return _between(culprit, right, segment)


def _between(culprit: ir.Node, right: set[ir.Value], segment: Segment) -> list[ir.Node]:
    """A node and those that it reads values of, back to values that are right.

    What hands on the numbers that it reads is not to blame for them, unless nothing else is.
    """
    found = {culprit}
    waiting = [culprit]
    while waiting:
        for value in reads(waiting.pop()):
            producer = value.producer()
            if producer in segment.nodes and value not in right and producer not in found:
                found.add(producer)
                waiting.append(producer)
    blamed = [node for node in segment.nodes if node in found and not _hands_on(node)]
    return blamed or [culprit]


def _hands_on(node: ir.Node) -> bool:
    """Whether a node's result is what it reads, whatever that is."""
    if node.op_type == "Dropout":  # without a third input it is not in training
        return len(node.inputs) < 3 or node.inputs[2] is None
    return node.op_type == "Identity"
