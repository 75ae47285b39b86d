"""A report as a piece of HTML for notebooks: what the terminal shows, without a script."""

from __future__ import annotations

from dataclasses import replace

from torchferry.report.html import environment, shortened
from torchferry.report.model import Report

__all__ = ["MAX_BYTES", "render"]

MAX_BYTES = 60_000  # a notebook keeps what it shows, in every version of its file
_ROWS = (100, 30, 10, 3)  # rows shown of a block, tried until the piece is small enough


def render(report: Report) -> str:
    """Make the piece: one element with styles of its own, nothing loaded from anywhere.

    It has the brief sections, as the terminal. Colours are those of the notebook around it, light
    or dark; what is good or bad has a mark besides. Long tables are cut, and say so.
    """
    brief = replace(report, sections=tuple(one for one in report.sections if one.brief))
    template = environment().get_template("fragment.html")
    text = ""
    for rows in _ROWS:
        text = template.render(report=shortened(brief, rows))
        if len(text.encode("utf-8", "backslashreplace")) <= MAX_BYTES:
            break
    return text
