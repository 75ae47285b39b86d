"""A value of the API as a piece of HTML for notebooks, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

__all__ = ["table_html"]

_MOST = 200  # rows: a notebook keeps what it shows in its file
_CELL = "border-bottom:1px solid rgba(128,128,128,.3);padding:2px 12px 2px 0;text-align:left"


def table_html(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return one element with a title and a table; colours are those of the page around it.

    Args:
        title: the first line.
        columns: their headings.
        rows: what ``str`` shows of each cell; rows beyond 200 are counted.

    >>> "a &lt; b" in table_html("a < b", ("name",), [("x",)])
    True
    """
    shown = list(rows)
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(str(v))}</td>' for v in row) + "</tr>"
        for row in shown[:_MOST]
    )
    more = f"<div>… and {len(shown) - _MOST} more rows</div>" if len(shown) > _MOST else ""
    return (
        '<div class="tf-value" style="color:inherit;font-size:13px;overflow-x:auto">'
        f"<div><b>{escape(title)}</b></div>"
        f'<table style="border-collapse:collapse;color:inherit"><tr>{head}</tr>{body}</table>'
        f"{more}</div>"
    )
