"""What a drawing of a model shows: boxes, arrows between them, and diagrams inside boxes.

Weights and constants are lines in the box of the operator that takes them; only what flows is an
arrow. A subgraph is a diagram inside the box of its operator, a local function one of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import onnx
import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.graph.integrity import deserialize
from torchferry.graph.label import (
    clean,
    constant_lines,
    constant_text,
    printable,
    type_text,
    wrapped,
)
from torchferry.graph.outline import PathLike, read_proto
from torchferry.graph.subgraph import named_subgraphs

__all__ = ["Arrow", "Box", "Diagram", "ModelLike", "diagrams_of"]

ModelLike = ir.Model | onnx.ModelProto | PathLike
"""A model in memory, or the path of a ``.onnx`` file. A program that has one as ``.model`` too."""

Kind = Literal["input", "output", "operator", "extension", "weight", "outer"]


@dataclass(frozen=True)
class Box:
    """One thing in a diagram.

    Attributes:
        name: of its own in all diagrams of a model: ``n3``.
        kind: ``extension`` is an operator of another domain than ONNX's, ``outer`` a value of the
            graph around a subgraph, ``weight`` an initializer that is an output too.
        title: operator or value name.
        lines: weights, constants and attributes, then the types of the outputs.
        inner: subgraphs.
        value: the whole name of an ``outer`` value; arrows to the subgraph have it as label.
    """

    name: str
    kind: Kind
    title: str
    lines: tuple[str, ...] = ()
    inner: tuple[Diagram, ...] = ()
    value: str = ""


@dataclass(frozen=True)
class Arrow:
    """A value that goes from one box to another; ``implicit`` when a subgraph takes it."""

    source: str
    target: str
    label: str
    type: str = ""
    implicit: bool = False


@dataclass(frozen=True)
class Diagram:
    """A graph, a subgraph or a local function.

    Attributes:
        title: its name; of a subgraph, the attribute that holds it.
        boxes: inputs first, then operators in the order of the graph, then outputs.
        arrows: between boxes of this diagram.
    """

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]


def diagrams_of(model: ModelLike) -> tuple[Diagram, ...]:
    """The graph of a model, then its local functions.

    Args:
        model: also an object that has the model as ``.model``, as an ``OnnxProgram``.

    Raises:
        UsageError: it is no model, or the file is missing or damaged.

    >>> x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape(["n", 2]))
    >>> relu = ir.Node("", "Relu", [x])
    >>> graph = ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 20}, name="g")
    >>> (diagram,) = diagrams_of(ir.Model(graph, ir_version=10))
    >>> [box.title for box in diagram.boxes], diagram.arrows[0].type
    (['x', 'Relu', 'val_0'], 'f32[n, 2]')
    """
    found = _as_ir(model)
    names = (f"n{number}" for number in range(10**9))
    made = [_Builder(names).build(found.graph.name or "graph", found.graph)]
    made += [
        _Builder(names).build(f"function {function.domain}::{function.name}", function)
        for function in found.functions.values()
    ]
    return tuple(made)


def _as_ir(model: Any) -> ir.Model:
    if isinstance(model, PathLike):
        model = read_proto(model)
    model = getattr(model, "model", model)
    if isinstance(model, onnx.ModelProto):
        return deserialize(model, "the model")
    if not isinstance(model, ir.Model):
        raise UsageError(
            f"a {type(model).__name__} is no ONNX model; give an onnx.ModelProto, an "
            "onnx_ir.Model or the path of a .onnx file"
        )
    return model


@dataclass
class _Builder:
    """One diagram in the making."""

    names: Iterator[str]
    boxes: list[Box] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    where: dict[ir.Value, str] = field(default_factory=dict)
    outer: list[ir.Value] = field(default_factory=list)

    def build(self, title: str, graph: ir.Graph | ir.Function) -> Diagram:
        weights = graph.initializers if isinstance(graph, ir.Graph) else {}
        for value in graph.inputs:
            if value.name not in weights:
                self.where[value] = self.add("input", value.name, [type_text(value)])
        outputs = set(graph.outputs)
        nodes = {
            node: next(self.names)
            for node in graph
            if node.op_type != "Constant" or outputs.intersection(node.outputs)
        }
        # Before the first is drawn: a graph that is being changed need not be in order.
        self.where |= {value: name for node, name in nodes.items() for value in node.outputs}
        for node, name in nodes.items():
            self.operator(node, name)
        for number, value in enumerate(graph.outputs):
            self.output(number, value)
        return Diagram(clean(title), tuple(self.boxes), tuple(self.arrows))

    def add(
        self,
        kind: Kind,
        title: str | None,
        lines: Iterable[str],
        inner: tuple[Diagram, ...] = (),
        *,
        name: str = "",
    ) -> str:
        name, title = name or next(self.names), title or "?"
        told = tuple(short for line in lines for short in wrapped(line))
        value = printable(title) if kind == "outer" else ""
        self.boxes.append(Box(name, kind, clean(title), told, inner, value))
        return name

    def operator(self, node: ir.Node, name: str) -> None:
        given = constant_lines(node)
        subgraphs = list(named_subgraphs(node))
        inner, taken = [], list[ir.Value]()
        for title, graph in subgraphs:
            builder = _Builder(self.names)
            inner.append(builder.build(title, graph))
            taken += [value for value in builder.outer if value not in taken]
        plain = node.domain in ("", "ai.onnx")
        title = node.op_type if plain else f"{node.domain}::{node.op_type}"
        named = len(node.outputs) > 1
        made = [
            ": ".join(filter(None, [value.name if named else "", type_text(value)]))
            for value in node.outputs
            if value.name
        ]
        # Sources first: a box of the graph around must stand before the one that uses it.
        flowing = [v for v in node.inputs if v is not None and constant_text(v) is None]
        sources = [(v, self.source(v), False) for v in flowing]
        sources += [(v, self.source(v), True) for v in taken]
        kind: Kind = "operator" if plain else "extension"
        self.add(kind, title, [*given, *made], tuple(inner), name=name)
        for value, source, implicit in sources:
            self.arrow(source, name, value, implicit=implicit)

    def source(self, value: ir.Value) -> str:
        if value not in self.where:
            self.outer.append(value)
            self.where[value] = self.add("outer", value.name, [type_text(value)])
        return self.where[value]

    def arrow(self, source: str, target: str, value: ir.Value, *, implicit: bool = False) -> None:
        label, type_ = printable(value.name or "?"), printable(type_text(value))
        self.arrows.append(Arrow(source, target, label, type_, implicit))

    def output(self, number: int, value: ir.Value) -> None:
        title = value.name or f"output {number}"
        if value not in self.where and value.is_initializer():
            self.where[value] = self.add("weight", title, [type_text(value)])
        source = self.source(value)
        self.arrow(source, self.add("output", title, [type_text(value)]), value)
