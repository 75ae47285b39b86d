"""Where nodes stand: the order of every graph, kept exact while nodes come and go."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator

import onnx_ir as ir

from torchferry.graph.subgraph import subgraphs
from torchferry.optimizer.facts import byte_count, tensor_of

__all__ = ["Place", "all_nodes"]


def all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    """Every node of a model: of its graph, its functions, and the subgraphs of both."""
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


class Place:
    """The order of nodes, the nodes around subgraphs, and the names that are taken.

    A node that was there from the start has the key ``(index, inf)``. One that is put before a
    node with key ``(*k, inf)`` gets ``(*k, n, inf)`` with ``n`` counting up, which is smaller than
    its anchor and larger than all that stood before it.
    """

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.owners: dict[ir.Graph, ir.Node] = {}
        self.names: set[str] = set()
        self.functions = {f.graph: f for f in model.functions.values()}
        self._keys: dict[ir.Node, tuple[float, ...]] = {}
        self._constants: dict[tuple[ir.DataType, tuple[int, ...], bytes], ir.Value] = {}
        self._next = itertools.count()
        for index, node in enumerate(all_nodes(model)):
            self._keys[node] = (index, math.inf)
            self.owners |= dict.fromkeys(subgraphs(node), node)
            self.names.update(value.name for value in node.outputs if value.name)
        for graph in model.graphs():
            self.names.update(value.name for value in graph.inputs if value.name)
            self.names.update(graph.initializers)
        for function in self.functions.values():
            self.names.update(value.name for value in function.inputs if value.name)

    @property
    def nodes(self) -> list[ir.Node]:
        """The nodes that were there at the start, in order."""
        return list(self._keys)

    def insert(self, anchor: ir.Node, nodes: Iterable[ir.Node]) -> None:
        """Put nodes before another one."""
        before = self._keys[anchor][:-1]
        nodes = list(nodes)
        for node in nodes:
            self._keys[node] = (*before, next(self._next), math.inf)
        self._graph(anchor).insert_before(anchor, nodes)

    def remove(self, node: ir.Node) -> None:
        """Take a node that nobody reads out of its graph."""
        self._graph(node).remove(node, safe=True)
        del self._keys[node]

    def stands(self, node: ir.Node) -> bool:
        """Whether a node is still there."""
        return node in self._keys

    def around(self, node: ir.Node, graph: ir.Graph | None) -> ir.Node | None:
        """The node of ``graph`` that a node is or lies in."""
        here: ir.Node | None = node
        while here is not None and here.graph is not graph:
            here = self.owners.get(here.graph) if here.graph is not None else None
        return here

    def first(self, nodes: Iterable[ir.Node]) -> ir.Node:
        """The first of several nodes."""
        return min(nodes, key=self._keys.__getitem__)

    def ready(self, value: ir.Value, anchor: ir.Node) -> bool:
        """Whether a value is known before a node is run."""
        maker = value.producer()
        if maker is None:
            return True
        here = self.around(anchor, maker.graph)
        return here is not None and maker in self._keys and self._keys[maker] < self._keys[here]

    def fresh(self, wanted: str) -> str:
        """A name that nothing in the model has."""
        name = wanted
        for number in itertools.count():
            if name not in self.names:
                break
            name = f"{wanted}_{number}"
        self.names.add(name)
        return name

    def store(self, value: ir.Value, anchor: ir.Node) -> ir.Value:
        """Make a constant an initializer that is seen at a node; equal small ones are shared.

        Within a function, which has no initializers, it becomes a Constant node before the anchor.
        """
        tensor = tensor_of(value)
        graph = anchor.graph
        while graph in self.owners:
            graph = self.owners[graph].graph
        small = byte_count(tensor) <= 256
        if graph is not self.model.graph:
            node = ir.node("Constant", [], {"value": tensor})
            node.outputs[0].name = self.fresh("constant")
            node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
            self.insert(anchor, [node])
            return node.outputs[0]
        key = (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes() if small else b"")
        known = self._constants.get(key) if small else None
        if known is not None and known.is_initializer():
            return known
        value.name = self.fresh(tensor.name or "constant")
        self.model.graph.register_initializer(value)
        if small:
            self._constants[key] = value
        return value

    def _graph(self, node: ir.Node) -> ir.Graph | ir.Function:
        graph = node.graph
        if graph is None:
            raise ValueError(f"node {node.name} stands in no graph")
        return self.functions.get(graph, graph)
