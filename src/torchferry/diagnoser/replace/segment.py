"""Cut an ONNX graph at operators that onnxruntime does not have, into parts that it can run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from torchferry.diagnoser.trial.made import save_to_run
from torchferry.errors import UsageError
from torchferry.graph.subgraph import subgraphs
from torchferry.runner import Session
from torchferry.values.flatten import flatten
from torchferry.values.signature import SIGNATURE_KEY, Signature, Slot

__all__ = ["Stage", "cut_at", "open_segment", "plain_signature"]


@dataclass(frozen=True)
class Stage:
    """What can run before the next operators are needed.

    Attributes:
        inputs: values that the segment reads, of the model or of earlier stages.
        outputs: values that it makes for later stages and the model; without any there is no
            segment.
        operators: the nodes at which the graph is cut, to be run after it.
    """

    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    operators: tuple[ir.Node, ...]


def cut_at(graph: ir.Graph, domain: str) -> list[Stage]:
    """Divide a graph into stages: each segment runs once, then the operators that it feeds.

    Args:
        graph: sorted, as every valid ONNX graph is.
        domain: of the operators to cut at.

    Raises:
        UsageError: one of them stands in a branch or a loop, which cannot be cut.
    """
    nodes = list(graph)
    reads = {node: _reads(node) for node in nodes}
    for node in nodes:
        for inner in _inner(node):
            if inner.domain == domain:
                raise UsageError(
                    f"{inner.op_type} stands in a branch or loop of {node.op_type} {node.name}, "
                    "where the graph cannot be cut: only the whole is to be looked at"
                )
    # How many operators lie before a value, on the longest way.
    depth = dict.fromkeys(graph.inputs, 0)
    at: dict[ir.Node, int] = {}
    for node in nodes:
        at[node] = max((depth[value] for value in reads[node] if value in depth), default=0)
        made = at[node] + (node.domain == domain)
        depth.update(dict.fromkeys(node.outputs, made))
    stages = []
    for number in range(max(at.values(), default=0) + 1):
        here = [n for n in nodes if at[n] == number and n.domain != domain]
        stopped = tuple(n for n in nodes if at[n] == number and n.domain == domain)
        rest = (v for n in nodes if at[n] != number or n.domain == domain for v in reads[n])
        wanted = {*rest, *graph.outputs}
        values = dict.fromkeys(value for node in here for value in node.outputs)
        # Weights, which have no depth, stand in every graph that reads them.
        read = {v: None for n in here for v in reads[n] if v in depth and v not in values}
        outputs = tuple(value for value in values if value in wanted)
        stages.append(Stage(tuple(read), outputs, stopped))
    return stages


def _reads(node: ir.Node) -> list[ir.Value]:
    """What a node reads, and what its branches read from around it."""
    found = [value for value in node.inputs if value is not None]
    return found + [value for one in _inner(node) for value in one.inputs if value is not None]


def _inner(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of its branches and loops, and of theirs."""
    return (inner for graph in subgraphs(node) for inner in graph.all_nodes())


def open_segment(model: ir.Model, stage: Stage) -> Session:
    """Load the segment of a stage; its tensors go by the names of its values.

    Raises:
        RunError: onnxruntime cannot load it.
    """
    graph = ir.convenience.extract(model.graph, stage.inputs, stage.outputs)
    part = ir.Model(graph, ir_version=model.ir_version, functions=[*model.functions.values()])
    part.opset_imports.update(model.opset_imports)
    part.metadata_props[SIGNATURE_KEY] = plain_signature(graph).to_json()
    # onnxruntime keeps what it needs of the files open.
    with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
        return Session(save_to_run(part, folder))


def plain_signature(graph: ir.Graph) -> Signature:
    """The signature of any graph: one argument for each input, a list of all outputs."""
    names = [str(value.name) for value in graph.inputs]
    made = [str(value.name) for value in graph.outputs]
    return Signature(
        tuple(names),
        tuple(Slot(name, (name,)) for name in names),
        {},
        flatten(made)[1],
        tuple([name] for name in made),
    )
