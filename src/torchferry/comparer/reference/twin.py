"""The values inside one part of a graph as they should be: from a twin that is known to be right.

What a node's interior values should hold no program tells. The same part of the graph that is
compared with does, or what the exporter that wrote the file makes of the reference today: run on
the reference's values, and believed only where the result is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

import onnx_ir as ir
import torch

from torchferry.comparer.align.segment import Segment, segment_of
from torchferry.comparer.explain.judge import Allows
from torchferry.comparer.reference.anew import OURS, Twin, twins
from torchferry.comparer.setting import Setting
from torchferry.judge.value import difference_of

__all__ = ["twin_values"]

_LEFT_OVER = 2  # nodes that only one of two twins has, as a Cast and another back

Values = dict[str, torch.Tensor]
Pairs = dict[ir.Value, ir.Value]


def twin_values(
    segment: Segment, setting: Setting, expected: torch.Tensor, allows: Allows
) -> Values:
    """What interior values of a segment should be, by name; none where no twin is right.

    Args:
        segment: nodes that make a wrong value.
        setting: what is compared.
        expected: what is to come out.
        allows: whether a value passes.
    """
    told = (_told(segment, setting, twin, expected, allows) for twin in twins(setting))
    return next(filter(None, told), {})


def _told(
    segment: Segment, setting: Setting, twin: Twin, expected: torch.Tensor, allows: Allows
) -> Values:
    """What one twin says."""
    origins = setting.reference.origins
    key = origins[str(segment.output.name)].key
    name = next((name for name, other in twin.keys.items() if other == key), None)
    if name is None:
        return {}
    known = {origin.key for origin in origins.values()} - {key}
    part = segment_of(twin.model, name, {n: k for n, k in twin.keys.items() if k in known})
    feeds = part.feeds(twin.feeds, dict(setting.reference.values(set(part.keys.values()))))
    found = part.run(feeds)[0]
    if not allows(expected, difference_of(expected, found.get(name))):
        return {}
    pairs = _pairs(segment, part, by_name=_says_names(setting.onnx, twin.model))
    return {
        str(here.name): _as_declared(here, value)
        for here, there in pairs.items()
        if (value := {**feeds, **found}.get(str(there.name))) is not None
    }


def _as_declared(value: ir.Value, tensor: torch.Tensor) -> torch.Tensor:
    """A floating-point tensor in the precision that a graph computes it in."""
    kinds = {ir.DataType.FLOAT16: torch.float16, ir.DataType.BFLOAT16: torch.bfloat16}
    kind = None if value.dtype is None else kinds.get(value.dtype)
    return tensor if kind is None or not tensor.is_floating_point() else tensor.to(kind)


def _says_names(one: ir.Model, other: ir.Model) -> bool:
    """Whether interior values of one name are the same: torchferry calls them after FX nodes."""
    return one.producer_name == OURS == other.producer_name


def _pairs(segment: Segment, twin: Segment, *, by_name: bool) -> Pairs:
    """The values of a segment, and those of its twin that they stand for.

    Where names say nothing, nodes are paired in order by their operators. What reads a node that
    the twin has not, reads there what that node should have left as it was.
    """
    ends = {segment.output: twin.output}
    if by_name:
        made = {v.name: v for node in twin.nodes for v in node.outputs}
        values = [v for node in segment.nodes for v in node.outputs]
        return {value: made[value.name] for value in values if value.name in made} | ends
    nodes = _paired(segment.nodes, twin.nodes)
    if not nodes:
        return {}
    pairs = {
        here: there
        for one, two in nodes.items()
        for here, there in zip(one.outputs, two.outputs, strict=False)
    }
    paired = set(pairs.values())
    added: Pairs = {}
    rewired: set[ir.Node] = set()
    for one, two in nodes.items():
        for here, there in zip(one.inputs, two.inputs, strict=False):
            inside = here is not None and here.producer() in segment.nodes
            if here in pairs or not inside:
                wanted = pairs.get(here) if here is not None else None
                if (inside or there in paired) and wanted is not there:
                    rewired.add(one)
            elif here is not None and there is not None:
                added[here] = there
    # A fault may be one node that reads something else; where more do, this is another graph.
    return added | pairs | ends if len(rewired) <= 1 else {}


def _paired(here: Sequence[ir.Node], there: Sequence[ir.Node]) -> Mapping[ir.Node, ir.Node]:
    """Nodes in order, those of one operator; as many others between two such are pairs too.

    None where more are left over than a fault may add or take away.
    """
    kinds, others = ([f"{n.domain}::{n.op_type}" for n in nodes] for nodes in (here, there))
    found: dict[ir.Node, ir.Node] = {}
    matcher = SequenceMatcher(None, kinds, others, autojunk=False)
    for _, a, b, c, d in matcher.get_opcodes():
        if b - a == d - c:
            found |= dict(zip(here[a:b], there[c:d], strict=True))
    return found if max(len(here), len(there)) - len(found) <= _LEFT_OVER else {}
