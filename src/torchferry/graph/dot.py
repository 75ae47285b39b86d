"""A model as text in the DOT language (https://graphviz.org/doc/info/lang.html)."""

from __future__ import annotations

from collections.abc import Iterator

from torchferry.graph.diagram import Arrow, Box, Diagram, ModelLike, diagrams_of
from torchferry.graph.draw import COLORS

__all__ = ["dot_text"]

_SHAPES = {"input": "ellipse", "output": "ellipse", "outer": "ellipse"}


def dot_text(model: ModelLike) -> str:
    r"""Write a model for graphviz: a node an operator, an edge a value with its dtype and shape.

    Weights, small constants and attributes are lines in the label of the operator that takes
    them. Subgraphs and local functions are clusters; what a subgraph takes from the graph around
    it comes by a dashed edge, and so go its outputs to the operator.

    Args:
        model: as for `draw_svg`.

    Raises:
        UsageError: it is no model.

    >>> import onnx_ir as ir
    >>> x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    >>> relu = ir.Node("", "Relu", [x])
    >>> graph = ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 20}, name="g")
    >>> print(dot_text(ir.Model(graph, ir_version=10)).splitlines()[6])
      n0 -> n1 [label="x\nf32[2]"];
    """
    main, *functions = diagrams_of(model)
    lines = [
        f"digraph {_quoted(main.title)} {{",
        '  node [shape=box, style="rounded,filled", fontname=monospace, fontsize=11];',
        "  edge [fontname=monospace, fontsize=9];",
        *_inside(main, "  "),
    ]
    for number, function in enumerate(functions):
        lines += _cluster(f"f{number}", function, "  ")
    return "\n".join([*lines, "}"]) + "\n"


def _inside(diagram: Diagram, indent: str) -> Iterator[str]:
    composite = {box.name: box for box in diagram.boxes if box.inner}
    for box in diagram.boxes:
        yield f"{indent}{_node(box)}"
    for box in composite.values():
        for number, inner in enumerate(box.inner):
            yield from _cluster(f"{box.name}_{number}", inner, indent)
            for result in (b for b in inner.boxes if b.kind == "output"):
                yield f'{indent}{result.name} -> {box.name} [style=dashed, label=""];'
    for arrow in diagram.arrows:
        if arrow.implicit:
            for name in _takers(composite[arrow.target], arrow):
                yield f'{indent}{arrow.source} -> {name} [style=dashed, label=""];'
        else:
            label = _label(arrow.label, *filter(None, [arrow.type]))
            yield f"{indent}{arrow.source} -> {arrow.target} [label={label}];"


def _takers(box: Box, arrow: Arrow) -> Iterator[str]:
    """The boxes inside that stand for a value of the graph around."""
    for inner in box.inner:
        for one in inner.boxes:
            if one.kind == "outer" and one.value == arrow.label:
                yield one.name


def _cluster(name: str, diagram: Diagram, indent: str) -> Iterator[str]:
    yield f"{indent}subgraph cluster_{name} {{"
    yield f"{indent}  label={_quoted(diagram.title)}; fontname=monospace; style=dashed;"
    yield from _inside(diagram, f"{indent}  ")
    yield f"{indent}}}"


def _node(box: Box) -> str:
    fill, border = COLORS[box.kind]
    shape = f", shape={_SHAPES[box.kind]}, style=filled" if box.kind in _SHAPES else ""
    label = _label(box.title, *box.lines)
    return f'{box.name} [label={label}, fillcolor="{fill}", color="{border}"{shape}];'


def _label(*lines: str) -> str:
    return '"' + "\\n".join(_escaped(line) for line in lines) + '"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    r"""Backslashes stand for themselves: ``\N`` in a label would be the name of the node."""
    return text.replace("\\", "\\\\").replace('"', '\\"')
