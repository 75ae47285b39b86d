"""Drawings for notebooks and galleries: axes of matplotlib, which is loaded when one is made."""

from __future__ import annotations

import importlib
import io
import logging
import shutil
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torchferry.errors import UsageError
from torchferry.graph.diagram import ModelLike, diagrams_of
from torchferry.graph.dot import dot_text
from torchferry.graph.draw import COLORS
from torchferry.graph.layout import LINE, SIZE, TITLE, Placed, PlacedBox, Point, Route, stack

__all__ = ["plot_dot", "plot_legend"]

_log = logging.getLogger("torchferry")

_ENGINES = ("dot", "neato", "fdp", "sfdp", "circo", "twopi", "osage", "patchwork")
_PER_INCH = 100  # pixels of the layout on one inch of a figure
_LARGEST = 60.0  # inches of a figure that is made here; a larger drawing is made smaller
_SECONDS = 60  # graphviz may take; it is slow on models of thousands of operators


def plot_dot(
    dot: ModelLike,
    ax: Any = None,
    engine: str | None = "dot",
    figsize: tuple[float, float] | None = None,
) -> Any:
    """Draw a model on axes of matplotlib.

    With graphviz on the path its engine lays the graph out; without, and always when ``engine``
    is ``None``, torchferry does. `draw_svg` needs neither graphviz nor matplotlib.

    Args:
        dot: a model as `draw_svg` takes it, or text in the DOT language, which needs graphviz.
        ax: where to draw; a new figure when ``None``.
        engine: a program of graphviz, or ``None``.
        figsize: of the new figure, in inches; as the drawing needs by default.

    Returns:
        the ``matplotlib.axes.Axes``.

    Raises:
        UsageError: matplotlib is not installed, there is no such engine, ``dot`` is no model and
            no DOT text, or it is DOT text and graphviz is missing or refuses it.
    """
    plt = _pyplot("plot_dot")
    if engine is not None and engine not in _ENGINES:
        raise UsageError(f"there is no engine {engine!r}; give one of {', '.join(_ENGINES)}, None")
    program = None if engine is None else shutil.which(engine)
    text = dot if isinstance(dot, str) and _is_dot(dot) else None
    if program is None:
        if text is not None:
            raise UsageError(
                f"DOT text is drawn by graphviz, and there is no program {engine or 'dot'!r} for "
                "it; install graphviz, or give the model itself, which needs none"
            )
        return _draw(plt, stack(diagrams_of(dot)), ax, figsize)
    try:
        picture = _run(program, text or dot_text(dot))
    except subprocess.TimeoutExpired as error:
        if text is not None:
            raise UsageError(f"{engine} did not finish in {_SECONDS} s; draw a part") from error
        _log.warning("%s did not finish in %d s; torchferry lays it out", engine, _SECONDS)
        return _draw(plt, stack(diagrams_of(dot)), ax, figsize)
    image = plt.imread(io.BytesIO(picture), format="png")
    height, width = image.shape[:2]
    axes = _axes(plt, ax, figsize, width, height)
    axes.imshow(image)
    return axes


def plot_legend(text: str, text_bottom: str = "", color: str = "green", fontsize: int = 15) -> Any:
    """Draw a small figure of a text in a box: the picture of a page that has none.

    Args:
        text: in the box; several lines may be given.
        text_bottom: small, in the lower right corner.
        color: of the box, as matplotlib takes it.
        fontsize: of the text, in points.

    Returns:
        the ``matplotlib.axes.Axes`` of a new figure of 2 by 2 inches.

    Raises:
        UsageError: matplotlib is not installed.
    """
    plt = _pyplot("plot_legend")
    figure = plt.figure(figsize=(2, 2))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    middle = {"ha": "center", "va": "center", "transform": axes.transAxes}
    box = {"boxstyle": "round,pad=0.5", "facecolor": color, "edgecolor": color, "alpha": 0.5}
    axes.text(0.5, 0.55, text, fontsize=fontsize, bbox=box, **middle)
    if text_bottom:
        axes.text(0.96, 0.04, text_bottom, fontsize=7, ha="right", transform=axes.transAxes)
    return axes


def _pyplot(who: str) -> Any:
    try:
        return importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise UsageError(
            f"{who} needs matplotlib ({error}); install it: pip install 'torchferry[plot]'. "
            "torchferry.draw_svg(model) makes an SVG file without it"
        ) from error


def _is_dot(text: str) -> bool:
    """Whether this is DOT text rather than a path."""
    words = text.replace("{", " { ", 1).split(maxsplit=2)
    return "{" in text and bool(words) and words[0].lower() in ("digraph", "graph", "strict")


def _run(program: str, text: str) -> bytes:
    # No shell; the program was looked up by a name of _ENGINES.
    done = subprocess.run(  # noqa: S603
        [program, "-Tpng", "-Gdpi=150"],
        input=text.encode(),
        capture_output=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode or not done.stdout:
        reason = done.stderr.decode(errors="replace").strip()[:300]
        raise UsageError(f"graphviz cannot draw this: {reason or f'exit {done.returncode}'}")
    return done.stdout


def _axes(
    plt: Any, ax: Any, figsize: tuple[float, float] | None, width: float, height: float
) -> Any:
    """Axes for a drawing of so many pixels; a figure of its own has no margins."""
    if ax is None:
        if figsize is None:
            largest = max(width, height) / _PER_INCH
            shrink = min(1.0, _LARGEST / largest) / _PER_INCH
            figsize = width * shrink, height * shrink
        ax = plt.figure(figsize=figsize).add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    return ax


def _draw(plt: Any, placed: Sequence[Placed], ax: Any, figsize: tuple[float, float] | None) -> Any:
    width = max(one.width for one in placed) + 2
    height = placed[-1].y + placed[-1].height + 2
    axes = _axes(plt, ax, figsize, width, height)
    axes.set_xlim(-1, width)
    axes.set_ylim(height, -1)
    axes.set_aspect("equal")
    # Texts have sizes in points, whatever the axes show: fit them to the boxes.
    inches = axes.get_window_extent().size / axes.get_figure().dpi
    points = 72 * min(inches[0] / width, inches[1] / height)
    painter = _Painter(axes, points)
    for one in placed:
        painter.diagram(one, framed=False)
    return axes


class _Painter:
    """Puts a placed diagram on axes; ``points`` is how many a pixel of the layout is."""

    def __init__(self, axes: Any, points: float) -> None:
        self.axes = axes
        self.points = points
        self.patches = importlib.import_module("matplotlib.patches")
        self.path = importlib.import_module("matplotlib.path").Path

    def diagram(self, placed: Placed, *, framed: bool) -> None:
        if framed:
            self.box(placed, "#fbfcfc", "#aeb6bf", dashed=True)
        self.text(placed.x + 8, placed.y + LINE, placed.title, SIZE, ha="left", color="#566573")
        for route in placed.routes:
            self.route(route)
        for box in placed.boxes:
            self.box(box, *COLORS[box.box.kind], dashed=box.box.kind == "outer")
            x, y = box.x + box.width / 2, box.y + LINE
            self.text(x, y, box.box.title, TITLE, weight="bold")
            for number, line in enumerate(box.box.lines, 1):
                self.text(x, y + number * LINE, line, SIZE)
            for inner in box.inner:
                self.diagram(inner, framed=True)

    def box(self, placed: Placed | PlacedBox, fill: str, border: str, *, dashed: bool) -> None:
        style = "round,pad=0,rounding_size=5"
        patch = self.patches.FancyBboxPatch(
            (placed.x, placed.y), placed.width, placed.height, boxstyle=style, facecolor=fill,
            edgecolor=border, linewidth=self.points, linestyle="--" if dashed else "-",
        )  # fmt: skip
        self.axes.add_patch(patch)

    def route(self, route: Route) -> None:
        patch = self.patches.FancyArrowPatch(
            path=self.curve(route.points), arrowstyle="-|>", shrinkA=0, shrinkB=0,
            mutation_scale=9 * self.points, linewidth=self.points, color="#566573",
            linestyle="--" if route.arrow.implicit else "-",
        )  # fmt: skip
        self.axes.add_patch(patch)

    def curve(self, points: Sequence[Point]) -> Any:
        """Straight within a layer, bent from one layer to the next."""
        vertices, codes = [points[0]], [self.path.MOVETO]
        for (before, above), (x, y) in pairwise(points):
            if before == x:
                vertices.append((x, y))
                codes.append(self.path.LINETO)
            else:
                half = (above + y) / 2
                vertices += [(before, half), (x, half), (x, y)]
                codes += [self.path.CURVE4] * 3
        return self.path(vertices, codes)

    def text(self, x: float, y: float, text: str, size: float, **how: Any) -> None:
        style = {"ha": "center", "va": "baseline", "family": "monospace"} | how
        # A dollar sign would begin a formula.
        self.axes.text(x, y, text, fontsize=size * self.points, parse_math=False, **style)
