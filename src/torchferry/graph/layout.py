"""Where the boxes and arrows of a diagram go: layers from top to bottom, few crossings.

The steps are those of Sugiyama, Tagawa and Toda (1981): a box stands one layer below the last of
its sources, an arrow over several layers has a place in each, boxes are ordered by the mean
place of their neighbours, then moved as close to them as their order allows. Arrows bend only
between layers, so none runs over a box.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torchferry.errors import UsageError
from torchferry.graph.diagram import Arrow, Box, Diagram
from torchferry.graph.layers import Net, arrange

__all__ = ["LINE", "SIZE", "TITLE", "Placed", "PlacedBox", "Route", "place", "stack"]

SIZE, TITLE, LINE = 11, 13, 15
"""Font sizes of lines and titles, and the height of a line, in pixels; the font is monospaced."""

_CHAR = 0.64  # width of a character over the font size: 0.6, and what hinting adds
_PAD, _GAP, _BETWEEN = 8, 26, 34  # pixels: in a box, between boxes, between layers
_PORT = 14  # pixels between the ends of arrows at a box

Point = tuple[float, float]


@dataclass(frozen=True)
class PlacedBox:
    """A box with its upper left corner and size in pixels, and the diagrams inside, placed."""

    box: Box
    x: float
    y: float
    width: float
    height: float
    inner: tuple[Placed, ...] = ()


@dataclass(frozen=True)
class Route:
    """An arrow: straight, then bent, then straight from one point to the next, and so on."""

    arrow: Arrow
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Placed:
    """A diagram with its place; coordinates are those of the whole drawing."""

    title: str
    x: float
    y: float
    width: float
    height: float
    boxes: tuple[PlacedBox, ...]
    routes: tuple[Route, ...]


def stack(diagrams: Iterable[Diagram]) -> tuple[Placed, ...]:
    """Place the graph of a model and its functions, one below the other.

    Raises:
        UsageError: a graph is no ONNX graph: a value of it depends on itself.
    """
    placed: list[Placed] = []
    y = 0.0
    for diagram in diagrams:
        one = _moved(place(diagram), 0.0, y)
        placed.append(one)
        y += one.height + _GAP
    return tuple(placed)


def place(diagram: Diagram) -> Placed:
    """Place one diagram, its corner at (0, 0).

    Raises:
        UsageError: as `stack`.

    >>> from torchferry.graph.diagram import Arrow, Box
    >>> boxes = Box("a", "input", "x"), Box("b", "operator", "Relu")
    >>> placed = place(Diagram("g", boxes, (Arrow("a", "b", "x"),)))
    >>> placed.boxes[0].y < placed.boxes[1].y
    True
    """
    inner = {box.name: tuple(place(one) for one in box.inner) for box in diagram.boxes}
    sizes = {box.name: _size(box, inner[box.name]) for box in diagram.boxes}
    net = Net.of([box.name for box in diagram.boxes], diagram.arrows)
    if net.cyclic:
        title = next(box.title for box in diagram.boxes if box.name == net.cyclic)
        raise UsageError(
            f"{diagram.title}: a value depends on itself, around {title}; "
            "this is no valid ONNX graph"
        )
    centers = arrange(net, {name: width for name, (width, _) in sizes.items()}, _GAP)
    tops, heights = _rows(net, sizes)
    left = min((x - sizes.get(n, (0, 0))[0] / 2 for n, x in centers.items()), default=0.0) - _PAD
    boxes = []
    for box in diagram.boxes:
        width, height = sizes[box.name]
        layer = net.layer[box.name]
        x = centers[box.name] - width / 2 - left
        y = tops[layer] + (heights[layer] - height) / 2
        boxes.append(PlacedBox(box, x, y, width, height, _inside(box, inner[box.name], x, y)))
    centers = {name: x - left for name, x in centers.items()}
    routes = tuple(_routes(net, {b.box.name: b for b in boxes}, centers, tops, heights))
    right = max([b.x + b.width for b in boxes] + [x for r in routes for x, _ in r.points] + [0.0])
    bottom = max((b.y + b.height for b in boxes), default=0.0)
    width = max(right + _PAD, text_width(diagram.title, SIZE) + 2 * _PAD)
    return Placed(diagram.title, 0.0, 0.0, width, bottom + _PAD, tuple(boxes), routes)


def text_width(text: str, size: float) -> float:
    """Pixels of a text; what East Asian scripts have is twice as wide."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return (len(text) + wide) * size * _CHAR


def _size(box: Box, inner: Sequence[Placed]) -> tuple[float, float]:
    widths = [text_width(box.title, TITLE), *(text_width(line, SIZE) for line in box.lines)]
    height = float(LINE * (1 + len(box.lines)) + _PAD)
    if inner:
        widths.append(sum(one.width for one in inner) + _PAD * (len(inner) - 1))
        height += max(one.height for one in inner) + _PAD
    return max(widths) + 2 * _PAD, height


def _inside(box: Box, inner: Sequence[Placed], x: float, y: float) -> tuple[Placed, ...]:
    """The inner diagrams side by side, below the lines of the box."""
    found, x, y = [], x + _PAD, y + LINE * (1 + len(box.lines)) + _PAD
    for one in inner:
        found.append(_moved(one, x, y))
        x += one.width + _PAD
    return tuple(found)


def _moved(placed: Placed, x: float, y: float) -> Placed:
    boxes = tuple(
        replace(b, x=b.x + x, y=b.y + y, inner=tuple(_moved(one, x, y) for one in b.inner))
        for b in placed.boxes
    )
    routes = tuple(
        replace(r, points=tuple((px + x, py + y) for px, py in r.points)) for r in placed.routes
    )
    return replace(placed, x=placed.x + x, y=placed.y + y, boxes=boxes, routes=routes)


def _rows(net: Net, sizes: Mapping[str, tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Top and height of each layer; the title of the diagram stands above the first."""
    heights = [
        max((sizes[name][1] for name in row if name in sizes), default=0.0) for row in net.rows
    ]
    tops, y = [], float(LINE + _PAD)
    for height in heights:
        tops.append(y)
        y += height + _BETWEEN
    return tops, heights


def _routes(
    net: Net,
    boxes: Mapping[str, PlacedBox],
    centers: Mapping[str, float],
    tops: Sequence[float],
    heights: Sequence[float],
) -> Iterator[Route]:
    ends: dict[str, list[tuple[float, int]]] = defaultdict(list)
    starts: dict[str, dict[str, float]] = defaultdict(dict)
    for index, (arrow, path) in enumerate(net.paths):
        ends[arrow.target].append((centers[path[-2]], index))
        starts[arrow.source].setdefault(arrow.label, centers[path[1]])
    at: dict[int, float] = {}
    for name, arrows in ends.items():
        ports = _ports(boxes[name], len(arrows))
        at |= {index: x for x, (_, index) in zip(ports, sorted(arrows), strict=True)}
    out = {
        name: dict(zip(sorted(labels, key=labels.__getitem__), _ports(boxes[name], len(labels)),
                       strict=True))
        for name, labels in starts.items()
    }  # fmt: skip
    for index, (arrow, path) in enumerate(net.paths):
        first, last = boxes[path[0]], boxes[path[-1]]
        begin, end = out[arrow.source][arrow.label], at[index]
        top, bottom = net.layer[path[0]], net.layer[path[-1]]
        points = [(begin, first.y + first.height), (begin, tops[top] + heights[top])]
        for layer, name in enumerate(path[1:-1], top + 1):
            x = centers[name]
            points += [(x, tops[layer]), (x, tops[layer] + heights[layer])]
        points += [(end, tops[bottom]), (end, last.y)]
        # A box as high as its layer has no straight piece above it, nor below.
        kept = [one for one, before in zip(points, [None, *points], strict=False) if one != before]
        yield Route(arrow, tuple(kept))


def _ports(box: PlacedBox, count: int) -> list[float]:
    """Where arrows meet a side of a box: around its middle."""
    apart = min(_PORT, (box.width - 2 * _PAD) / max(count, 1))
    middle = box.x + box.width / 2
    return [middle + (number - (count - 1) / 2) * apart for number in range(count)]
