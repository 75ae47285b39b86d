"""Pieces of reStructuredText."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["code", "heading", "indent", "prose", "table"]


def heading(title: str, line: str, anchor: str = "") -> str:
    """A title over a line of one character, with an anchor before it."""
    above = f".. _{anchor}:\n\n" if anchor else ""
    return f"{above}{title}\n{line * (len(title) + 2)}\n\n"


def indent(text: str, columns: int = 3) -> str:
    """The text, moved to the right."""
    return "\n".join(f"{' ' * columns}{line}".rstrip() for line in text.splitlines())


def code(text: str) -> str:
    """Text as code within a line; nothing in it is read as markup."""
    inside = " ".join(text.split()).replace("``", "'")
    return f"``{inside}``" if inside else ""


def prose(text: str) -> str:
    """Text of the code as a sentence of a page: stars, bars and underscores mean themselves."""
    out = text.replace("\\", "\\\\")
    for sign in ("*", "|", "`"):
        out = out.replace(sign, f"\\{sign}")
    return out.replace("_ ", "\\_ ").replace("_,", "\\_,").replace("_.", "\\_.")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], widths: str = "auto") -> str:
    """A list table; cells are reStructuredText."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        f"   :widths: {widths}",
        "   :class: wide",
        "",
    ]
    for row in (columns, *rows):
        for position, cell in enumerate(row):
            lines.append(f"   {'* -' if position == 0 else '  -'} {' '.join(cell.split())}")
    return "\n".join(lines) + "\n\n"
