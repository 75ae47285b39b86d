"""A plot of errors against depth: one mark a value, in the order of computation.

Beneath it stands a strip with one cell a layer, the darker the larger its worst error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from torchferry.report.model import Source, Tone

__all__ = ["Mark", "Plot", "error_plot", "log_height"]

_LEFT, _TOP, _WIDTH, _HEIGHT = 58, 26, 930, 170  # px of the field of the plot
_STRIP, _GAP = 20, 34  # px: height of the strip, between it and the field
_LOW, _HIGH = -9, 1  # powers of ten; what is beyond is drawn at the edge
_MOST = 700  # marks and cells that are drawn; of more, the largest of each stretch
_COLUMNS = 72  # of the plot in text
_LEVELS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "?"  # in the place of a level: nothing was compared
_COLORS: dict[Tone | None, str] = {
    None: "var(--bar,#0072b2)", "good": "var(--bar,#0072b2)", "bad": "var(--bad,#b3261e)",
    "warn": "var(--warn,#8a5a00)", "muted": "var(--soft,#596470)",
}  # fmt: skip


@dataclass(frozen=True)
class Plot(Source):
    """A picture, with the same in text for where there are none.

    Attributes:
        svg: one ``<svg>`` element, its text escaped.
    """

    svg: str = ""


@dataclass(frozen=True)
class Mark:
    """One value.

    Attributes:
        name: what is shown when one points at it.
        layer: the cell of the strip that it counts for; ``""`` for none.
        error: relative to the value's scale; 0 when equal, infinite when nothing can be compared.
        tone: ``bad`` marks are drawn in front.
    """

    name: str
    layer: str
    error: float
    tone: Tone | None = None


def error_plot(title: str, marks: Sequence[Mark], limit: float, first: int | None = None) -> Plot:
    """Draw errors on a logarithmic scale.

    Args:
        title: of the plot.
        marks: in order of computation.
        limit: an error that is still accepted, drawn as a line.
        first: place of the mark to point out.
    """
    return Plot(title, _text(marks, first), _svg(title, marks, limit, first))


def _text(marks: Sequence[Mark], first: int | None) -> str:
    """A line of bars, one a stretch of values, and what its heights mean."""
    stretches = list(_stretches(len(marks), _COLUMNS))
    bars = "".join(_level(marks[a:b]) for a, b in stretches)
    lines = [bars]
    if first is not None:
        at = next(index for index, (_, b) in enumerate(stretches) if first < b)
        lines.append(f"{' ' * at}^ {marks[first].name}, {first + 1} of {len(marks)}")
    most = -(-len(marks) // _COLUMNS)
    each = "one bar a value" if most <= 1 else f"one bar for 1 to {most} values"
    unknown = f", {_UNKNOWN} was not compared" if _UNKNOWN in bars else ""
    lines.append(f"{each}; {_LEVELS[0]} is an error of 1e{_LOW} of the scale or less, "
                 f"{_LEVELS[-1]} 1e{_HIGH} or more{unknown}")  # fmt: skip
    return "\n".join(lines)


def _worst(marks: Sequence[Mark]) -> Mark | None:
    """The largest error of those that were compared: others are as far apart as they like."""
    known = (mark for mark in marks if mark.tone not in ("muted", "warn"))
    return max(known, key=lambda mark: log_height(mark.error), default=None)


def _level(marks: Sequence[Mark]) -> str:
    worst = _worst(marks)
    if worst is None:
        return _UNKNOWN
    return _LEVELS[round(log_height(worst.error) * (len(_LEVELS) - 1))]


def _stretches(count: int, most: int) -> Iterator[tuple[int, int]]:
    parts = min(count, most)
    for part in range(parts):
        yield part * count // parts, (part + 1) * count // parts


def log_height(error: float) -> float:
    """0 to 1 on a logarithmic axis, from 1e-9 to 10.

    >>> [log_height(error) for error in (0.0, 1e-4, 100.0)]
    [0.0, 0.5, 1.0]
    """
    if not error > 0:  # NaN too
        return 0.0 if error == 0 else 1.0
    power = math.log10(error) if math.isfinite(error) else _HIGH
    return min(max((power - _LOW) / (_HIGH - _LOW), 0.0), 1.0)


def _x(place: float, count: int) -> float:
    return _LEFT + _WIDTH * (place + 0.5) / max(count, 1)


def _y(error: float) -> float:
    return _TOP + _HEIGHT * (1 - log_height(error))


def _svg(title: str, marks: Sequence[Mark], limit: float, first: int | None) -> str:
    parts = [*_axes(len(marks), limit), *_dots(marks)]
    if first is not None:
        x = _x(first, len(marks))
        end = "end" if x > _LEFT + _WIDTH * 0.7 else "start"
        shift = -6 if end == "end" else 6
        parts.append(
            f'<path d="M{x:.1f} {_TOP}V{_TOP + _HEIGHT}" stroke="{_COLORS["bad"]}" '
            f'stroke-dasharray="4 3"/><text x="{x + shift:.1f}" y="{_TOP - 10}" '
            f'text-anchor="{end}" fill="{_COLORS["bad"]}">first: {escape(marks[first].name)}'
            "</text>"
        )
    parts += _strip(marks)
    height = _TOP + _HEIGHT + _GAP + _STRIP + 18
    name = escape(f"{title}. {_spoken(marks, first)}")
    return (
        f'<svg class="depth" role="img" aria-label="{name}" '
        f'viewBox="0 0 {_LEFT + _WIDTH + 12} {height}" '
        'style="display:block;width:100%;min-width:600px" font-size="12" fill="currentColor">'
        f"<title>{name}</title>{''.join(parts)}</svg>"
    )


def _spoken(marks: Sequence[Mark], first: int | None) -> str:
    bad = sum(mark.tone == "bad" for mark in marks)
    said = f"{len(marks)} values, {bad} beyond tolerance"
    return said if first is None else f"{said}, the first is {marks[first].name}"


def _axes(count: int, limit: float) -> Iterator[str]:
    for power in range(_LOW, _HIGH + 1, 2):
        y = _y(10.0**power)
        yield (
            f'<path d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}" stroke="var(--line,#dde1e6)"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>'
        )
    y = _y(limit)
    yield (
        f'<path d="M{_LEFT} {y:.1f}H{_LEFT + _WIDTH}" stroke="{_COLORS["muted"]}" '
        f'stroke-dasharray="2 4"/><text x="{_LEFT + 4}" y="{y - 4:.1f}" '
        f'fill="{_COLORS["muted"]}">tolerance</text>'
    )
    base = _TOP + _HEIGHT + 16
    yield f'<text x="{_LEFT}" y="{base}">first value</text>'
    yield f'<text x="{_LEFT + _WIDTH}" y="{base}" text-anchor="end">value {count}</text>'


def _dots(marks: Sequence[Mark]) -> Iterator[str]:
    """One path a colour: thousands of circles would make the page slow."""
    chosen = [
        max(range(a, b), key=lambda i: (marks[i].tone == "bad", log_height(marks[i].error)))
        for a, b in _stretches(len(marks), _MOST)
    ]
    for tone in ("muted", None, "good", "warn", "bad"):
        path = "".join(
            f"M{_x(i, len(marks)):.1f} {_y(marks[i].error):.1f}h0"
            for i in chosen
            if marks[i].tone == tone
        )
        if path:
            width = 6 if tone == "bad" else 4
            yield (
                f'<path d="{path}" fill="none" stroke="{_COLORS[tone]}" stroke-width="{width}" '
                'stroke-linecap="round"/>'
            )


def _strip(marks: Sequence[Mark]) -> Iterator[str]:
    """One cell a layer, as wide as it has values."""
    cells: list[tuple[str, int, int]] = []  # layer, from, to
    for place, mark in enumerate(marks):
        if cells and cells[-1][0] == mark.layer:
            cells[-1] = (mark.layer, cells[-1][1], place + 1)
        else:
            cells.append((mark.layer, place, place + 1))
    top = _TOP + _HEIGHT + _GAP
    for start, stop in _stretches(len(cells), _MOST // 4):
        begin, end = cells[start][1], cells[stop - 1][2]
        worst = _worst(marks[begin:end])
        bad = any(mark.tone == "bad" for mark in marks[begin:end])
        tone: Tone | None = "bad" if bad else "warn" if worst is None else None
        x, far = _x(begin - 0.5, len(marks)), _x(end - 0.5, len(marks))
        told = "not compared" if worst is None else f"{worst.error:.2g}, {worst.name}"
        name = escape(f"{cells[start][0] or 'the model itself'}: {told}")
        opacity = 0.5 if worst is None else 0.12 + 0.88 * log_height(worst.error)
        yield (
            f'<rect x="{x:.1f}" y="{top}" width="{max(far - x - 0.6, 0.6):.1f}" height="{_STRIP}" '
            f'fill="{_COLORS[tone]}" '
            f'fill-opacity="{opacity:.2f}"><title>{name}</title></rect>'
        )
    yield f'<text x="{_LEFT - 8}" y="{top + 14}" text-anchor="end">layers</text>'
