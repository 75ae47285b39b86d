"""Walking an ONNX model in windows of nodes, so that one window of values is in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir
import onnxruntime

from torchferry.comparer.run.piece import Runner, cut, outside, reads
from torchferry.errors import RunError

__all__ = ["Windows"]


class Windows:
    """Walks an ONNX model in windows of nodes, each run as a piece of its own.

    What later windows need is carried along and dropped after its last use. When onnxruntime
    fails within a window, it is halved until the node at fault stands alone; what depends on it is
    not computed.

    Attributes:
        failed: what onnxruntime said, by the node that failed.
    """

    def __init__(
        self,
        model: ir.Model,
        feeds: Mapping[str, onnxruntime.OrtValue],
        runner: Runner,
    ) -> None:
        self.model = model
        self.failed: dict[ir.Node, str] = {}
        self._runner = runner
        self._carried = dict(feeds)
        self._last: dict[str, ir.Node] = {}
        nodes = list(model.graph)
        self._place = {node: index for index, node in enumerate(nodes)}
        for node in nodes:
            for value in reads(node):
                self._last[str(value.name)] = node

    def run(
        self,
        nodes: Sequence[ir.Node],
        wanted: Collection[str],
        references: Mapping[str, onnxruntime.OrtValue] | None = None,
    ) -> dict[str, onnxruntime.OrtValue]:
        """Run the next nodes of the model.

        Args:
            nodes: those that follow what was run before.
            wanted: names of values to give back, besides what is carried along.
            references: values to use in the place of those that are computed, by name.

        Returns:
            The wanted values that could be computed.
        """
        references = references or {}
        found = self._attempt(list(nodes), wanted, references)
        for name in list(self._carried):
            last = self._last.get(name)
            if last is None or self._place[last] <= self._place[nodes[-1]]:
                del self._carried[name]
        return {name: value for name, value in found.items() if name in wanted}

    def carried(self, name: str) -> onnxruntime.OrtValue | None:
        """An input or a value that was computed before and that nodes to come read."""
        return self._carried.get(name)

    def give(self, name: str, value: onnxruntime.OrtValue) -> None:
        """Let the nodes that come take another value in the place of one that was computed."""
        if name in self._carried:
            self._carried[name] = value

    def _attempt(
        self,
        nodes: list[ir.Node],
        wanted: Collection[str],
        references: Mapping[str, onnxruntime.OrtValue],
    ) -> dict[str, onnxruntime.OrtValue]:
        nodes = self._runnable(nodes)
        here = {id(node) for node in nodes}
        outputs = [
            value
            for node in nodes
            for value in node.outputs
            if value.name and (value.name in wanted or self._leaves(value, here))
        ]
        if not outputs:
            return {}
        inputs = outside(nodes)
        fed = {str(v.name) for n in nodes for v in n.outputs if v.name in references}
        types = self._carried | dict(references)
        try:
            piece = cut(self.model, inputs, outputs, types, fed)
            found = self._runner(piece, types)
        except RunError as error:
            if len(nodes) == 1:
                self.failed[nodes[0]] = str(error)
                self._carried |= {n: references[n] for n in fed}
                return {}
            middle = len(nodes) // 2
            found = self._attempt(nodes[:middle], wanted, references)
            return found | self._attempt(nodes[middle:], wanted, references)
        self._carried |= found | {name: references[name] for name in fed}
        return found

    def _leaves(self, value: ir.Value, here: Collection[int]) -> bool:
        last = self._last.get(str(value.name))
        return last is not None and id(last) not in here

    def _runnable(self, nodes: list[ir.Node]) -> list[ir.Node]:
        """Those whose inputs are there, or will be."""
        known = set(self._carried)
        kept = []
        for node in nodes:
            values = {str(v.name) for v in reads(node) if not v.is_initializer()}
            if values <= known:
                kept.append(node)
                known |= {str(value.name) for value in node.outputs}
        return kept
