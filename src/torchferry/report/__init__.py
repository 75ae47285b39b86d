"""Something to read: a `Report` as text, as JSON, as one self-contained HTML page.

`model` holds what a report is made of; `text.render`, `json.dump` and `html.dump` show it.
"""

from __future__ import annotations

from torchferry.report.model import (
    Bars,
    Block,
    Cell,
    Facts,
    Report,
    Section,
    Source,
    Table,
    Tone,
)

__all__ = ["Bars", "Block", "Cell", "Facts", "Report", "Section", "Source", "Table", "Tone"]
