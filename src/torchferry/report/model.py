"""What a report is made of: plain data, no torch, no onnx.

A command computes a `Report`; `text`, `json` and `html` show it. Blocks are frozen and hold
ready-to-read values, so every renderer shows the same thing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Bars", "Block", "Cell", "Facts", "Report", "Section", "Source", "Table", "Tone"]

_LONG = 120  # characters of a verdict in repr()

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


@dataclass(frozen=True, repr=False)
class Report:
    """The result of a command; printed, or shown by a notebook, it is the text of the command.

    Attributes:
        title: what was done to what: ``export zoo:tiny-llm``.
        ok: whether every check passed; decides the exit code (0 or 1).
        verdict: one sentence that says so.
        sections: what to read, most important first.
        problems: one sentence a fault: what, where, what to do. Empty when ``ok``.
        next_steps: what one may do now.
        data: the same facts for programs; JSON types only.

    >>> report = Report("check", ok=False, verdict="1 of 2 outputs differs", problems=("no bias",))
    >>> report
    Report('check', ok=False, verdict='1 of 2 outputs differs')
    >>> print(str(report).splitlines()[0])
    ✗ FAILED: 1 of 2 outputs differs
    """

    title: str
    ok: bool
    verdict: str
    sections: tuple[Section, ...] = ()
    problems: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The title and the verdict, cut where they are long."""
        verdict = self.verdict if len(self.verdict) <= _LONG else f"{self.verdict[:_LONG]}…"
        return f"Report({self.title!r}, ok={self.ok}, verdict={verdict!r})"

    # The renderers are imported where they are needed: they know this module, which is data.

    def __str__(self) -> str:
        """What the command line prints where it is no terminal."""
        from torchferry.report.text import plain

        return plain(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self) if cycle else str(self))

    def _repr_html_(self) -> str:
        from torchferry.report.fragment import render

        return render(self)
