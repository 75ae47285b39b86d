"""Both sides, window by window: a row for each value that both have."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import onnx_ir as ir
import onnxruntime
import torch

from torchferry.comparer.align import layer_of, line_of
from torchferry.comparer.comparison import (
    Comparison,
    Row,
    Verdict,
    Vertex,
    difference_of,
    side_of,
)
from torchferry.comparer.histogram import histogram_of
from torchferry.comparer.piece import ort_value, reads, tensor_of_ort, weight_bytes
from torchferry.comparer.reference import random_values
from torchferry.comparer.setting import Setting
from torchferry.comparer.ties import equal_up_to_ties
from torchferry.comparer.window import Windows
from torchferry.errors import UsageError
from torchferry.values.difference import Discrepancy

__all__ = ["Allows", "Feed", "Walk"]

Feed = Literal["own", "torch"]
Allows = Callable[[torch.Tensor, Discrepancy], bool]

_WINDOW = 2**26  # bytes of reference values and weights in a window, unless a node alone has more
_NODES = 128  # in a window: small sessions load fast


class Walk:
    """Both sides, window by window.

    Attributes:
        rows: what was compared so far.
        kept: the reference's values of the graph's outputs, by their names.
        allows: whether a value passes.
    """

    def __init__(self, setting: Setting, feed: Feed, allows: Allows) -> None:
        if feed not in ("own", "torch"):
            raise UsageError(f"unknown feed {feed!r}: choose own or torch")
        self.rows: list[Row] = []
        self.kept: dict[str, torch.Tensor] = {}
        self.allows = allows
        self._setting = setting
        self._reference = setting.reference
        feeds = {name: ort_value(tensor) for name, tensor in setting.feeds.items()}
        self._own = Windows(setting.onnx, feeds, setting.runner)
        self._local = Windows(setting.onnx, feeds, setting.runner) if feed == "torch" else None
        self._outputs = {str(value.name) for value in setting.onnx.graph.outputs}
        self._drawn, self._tainted = random_values(setting.onnx.graph)
        self._open: set[str] = set()  # names of values that may be others on either side

    def run(self) -> None:
        """Run both sides to the end.

        Raises:
            RunError: the reference is an ONNX model that cannot be run.
        """
        origins = self._reference.origins
        wanted = {origin.key for origin in origins.values()}
        sorted_numbers = {k for key, (k, _) in self._reference.ties.items() if key in wanted}
        wanted |= sorted_numbers
        stream = iter(self._reference.values(wanted))
        users: dict[str, int] = {}  # values of the graph that still need a reference value
        for origin in origins.values():
            users[origin.key] = users.get(origin.key, 0) + 1
        held: dict[str, torch.Tensor] = {}
        queue = deque(self._setting.onnx.graph)
        while queue:
            nodes: list[ir.Node] = []
            size = 0
            while queue and len(nodes) < _NODES and size < _WINDOW:
                nodes.append(queue.popleft())
                size += weight_bytes(nodes[-1])
                for name in _names(nodes[-1]):
                    if name in origins:
                        key = origins[name].key
                        _advance(stream, held, key)
                        size += held[key].nbytes if key in held else 0
            self._window(nodes, held)
            for name in (name for node in nodes for name in _names(node) if name in origins):
                key = origins[name].key
                users[key] -= 1
                if not users[key]:
                    held.pop(key, None)
            for key in sorted_numbers - users.keys():
                held.pop(key, None)

    def _window(self, nodes: Sequence[ir.Node], held: Mapping[str, torch.Tensor]) -> None:
        origins = self._reference.origins
        names = [name for node in nodes for name in _names(node)]
        expected = {
            n: held[origins[n].key] for n in names if n in origins and origins[n].key in held
        }
        own = self._own.run(nodes, set(expected))
        local: Mapping[str, onnxruntime.OrtValue] | None = None
        if self._local is not None:
            local = self._local.run(nodes, set(expected), self._references(nodes, expected, own))
        for node in nodes:
            inherits = local is None and any(str(v.name) in self._open for v in reads(node))
            for name in _names(node):
                if name in expected:
                    pair = own.get(name), None if local is None else local.get(name)
                    self._add(node, name, held, *pair, inherits=inherits)
                    if name in self._outputs:
                        self.kept[name] = expected[name]
                elif inherits:
                    self._open.add(name)

    def _references(
        self,
        nodes: Sequence[ir.Node],
        expected: Mapping[str, torch.Tensor],
        own: Mapping[str, onnxruntime.OrtValue],
    ) -> dict[str, onnxruntime.OrtValue]:
        """The reference's values in the type that the graph has there."""
        found = {}
        declared = {str(v.name): v.dtype for node in nodes for v in node.outputs}
        for name, tensor in expected.items():
            value = ort_value(tensor)
            kind = own[name].element_type() if name in own else declared[name]
            if kind is None or value.element_type() == int(kind):
                found[name] = value
        return found

    def _add(
        self,
        node: ir.Node,
        name: str,
        held: Mapping[str, torch.Tensor],
        own: onnxruntime.OrtValue | None,
        local: onnxruntime.OrtValue | None,
        *,
        inherits: bool,
    ) -> None:
        origin = self._reference.origins[name]
        expected = held[origin.key]
        got = None if own is None else tensor_of_ort(own)
        error = difference_of(expected, got)
        judged, alone = got, None
        if self._local is not None:
            judged = None if local is None else tensor_of_ort(local)
            alone = difference_of(expected, judged)
        verdict: Verdict = "ok" if self.allows(expected, alone or error) else "differs"
        note = ""
        if origin.how == "number" and verdict == "differs":
            return  # it was no match
        if self._random(name, origin.key):
            verdict = "random"
            note = "it is drawn at random" if self._local else "it depends on random numbers"
        elif judged is None:
            verdict, note = "failed", self._failure(node)
        elif verdict == "differs":
            note = self._why_open(origin.key, judged, held, inherits)
            verdict = "random" if note else verdict
            self._open |= {name} if note else set()
        self.rows.append(
            Row(
                name, str(node.name or ""), node.op_type, origin.key, layer_of(node),
                line_of(node), side_of(expected), None if got is None else side_of(got), error,
                alone, verdict, note, histogram_of(expected, judged),
            )
        )  # fmt: skip

    def _why_open(
        self, key: str, got: torch.Tensor, held: Mapping[str, torch.Tensor], inherits: bool
    ) -> str:
        """Why a value may be another one, though nothing is drawn; ``""`` if it may not."""
        if key in self._reference.unset:
            return "nothing was written to its memory"
        numbers, dim = self._reference.ties.get(key, ("", 0))
        if numbers in held and equal_up_to_ties(held[numbers], held[key], got, dim):
            return "equal numbers may be sorted in any order"
        if key in self._reference.unordered:
            dim = self._reference.unordered[key]
            one, other = held[key].sort(dim).values, got.sort(dim).values
            if self.allows(one, difference_of(one, other)):
                return "topk gives any order when sorted=False"
        return "it depends on the order of equal numbers, or on memory not set" if inherits else ""

    def _random(self, name: str, key: str) -> bool:
        if self._local is not None:
            return name in self._drawn or key in self._reference.drawn
        return name in self._tainted or key in self._reference.tainted

    def _failure(self, node: ir.Node) -> str:
        failed = (self._local or self._own).failed
        if node in failed:
            return failed[node]
        for culprit, reason in (failed or self._own.failed).items():
            return f"{culprit.op_type} {culprit.name} before it failed: {reason}"
        return "it reads what no node before it makes"

    def comparison(self) -> Comparison:
        """What was found so far.

        Raises:
            UsageError: no value has a counterpart.
        """
        graph = self._setting.onnx.graph
        if not self.rows:
            raise UsageError(
                "no value of the ONNX model could be aligned with the reference: it says of no "
                "node which module it came from, and has other outputs"
            )
        first = next((row for row in self.rows if row.verdict in ("differs", "failed")), None)
        known = {row.name for row in self.rows}
        unaligned = sum(
            value.name not in known and bool(value.uses())
            for node in graph
            for value in node.outputs
        )
        failures = {**self._own.failed, **(self._local.failed if self._local else {})}
        notes = [f"{node.op_type} {node.name}: {why}" for node, why in failures.items()]
        return Comparison(
            tuple(self.rows), {}, (), len(graph), unaligned, first, notes=tuple(notes[:5]),
            graph=tuple(_vertices(graph)),
        )  # fmt: skip

    def differing(self, outputs: Mapping[str, Discrepancy]) -> tuple[str, ...]:
        """Names of the outputs that are beyond tolerance and not random."""
        keys = self._reference.origins
        return tuple(
            name
            for name, difference in outputs.items()
            if not self.allows(self.kept[name], difference)
            and name not in self._tainted
            and keys[name].key not in self._reference.tainted
        )


def _vertices(graph: ir.Graph) -> Iterator[Vertex]:
    places: dict[ir.Value, int] = {}
    for place, node in enumerate(graph):
        sources = dict.fromkeys(places[value] for value in reads(node) if value in places)
        places |= dict.fromkeys(node.outputs, place)
        yield Vertex(
            str(node.name or ""), node.op_type, layer_of(node), line_of(node),
            tuple(_names(node)), tuple(sources),
        )  # fmt: skip


def _names(node: ir.Node) -> Iterator[str]:
    return (str(value.name) for value in node.outputs if value.name)


def _advance(
    stream: Iterator[tuple[str, torch.Tensor]], held: dict[str, torch.Tensor], key: str
) -> None:
    """Take values of the reference until this one is there, or there are no more."""
    while key not in held:
        pair = next(stream, None)
        if pair is None:
            return
        held[pair[0]] = pair[1]
