"""Pictures of a report: horizontal bars as inline SVG."""

from __future__ import annotations

import math
import re
import unicodedata
from html import escape

from torchferry.report.model import Bars
from torchferry.report.number import measure_text

__all__ = ["bar_lengths", "bars_svg"]

_LABEL_COLUMNS = 26  # characters of a label's line: leaves room for bars on a 400 px screen
_LABEL_ADVANCE = 7.3  # px per character of a 12 px monospace font (0.6 em, rounded up)
_VALUE_ADVANCE = 8.0  # px per character of a 12 px sans font with tabular digits, generous
_LINE, _BAR, _GAP = 15, 16, 8  # px: a label's line, a bar, between rows
_BASE = 4  # px from the middle of a line to its base
_JOINT = re.compile(r"(?<=[ ./_:-])|(?<=[a-z])(?=[A-Z])")


def bar_lengths(bars: Bars) -> tuple[float, ...]:
    """Length of each bar, 0 to 1, the largest value being 1.

    Negative values and NaN have no bar (their value is still printed); infinity has a full one,
    and does not set the scale.

    >>> bar_lengths(Bars("time", "s", (("a", 4.0), ("b", 1.0), ("c", -1.0))))
    (1.0, 0.25, 0.0)
    """
    top = max((value for _, value in bars.items if math.isfinite(value)), default=0.0)
    return tuple(_length(value, top) for _, value in bars.items)


def _length(value: float, top: float) -> float:
    if not value > 0:  # NaN too
        return 0.0
    return min(value / top, 1.0) if math.isfinite(value) else 1.0


def bars_svg(bars: Bars) -> str:
    """Draw bars as one ``<svg>`` element to be put inside a page.

    Text keeps its size whatever the width: labels stand in a left column as wide as the longest
    needs (long ones are broken over several lines, never cut), values stand right of their bar,
    and only the bars stretch. Colours come from the page's ``.bar`` class; without it, bars are
    blue (Okabe and Ito's #0072B2, told apart by every kind of colour vision).

    Returns:
        an ``<svg role="img">`` whose ``<title>`` reads all labels and values aloud.
    """
    labels = [_wrapped(label) for label, _ in bars.items]
    values = [measure_text(value, bars.unit) for _, value in bars.items]
    widest = max((_columns(line) for lines in labels for line in lines), default=0)
    left = math.ceil(widest * _LABEL_ADVANCE) + 10
    right = math.ceil(max(map(len, values), default=0) * _VALUE_ADVANCE) + 8
    rows, top = [], 0
    for lines, value, length in zip(labels, values, bar_lengths(bars), strict=True):
        height = max(_BAR, _LINE * len(lines))
        middle = top + height / 2
        rows.append(_label(lines, middle) + _bar(length, value, middle))
        top += height + _GAP
    spoken = "; ".join(
        f"{label}: {value}" for (label, _), value in zip(bars.items, values, strict=True)
    )
    name = escape(f"{bars.title}. {spoken}" if spoken else bars.title)
    # The box of the picture is that of the bars alone: percentages are of what they can have,
    # and text overflows into the margins kept for it.
    style = f"width:calc(100% - {left + right}px);margin-left:{left}px;overflow:visible"
    return (
        f'<svg class="bars" role="img" aria-label="{name}" height="{max(top - _GAP, 0)}" '
        f'style="{style}" font-size="12"><title>{name}</title>{"".join(rows)}</svg>'
    )


def _label(lines: list[str], middle: float) -> str:
    first = middle - _LINE * (len(lines) - 1) / 2 + _BASE
    spans = "".join(
        f'<tspan x="-10" y="{first + index * _LINE:g}">{escape(line)}</tspan>'
        for index, line in enumerate(lines)
    )
    return (
        f'<text text-anchor="end" fill="currentColor" font-family="ui-monospace, monospace">'
        f"{spans}</text>"
    )


def _bar(length: float, value: str, middle: float) -> str:
    percent = f"{max(100 * length, 0.3 if length else 0.0):.4g}%"
    return (
        f'<rect class="bar" y="{middle - _BAR / 2:g}" width="{percent}" height="{_BAR}" rx="2" '
        f'fill="#0072B2"/>'
        f'<text x="{percent}" dx="6" y="{middle + _BASE:g}" fill="currentColor">'
        f"{escape(value)}</text>"
    )


def _columns(text: str) -> int:
    return sum(1 + (unicodedata.east_asian_width(char) in "FW") for char in text)


def _wrapped(label: str) -> list[str]:
    """Break a label into lines that fit: where a name has a joint, or anywhere if it has none."""
    lines = [""]
    for piece in _JOINT.split(label):
        if lines[-1] and _columns(lines[-1] + piece) > _LABEL_COLUMNS:
            lines.append("")
        for char in piece:
            if _columns(lines[-1] + char) > _LABEL_COLUMNS:
                lines.append("")
            lines[-1] += char
    return lines
