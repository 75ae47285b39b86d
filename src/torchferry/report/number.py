"""How numbers are written in a report, the same in every renderer."""

from __future__ import annotations

import math
import re

from torchferry.report.model import Cell, Table

__all__ = ["as_cell", "measure_text", "number_text", "numeric_columns"]

_BLANK = frozenset({"", "-", "\N{EN DASH}", "—", "n/a"})
_NUMBER = re.compile(
    r"[<>≤≥~±]? ?[-+]?"
    r"(?:inf|nan|(?:\d+(?:,\d{3})*)(?:\.\d+)?(?:e[-+]?\d+)?)"
    r"(?: ?(?:%|\u00d7|[A-Za-zµ]{1,5}(?:/s)?))?",
)


def number_text(value: float) -> str:
    """Write a number for a reader: whole numbers as they are, others with four digits.

    >>> [number_text(v) for v in (32000, 0.25, 3.5762786865234375e-07, 15321.7, float("nan"))]
    ['32000', '0.25', '3.576e-07', '15322', 'nan']
    """
    if isinstance(value, int) or not math.isfinite(value):
        return str(value)
    if 1e4 <= abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}"


def measure_text(value: float, unit: str) -> str:
    """Write a number and its unit.

    >>> measure_text(1.5, "s"), measure_text(3, "")
    ('1.5 s', '3')
    """
    return f"{number_text(value)} {unit}".rstrip()


def as_cell(value: Cell | str | float) -> Cell:
    """Give any table entry the one form renderers deal with.

    >>> as_cell(0.5)
    Cell(text='0.5', tone=None)
    """
    if isinstance(value, Cell):
        return value
    if isinstance(value, int | float):
        return Cell(number_text(value))
    return Cell(str(value))


def numeric_columns(table: Table) -> tuple[bool, ...]:
    """Tell which columns hold numbers, alone or with a unit, and are to be right-aligned.

    Blank cells (empty, ``-``, ``n/a``) go with anything; a column of nothing else is text.

    >>> numeric_columns(Table(("op", "n", "time"), (("Add", 3, "1.5 ms"), ("Mul", 12, "-"))))
    (False, True, True)
    """
    numeric = []
    for index in range(len(table.columns)):
        texts = [as_cell(row[index]).text.strip() for row in table.rows if index < len(row)]
        texts = [text for text in texts if text not in _BLANK]
        numeric.append(bool(texts) and all(_NUMBER.fullmatch(text) for text in texts))
    return tuple(numeric)
