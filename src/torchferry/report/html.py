"""A report as one self-contained HTML page."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from torchferry.report.explorer import (
    Explorer,
    explorer_payload,
    script,
    script_hash,
    smaller,
)
from torchferry.report.figure import bars_svg
from torchferry.report.file import write_whole
from torchferry.report.model import Bars, Block, Report, Source, Table
from torchferry.report.number import as_cell, numeric_columns

__all__ = ["MAX_BYTES", "dump", "environment", "render", "shortened"]

MAX_BYTES = 300_000  # a page travels by mail and opens at once
_ROWS = (None, 1000, 300, 100, 30)  # rows shown of a block, tried until the page is small enough
_JOINTS = re.compile(r"(?<=[._/:])(?=[A-Za-z])")
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def render(report: Report) -> str:
    """Make the page: inline styles and pictures, nothing loaded from anywhere.

    There is a script only in a page with an `Explorer`, and no other runs there.

    The page is kept under `MAX_BYTES`: rows of very long tables, bars and sources are left out
    from the end, and a note says how many. ``<body data-verdict="ok|failed">`` and the element
    ``#verdict`` tell a program how it went.
    """
    page, template = "", environment().get_template("page.html")
    for rows in _ROWS:
        shown = report if rows is None else shortened(report, rows)
        page = template.render(report=shown)
        if len(page.encode("utf-8", "backslashreplace")) <= MAX_BYTES:
            break
    return page


def dump(report: Report, file: Path) -> None:
    """Write the page to a file, whole or not at all.

    Raises:
        UsageError: the file cannot be written.
    """
    write_whole(file, render(report))


@cache
def environment() -> Environment:
    """The templates of this room, and what they may call."""
    made = Environment(
        loader=PackageLoader("torchferry.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        as_cell=as_cell,
        breakable=_breakable,
        bars_svg=lambda bars: Markup(bars_svg(bars)),  # noqa: S704 - it escapes its own text
        explores=_explores,
        payload=explorer_payload,
        prose=_prose,
        script=lambda: Markup(script()),  # noqa: S704 - our own, with nothing of the report in it
        script_hash=lambda: Markup(script_hash()),  # noqa: S704 - letters and digits
        kind=lambda block: type(block).__name__,
        numeric_columns=numeric_columns,
    )
    return made


def _prose(text: str) -> Markup:
    """Show what stands between backticks as code, as the reader of a README would."""
    parts = [escape(part) for part in _CODE.split(text)]
    parts[1::2] = [Markup("<code>{}</code>").format(code) for code in parts[1::2]]
    return Markup("").join(parts)


def _breakable(name: str) -> Markup:
    """A path or a long name, with places where a line may end."""
    return Markup("<wbr>").join(_JOINTS.split(name))


def _explores(report: Report) -> bool:
    return any(isinstance(b, Explorer) for section in report.sections for b in section.blocks)


def shortened(report: Report, rows: int) -> Report:
    """A report whose blocks have at most so many rows, bars or lines; notes say what is left out.

    Args:
        report: any.
        rows: at most, of each block.
    """
    sections = tuple(
        replace(section, blocks=tuple(_cut(block, rows) for block in section.blocks))
        for section in report.sections
    )
    return replace(report, sections=sections)


def _cut(block: Block, rows: int) -> Block:
    match block:
        case Table() if len(block.rows) > rows:
            note = _left_out(len(block.rows) - rows, "rows", block.note)
            return replace(block, rows=block.rows[:rows], note=note)
        case Bars() if len(block.items) > rows:
            note = _left_out(len(block.items) - rows, "bars", block.note)
            return replace(block, items=block.items[:rows], note=note)
        case Explorer():
            return smaller(block, rows)
        case Source():
            lines = block.text.splitlines()
            if len(lines) > rows:
                text = "\n".join([*lines[:rows], _left_out(len(lines) - rows, "lines", "")])
                return replace(block, text=text)
    return block


def _left_out(count: int, what: str, note: str) -> str:
    return (
        f"{count} more {what} are left out of this page; the JSON report has all. {note}".strip()
    )
