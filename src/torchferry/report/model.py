"""What a report is made of: plain data, no torch, no onnx.

A command computes a `Report`; `text`, `json` and `html` show it. Blocks are frozen and hold
ready-to-read values, so every renderer shows the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Bars", "Block", "Cell", "Facts", "Report", "Section", "Source", "Table", "Tone"]

Tone = Literal["good", "bad", "warn", "muted"]


@dataclass(frozen=True)
class Cell:
    """One table cell; its tone says how to read it. Plain ``str`` or numbers are neutral cells."""

    text: str
    tone: Tone | None = None


@dataclass(frozen=True)
class Facts:
    """Label and value pairs, one a line."""

    pairs: tuple[tuple[str, str | Cell], ...]
    title: str = ""


@dataclass(frozen=True)
class Table:
    """Rows under headings; numbers are right-aligned by the renderers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell | str | int | float, ...], ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, one a row: ``(label, value)`` in ``unit``."""

    title: str
    unit: str
    items: tuple[tuple[str, float], ...]
    note: str = ""


@dataclass(frozen=True)
class Source:
    """Preformatted text: a signature, code to paste, an error."""

    title: str
    text: str


Block = Facts | Table | Bars | Source


@dataclass(frozen=True)
class Section:
    """A heading and its blocks.

    Attributes:
        brief: whether the terminal shows it too; the page always does.
    """

    title: str
    blocks: tuple[Block, ...]
    brief: bool = True


@dataclass(frozen=True)
class Report:
    """The result of a command.

    Attributes:
        title: what was done to what: ``export zoo:tiny-llm``.
        ok: whether every check passed; decides the exit code (0 or 1).
        verdict: one sentence that says so.
        sections: what to read, most important first.
        problems: one sentence a fault: what, where, what to do. Empty when ``ok``.
        next_steps: what one may do now.
        data: the same facts for programs; JSON types only.
    """

    title: str
    ok: bool
    verdict: str
    sections: tuple[Section, ...] = ()
    problems: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
