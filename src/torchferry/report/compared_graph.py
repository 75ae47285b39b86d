"""The graph of a comparison, to look around in: each node with what is known of both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchferry.report.depth import log_height
from torchferry.report.explorer import Explorer, Item, Spread
from torchferry.report.model import Tone
from torchferry.report.number import number_text
from torchferry.report.quantity import counted

if TYPE_CHECKING:
    from torchferry.comparer import Comparison, Row, Side, Vertex

__all__ = ["compared_graph", "severity"]

_TONES: dict[str, Tone | None] = {
    "differs": "bad", "failed": "bad", "random": "warn", "incomparable": "warn"
}  # fmt: skip
_WORSE = ("random", "equal", "incomparable", "differs", "failed")
_LEGEND: tuple[tuple[Tone | None, str], ...] = (
    (None, "difference, from none to large"),
    ("bad", "beyond tolerance, or at fault"),
    ("warn", "random, or cannot be compared"),
    ("muted", "no counterpart"),
)


def compared_graph(found: Comparison) -> Explorer:
    """Every node of the ONNX graph; of a node with several values the worst is told.

    Args:
        found: with its graph.
    """
    by_value = {row.name: row for row in found.rows}
    items = []
    for vertex in found.graph:
        rows = [by_value[name] for name in vertex.values if name in by_value]
        items.append(_item(vertex, max(rows, key=severity, default=None), _blamed(vertex, found)))
    told = sum(any(name in by_value for name in vertex.values) for vertex in found.graph)
    text = f"{len(items)} nodes, {told} of them compared; the HTML page shows them"
    return Explorer("", text, tuple(items), ("reference", "ONNX"), _first(found), _LEGEND)


def severity(row: Row) -> tuple[int, float]:
    """What makes a row worse than another; random numbers are no worse than what agrees."""
    return _WORSE.index(row.verdict), row.relative


def _first(found: Comparison) -> int:
    """The node at fault, or the first that differs, or the one that differs most."""
    places = {vertex.node: place for place, vertex in enumerate(found.graph)}
    names = [*(found.suspects if len(found.suspects) == 1 else ())]
    names += [] if found.first is None else [found.first.node]
    worst = max(found.rows, key=severity, default=None)
    names += [] if worst is None else [worst.node]
    return next((places[name] for name in names if name in places), 0)


def _blamed(vertex: Vertex, found: Comparison) -> str:
    """What is said of a node that may be at fault, though nothing stands for what it makes."""
    if found.first is None or vertex.node not in found.suspects:
        return ""
    count = len(found.suspects)
    which = f"one of {count} nodes that may be" if count > 1 else "it is"
    return f"{which} at fault, which shows first in {found.first.name}"


def _item(vertex: Vertex, row: Row | None, blamed: str) -> Item:
    facts = [("module", vertex.layer or "the model itself"), ("line", _short(vertex.line))]
    if row is None:
        facts.append(("verdict", blamed or "it has no counterpart, so it was not compared"))
        kept = tuple((label, text) for label, text in facts if text)
        tone: Tone = "bad" if blamed else "muted"
        return Item(
            vertex.node, vertex.op_type, vertex.layer, tone, reads=vertex.reads, facts=kept
        )  # fmt: skip
    facts += _facts(row)
    return Item(
        vertex.node,
        vertex.op_type,
        vertex.layer,
        _TONES.get(row.verdict),
        log_height(row.relative),
        vertex.reads,
        tuple((label, text) for label, text in facts if text),
        tuple(_sides(row)),
        _spread(row),
    )


def _short(line: str) -> str:
    """A place in an installed package without the folder it is installed in."""
    return line.rpartition("site-packages/")[2]


def _facts(row: Row) -> Iterator[tuple[str, str]]:
    said = row.said
    yield "value", row.name
    yield "stands for", row.origin if row.origin != row.name else ""
    yield "verdict", row.verdict
    if math.isfinite(said.abs):
        yield "difference", f"{number_text(said.abs)} at most, {number_text(said.mean)} on average"
        yield "relative", f"{number_text(row.relative)} of its scale, {number_text(said.scale)}"
        yield "largest at", "" if said.argm is None else str(list(said.argm))
    if row.local is not None:
        yield "inherited too", number_text(row.error.abs)
    if said.dnan:
        yield "difference", f"NaN on one side only, in {counted(said.dnan, 'element')}"
    yield "reason", ": ".join(filter(None, (said.reason, row.note)))


def _sides(row: Row) -> Iterator[tuple[str, str, str]]:
    left, right = row.expected, row.got
    yield "type", str(left), "nothing" if right is None else str(right)
    for label, name in (("least", "least"), ("mean", "mean"), ("largest", "largest")):
        yield label, _number(left, name), _number(right, name)
    for label, name in (("NaN", "nans"), ("infinite", "infinities")):
        if getattr(left, name) or (right is not None and getattr(right, name)):
            yield (
                label,
                str(getattr(left, name)),
                "" if right is None else str(getattr(right, name)),
            )


def _number(side: Side | None, name: str) -> str:
    value = None if side is None else getattr(side, name)
    return "" if value is None else number_text(value)


def _spread(row: Row) -> Spread | None:
    seen = row.histogram
    return None if seen is None else Spread(seen.low, seen.high, seen.expected, seen.got)
