"""Both sides, window by window: a row for each value that both have."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import onnx_ir as ir
import onnxruntime
import torch

from torchferry.comparer.align.provenance import layer_of, line_of
from torchferry.comparer.comparison import (
    Apart,
    Comparison,
    Row,
    Vertex,
    side_of,
)
from torchferry.comparer.explain.histogram import histogram_of
from torchferry.comparer.explain.judge import Allows, Judge
from torchferry.comparer.run.piece import ort_value, reads, tensor_of_ort, weight_bytes
from torchferry.comparer.run.window import Windows
from torchferry.comparer.setting import Setting
from torchferry.errors import UsageError
from torchferry.judge.value import difference_of

__all__ = ["Feed", "Walk"]

Feed = Literal["own", "torch"]

_WINDOW = 2**26  # bytes of reference values and weights in a window, unless a node alone has more
_NODES = 128  # in a window: small sessions load fast


class Walk:
    """Both sides, window by window.

    Where both sides may choose, as with random numbers, the ONNX side goes on with what the
    reference chose.

    Attributes:
        setting: what is compared.
        rows: what was compared so far.
        kept: the reference's values of the graph's outputs, by their names.
        judge: tells whether a value passes.
        needed: the reference's values by which these are judged, by its names.
        numbers: of outputs that tell places, the ONNX model's numbers that stand there.
        chosen: the reference's values that the ONNX side was given, by names of the graph.
    """

    def __init__(
        self, setting: Setting, feed: Feed, allows: Allows, apart: Apart = difference_of
    ) -> None:
        """Make ready to run.

        Args:
            setting: what is compared.
            feed: with ``torch`` each node is also given the reference's values.
            allows: whether a value passes.
            apart: how far a value by itself is from the reference's.

        Raises:
            UsageError: there is no such feed.
        """
        if feed not in ("own", "torch"):
            raise UsageError(f"unknown feed {feed!r}: choose own or torch")
        self.rows: list[Row] = []
        self.kept: dict[str, torch.Tensor] = {}
        self.needed: dict[str, torch.Tensor] = {}
        self.numbers: dict[str, torch.Tensor] = {}
        self.chosen: dict[str, torch.Tensor] = {}
        self.judge = Judge(setting, allows, alone=feed == "torch")
        self.setting = setting
        self._apart = apart
        self._reference = setting.reference
        feeds = {name: ort_value(tensor) for name, tensor in setting.feeds.items()}
        self._own = Windows(setting.onnx, feeds, setting.runner)
        self._local = Windows(setting.onnx, feeds, setting.runner) if feed == "torch" else None
        self._outputs = {str(value.name) for value in setting.onnx.graph.outputs}

    def run(self, look: Callable[[Sequence[ir.Node]], None] | None = None) -> None:
        """Run both sides to the end.

        Args:
            look: called with the nodes of each window before they run, while their weights are
                read: a large file is read once.

        Raises:
            RunError: the reference is an ONNX model that cannot be run.
        """
        origins = self._reference.origins
        needs = {name: self.judge.needs(origin.key) for name, origin in origins.items()}
        users = Counter(key for keys in needs.values() for key in keys)  # still to come
        stream = iter(self._reference.values(set(users)))
        held: dict[str, torch.Tensor] = {}
        queue = deque(self.setting.onnx.graph)
        while queue:
            nodes: list[ir.Node] = []
            size = 0
            shares = False  # what follows a choice is to go on with the reference's
            while queue and len(nodes) < _NODES and size < _WINDOW and not shares:
                nodes.append(queue.popleft())
                size += weight_bytes(nodes[-1])
                for name in _names(nodes[-1]):
                    shares = shares or name in self.judge.shared
                    for key in needs.get(name, ()):
                        _advance(stream, held, key)
                        size += held[key].nbytes if key in held else 0
            if look is not None:
                look(nodes)
            self._window(nodes, held)
            for name in (name for node in nodes for name in _names(node)):
                for key in needs.get(name, ()):
                    users[key] -= 1
                    if not users[key]:
                        held.pop(key, None)

    def _window(self, nodes: Sequence[ir.Node], held: Mapping[str, torch.Tensor]) -> None:
        origins = self._reference.origins
        names = [name for node in nodes for name in _names(node)]
        expected = {
            n: held[origins[n].key] for n in names if n in origins and origins[n].key in held
        }
        searched = {name: n for name in expected if (n := self.judge.numbers(name))}
        before = {n: value for n in searched.values() if (value := self._own.carried(n))}
        own = self._own.run(nodes, {*expected, *searched.values()})
        numbers = {
            n: tensor_of_ort(value)
            for n, value in {**before, **own}.items()
            if n in searched.values()
        }
        self.numbers |= {
            name: tensor for name, n in searched.items() if (tensor := numbers.get(n)) is not None
        }
        references = self._references(nodes, expected, own)
        for name in self.judge.shared & own.keys() & references.keys():
            if own[name].shape() == references[name].shape():
                self._own.give(name, references[name])
                self.chosen[name] = expected[name]
        local: Mapping[str, onnxruntime.OrtValue] | None = None
        if self._local is not None:
            local = self._local.run(nodes, set(expected), references)
        for node in nodes:
            for name in _names(node):
                if name in expected:
                    pair = own.get(name), None if local is None else local.get(name)
                    self._add(node, name, held, *pair)
                    if name not in self._outputs:
                        self.numbers.pop(name, None)
                    else:
                        keys = self.judge.needs(origins[name].key)
                        self.needed |= {key: held[key] for key in keys if key in held}
                        self.kept[name] = expected[name]

    def _references(
        self,
        nodes: Sequence[ir.Node],
        expected: Mapping[str, torch.Tensor],
        own: Mapping[str, onnxruntime.OrtValue],
    ) -> dict[str, onnxruntime.OrtValue]:
        """The reference's values in the type that the graph has there."""
        wanted = expected.keys() if self._local is not None else self.judge.shared
        found = {}
        declared = {str(v.name): v.dtype for node in nodes for v in node.outputs}
        for name in wanted & expected.keys():
            if self._reference.origins[name].how == "number":
                continue  # which may be no match
            value = ort_value(expected[name])
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
    ) -> None:
        origin = self._reference.origins[name]
        expected = held[origin.key]
        got = None if own is None else tensor_of_ort(own)
        exact = name in self._outputs
        error = difference_of(expected, got if exact else _rounded(got, expected))
        judged, alone = got, None
        if self._local is not None:
            judged = None if local is None else tensor_of_ort(local)
            alone = self._apart(expected, judged if exact else _rounded(judged, expected))
        verdict, note = self.judge(name, held, judged, alone or error, self.numbers.get(name))
        if origin.how == "number" and verdict == "differs":
            return  # it was no match
        if verdict == "failed":
            note = self._failure(node)
        self.rows.append(
            Row(
                name, str(node.name or ""), node.op_type, origin.key, layer_of(node),
                line_of(node), side_of(expected), None if got is None else side_of(got), error,
                alone, verdict, note, histogram_of(expected, judged),
            )
        )  # fmt: skip

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
        graph = self.setting.onnx.graph
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


def _rounded(got: torch.Tensor | None, expected: torch.Tensor) -> torch.Tensor | None:
    """A value within a graph that an exporter computes in more precision, as the reference's."""
    more = got is not None and got.is_floating_point() and expected.is_floating_point()
    if got is None or not more or got.element_size() <= expected.element_size():
        return got
    return got.to(expected.dtype)


def _advance(
    stream: Iterator[tuple[str, torch.Tensor]], held: dict[str, torch.Tensor], key: str
) -> None:
    """Take values of the reference until this one is there, or there are no more."""
    while key not in held:
        pair = next(stream, None)
        if pair is None:
            return
        held[pair[0]] = pair[1]
