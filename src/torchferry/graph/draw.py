"""A model as an SVG picture, made without any program or library for drawing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from torchferry.graph.diagram import ModelLike, diagrams_of
from torchferry.graph.layout import LINE, SIZE, TITLE, Placed, PlacedBox, Point, Route, stack

__all__ = ["COLORS", "draw_svg"]

COLORS = {
    "input": ("#d6eaf8", "#2874a6"),
    "output": ("#fdebd0", "#b9770e"),
    "operator": ("#ffffff", "#566573"),
    "extension": ("#e8daef", "#7d3c98"),
    "weight": ("#eaeded", "#707b7c"),
    "outer": ("#f8f9f9", "#99a3a4"),
}
"""Fill and border of each kind of box; told apart by lightness too."""

_STYLE = (
    "text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;text-anchor:middle;fill:#1b2631}"
    f".t{{font-size:{TITLE}px;font-weight:bold}}.l{{font-size:{SIZE}px}}"
    f".g{{font-size:{SIZE}px;text-anchor:start;fill:#566573}}"
    ".e{fill:none;stroke:#566573}.i{stroke-dasharray:5 3}"
    ".f{fill:#fbfcfc;stroke:#aeb6bf;stroke-dasharray:2 2}"
)
_HEAD = (
    '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0 0L8 4L0 8z" fill="#566573"/></marker></defs>'
)


def draw_svg(model: ModelLike) -> str:
    """Draw a model: operators from top to bottom, with what flows between them.

    Weights, constants and attributes are lines in the boxes; subgraphs stand inside the box of
    their operator, local functions below the graph. The name of a value shows where the pointer
    rests on its arrow. The text is a whole SVG file that loads nothing.

    Args:
        model: an ``onnx_ir.Model``, ``onnx.ModelProto``, the path of a ``.onnx`` file (weights
            beside it are not read), or a program that has a model.

    Raises:
        UsageError: it is no model, or a value of it depends on itself.

    >>> import onnx_ir as ir
    >>> x = ir.Value(name="x")
    >>> relu = ir.Node("", "Relu", [x])
    >>> graph = ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 20}, name="g")
    >>> draw_svg(ir.Model(graph, ir_version=10)).count("<rect")
    4
    """
    placed = stack(diagrams_of(model))
    width = max(one.width for one in placed) + 1
    height = placed[-1].y + placed[-1].height + 1
    parts = [part for one in placed for part in _diagram(one, framed=False)]
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>{_HEAD}'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _diagram(placed: Placed, *, framed: bool) -> Iterator[str]:
    if framed:
        yield _rect(placed.x, placed.y, placed.width, placed.height, 'class="f"')
    yield _text(placed.x + 8, placed.y + LINE, placed.title, "g")
    for route in placed.routes:
        yield _route(route)
    for box in placed.boxes:
        yield from _box(box)


def _box(placed: PlacedBox) -> Iterator[str]:
    box = placed.box
    fill, stroke = COLORS[box.kind]
    dashed = ' stroke-dasharray="4 3"' if box.kind == "outer" else ""
    paint = f'rx="5" fill="{fill}" stroke="{stroke}"{dashed}'
    yield _rect(placed.x, placed.y, placed.width, placed.height, paint)
    x, y = placed.x + placed.width / 2, placed.y + LINE
    yield _text(x, y, box.title, "t")
    for number, line in enumerate(box.lines, 1):
        yield _text(x, y + number * LINE, line, "l")
    for inner in placed.inner:
        yield from _diagram(inner, framed=True)


def _rect(x: float, y: float, width: float, height: float, paint: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {paint}/>'


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(text)}</text>'


def _route(route: Route) -> str:
    kind = "e i" if route.arrow.implicit else "e"
    told = escape(f"{route.arrow.label} {route.arrow.type}".strip())
    return (
        f'<path class="{kind}" marker-end="url(#a)" d="{_path(route.points)}">'
        f"<title>{told}</title></path>"
    )


def _path(points: Sequence[Point]) -> str:
    """Straight within a layer, bent from one layer to the next."""
    words = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for index, (x, y) in enumerate(points[1:], 1):
        before, above = points[index - 1]
        if before == x:
            words.append(f"L{x:.1f} {y:.1f}")
        else:
            half = (above + y) / 2
            words.append(f"C{before:.1f} {half:.1f} {x:.1f} {half:.1f} {x:.1f} {y:.1f}")
    return "".join(words)
