"""What the benchmarks share: a table, and where their results are kept, beside this file."""

from __future__ import annotations

import json
import platform
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

__all__ = ["machine", "markdown", "save"]

HERE = Path(__file__).resolve().parent


def machine() -> str:
    """What the figures were measured on."""
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def markdown(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> str:
    """A Markdown table that also reads well on a terminal.

    Args:
        head: titles of the columns.
        rows: one text a column.
        right: columns of figures, by number.
    """
    lines = [head, *rows]
    widths = [max(3, *(len(line[column]) for line in lines)) for column in range(len(head))]
    text = [
        " | ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    marks = ["-" * (w - 1) + ":" if c in right else "-" * w for c, w in enumerate(widths)]
    return "\n".join(f"| {line} |" for line in (text[0], " | ".join(marks), *text[1:]))


def save(name: str, data: Any, told: str) -> None:
    """Write NAME.json, and the section of RESULTS.md; the other sections stay as they are.

    Args:
        name: of the benchmark.
        data: JSON types.
        told: what stands under the title.
    """
    (HERE / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    results = HERE / "RESULTS.md"
    old = results.read_text("utf-8") if results.exists() else "# Results of the benchmarks\n"
    title, *sections = [part.strip() for part in old.split("\n## ")]
    kept = [part for part in sections if not part.startswith(f"{name}\n")]
    written = [title, *sorted([*kept, f"{name}\n\n{told}"])]
    results.write_text("\n\n## ".join(written) + "\n", "utf-8")
