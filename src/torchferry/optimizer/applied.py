"""Each rewrite that was made, as two small models: what was found, and what took its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import onnx
import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.graph.subgraph import subgraphs
from torchferry.optimizer.facts import byte_count, constant

__all__ = ["AppliedRewrites"]

_MOST = 1024  # bytes of a constant that is written; a larger one is an input
_IR_VERSION = 10


class AppliedRewrites:
    """Writes ``0001_RULE_before.onnx`` and ``0001_RULE_after.onnx``, and so on.

    What the nodes read is an input, or an initializer if it is a small constant; what others read
    of them is an output, under its own name. A rewrite that leaves an existing value in the place
    of what it found makes no node, and no second file.

    Args:
        folder: is made if it is not there.

    Raises:
        UsageError: the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._number = folder, 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the folder {folder}: {error.strerror}") from error

    def write(self, rule: str, before: onnx.ModelProto, after: onnx.ModelProto | None) -> None:
        """Write one rewrite.

        Args:
            rule: its name.
            before: the `part` that was found, taken before it was replaced.
            after: the `part` that was made, if there are new nodes.

        Raises:
            UsageError: a file cannot be written.
        """
        self._number += 1
        for what, model in (("before", before), ("after", after)):
            path = self.folder / f"{self._number:04}_{rule}_{what}.onnx"
            if model is not None:
                try:
                    path.write_bytes(model.SerializeToString())
                except OSError as error:
                    raise UsageError(f"cannot write {path}: {error.strerror}") from error

    def part(self, nodes: Sequence[ir.Node], opsets: Mapping[str, int]) -> onnx.ModelProto:
        """A model of some nodes of another one.

        Args:
            nodes: in any order.
            opsets: of the model that they are from.
        """
        inside = set(nodes)
        made = {value for node in nodes for value in node.outputs}
        read = dict.fromkeys(v for node in nodes for v in _read(node) if v not in made)
        graph = onnx.helper.make_graph(
            [ir.to_proto(node) for node in _in_order(nodes)],
            "part",
            [ir.to_proto(value) for value in read if not _is_small(value)],
            [ir.to_proto(v) for node in nodes for v in node.outputs if _is_result(v, inside)],
        )
        for value in read:
            tensor = constant(value)
            if tensor is not None and _is_small(value):
                proto = ir.to_proto(tensor)
                proto.name = str(value.name)
                graph.initializer.append(proto)
        domains = {node.domain: opsets.get(node.domain, 1) for node in nodes}
        imports = [onnx.helper.make_opsetid(*item) for item in domains.items()]
        return onnx.helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def _read(node: ir.Node) -> Iterable[ir.Value]:
    """What a node and its subgraphs read from outside."""
    yield from (value for value in node.inputs if value is not None)
    for body in subgraphs(node):
        inner = list(body.all_nodes())
        own = {value for item in inner for value in item.outputs} | set(body.inputs)
        own |= set(body.initializers.values())
        yield from (v for item in inner for v in item.inputs if v is not None and v not in own)


def _is_small(value: ir.Value) -> bool:
    tensor = constant(value)
    return tensor is not None and byte_count(tensor) <= _MOST


def _is_result(value: ir.Value, inside: set[ir.Node]) -> bool:
    readers = value.consumers()
    return bool(value.name) and (
        value.is_graph_output() or not readers or any(node not in inside for node in readers)
    )


def _in_order(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """The nodes, each after those it reads."""
    left, ordered = dict.fromkeys(nodes), dict[ir.Node, None]()

    def add(node: ir.Node) -> None:
        if node in left:
            del left[node]
            for value in _read(node):
                maker = value.producer()
                if maker is not None:
                    add(maker)
            ordered[node] = None

    for node in nodes:
        add(node)
    return list(ordered)
