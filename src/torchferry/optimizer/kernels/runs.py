"""Which element-wise operators of a graph become one kernel."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from torchferry.optimizer import facts
from torchferry.optimizer.kernels.expression import C_TYPES, element, is_element_wise, operands
from torchferry.optimizer.rule import Declined
from torchferry.optimizer.sizes import INTEGERS

__all__ = ["MOST_AXES", "MOST_INPUTS", "Run", "find_runs"]

MOST_AXES = 8
MOST_INPUTS = 16
_MOST_NODES = 64
_CHEAP = 2.0
"""What it may cost to compute a smaller value again for each element that it is broadcast to."""
_LAYOUT = frozenset({"AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "MaxPool",
                     "GlobalAveragePool"})  # fmt: skip
"""Operators that onnxruntime fuses activations and sums into, in a memory layout of their own."""


@dataclass(frozen=True)
class Run:
    """Operators that become one kernel.

    Attributes:
        nodes: in their order in the graph; the last makes the only value that others read.
        inputs: what they read from outside, without the numbers that stand in the kernel.
    """

    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]

    @property
    def output(self) -> ir.Value:
        """What the run computes."""
        return self.nodes[-1].outputs[0]


def find_runs(graph: ir.Graph) -> list[Run]:
    """The runs of a graph for which a kernel pays: those of two operators at least.

    A value inside of a run is read in the run only. One that is smaller than the run's result is
    computed again for each element, where that is cheap; else the run begins behind it.
    """
    index = {node: number for number, node in enumerate(graph)}
    fits = {node for node in graph if _fits(node)}
    taken: set[ir.Node] = set()
    runs = []
    for root in reversed(list(graph)):
        if root in fits and root not in taken and not _counts(root.outputs[0]):
            run = _grown(root, index, fits - taken)
            if len(run.nodes) > 1 and _pays(run):
                runs.append(run)
                taken.update(run.nodes)
    return runs[::-1]


def scalar(value: ir.Value) -> bool:
    """Whether a value is a constant number, which stands in the kernel."""
    tensor = facts.constant(value)
    return tensor is not None and tensor.size == 1 and value.dtype in C_TYPES


def _fits(node: ir.Node) -> bool:
    """Whether a node can be a part of a kernel."""
    if len(node.outputs) != 1 or not is_element_wise(node):
        return False
    try:
        values = operands(node)
        element(node, ["x"] * len(values))
        most = facts.rank(node.outputs[0])
        ranks = [facts.rank(value) for value in values]
    except Declined:
        return False
    return most <= MOST_AXES and max(ranks) == most and not _goes_into_product(node, values)


def _goes_into_product(node: ir.Node, values: Sequence[ir.Value]) -> bool:
    """Whether onnxruntime makes a Gemm of a product and this sum with a constant row."""
    if node.op_type != "Add" or len(values) != 2:
        return False
    for product, row in (values, values[::-1]):
        maker = product.producer()
        if maker is None or maker.op_type != "MatMul" or len(product.uses()) != 1:
            continue
        if facts.is_constant(row) and facts.rank(row) == 1:
            return True
    return False


def _counts(value: ir.Value) -> bool:
    """Whether a value is a size or some, which onnxruntime follows through the graph."""
    return value.dtype in INTEGERS and value.shape is not None and len(value.shape) <= 1


def _pays(run: Run) -> bool:
    made = {value.producer() for value in run.inputs}
    around = [node for node in [*made, *run.output.consumers()] if node is not None]
    if not run.inputs or any(node.op_type in _LAYOUT for node in around):
        return False
    return max(facts.rank(value) for value in run.inputs) == facts.rank(run.output)


def _grown(root: ir.Node, index: dict[ir.Node, int], fits: set[ir.Node]) -> Run:
    """A node and as many as possible of those that lead to it."""
    members = {root}
    seen = {root}
    heap: list[tuple[int, ir.Node]] = []

    def look_behind(node: ir.Node) -> None:
        for value in operands(node):
            maker = value.producer()
            if maker in fits and maker not in seen:
                seen.add(maker)
                heapq.heappush(heap, (-index[maker], maker))

    look_behind(root)
    while heap and len(members) < _MOST_NODES:
        # The last in order: whoever reads it and could be a member is one by now.
        _, node = heapq.heappop(heap)
        value = node.outputs[0]
        inside = all(user in members for user in value.consumers())
        if not inside or value.is_graph_output() or not _cheap(node, root):
            continue
        if len(list(_leaves({*members, node}))) <= MOST_INPUTS:
            members.add(node)
            look_behind(node)
    ordered = sorted(members, key=index.__getitem__)
    return Run(tuple(ordered), tuple(_leaves(ordered)))


def _cheap(node: ir.Node, root: ir.Node) -> bool:
    if facts.same_shape(node.outputs[0], root.outputs[0]):
        return True
    return element(node, ["x"] * len(operands(node))).cost <= _CHEAP


def _leaves(members: Sequence[ir.Node] | set[ir.Node]) -> Iterator[ir.Value]:
    made = {node.outputs[0] for node in members}
    seen = set()
    for node in members:
        for value in operands(node):
            if value not in made and value not in seen and not scalar(value):
                seen.add(value)
                yield value
