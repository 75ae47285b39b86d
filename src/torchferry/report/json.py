"""A report for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchferry.report.file import write_whole
from torchferry.report.model import Bars, Block, Cell, Facts, Report, Section, Source, Table

__all__ = ["SCHEMA", "dump", "to_json"]

SCHEMA = "torchferry.report/1"


def to_json(report: Report) -> dict[str, Any]:
    """Turn a report into JSON types.

    The schema, ``torchferry.report/1``::

        {"schema": "torchferry.report/1",
         "title": str, "ok": bool, "verdict": str,
         "problems": [str], "next_steps": [str],
         "data": {...},                     # the command's own facts
         "sections": [{"title": str, "brief": bool, "blocks": [BLOCK]}]}

        BLOCK = {"kind": "facts", "title": str, "pairs": [[str, CELL]]}
              | {"kind": "table", "title": str, "columns": [str], "rows": [[CELL]], "note": str}
              | {"kind": "bars", "title": str, "unit": str, "items": [[str, NUMBER]], "note": str}
              | {"kind": "source", "title": str, "text": str}
              | {"kind": "plot", "title": str, "text": str}
        CELL = str | NUMBER | {"text": str, "tone": "good" | "bad" | "warn" | "muted" | null}
        NUMBER = a JSON number, or one of the strings "NaN", "Infinity", "-Infinity"

    JSON has no number for those three; Python's ``float`` reads the strings back.

    Raises:
        TypeError: ``report.data`` or a cell holds something JSON does not know.

    >>> to_json(Report("t", True, "v", data={"worst": float("inf")}))["data"]
    {'worst': 'Infinity'}
    """
    return {
        "schema": SCHEMA,
        "title": report.title,
        "ok": report.ok,
        "verdict": report.verdict,
        "problems": list(report.problems),
        "next_steps": list(report.next_steps),
        "data": _plain(report.data, "data"),
        "sections": [_section(section) for section in report.sections],
    }


def dump(report: Report, file: Path) -> None:
    """Write `to_json` of a report to a file, whole or not at all.

    Raises:
        UsageError: the file cannot be written.
        TypeError: as `to_json`.
    """
    text = json.dumps(to_json(report), indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(file, text + "\n")


def _section(section: Section) -> dict[str, Any]:
    blocks = [_block(block, f"section {section.title!r}") for block in section.blocks]
    return {"title": section.title, "brief": section.brief, "blocks": blocks}


def _block(block: Block, where: str) -> dict[str, Any]:
    match block:
        case Facts(pairs, title):
            fields: dict[str, Any] = {"title": title, "pairs": pairs}
        case Table(columns, rows, title, note):
            fields = {"title": title, "columns": columns, "rows": rows, "note": note}
        case Bars(title, unit, items, note):
            fields = {"title": title, "unit": unit, "items": items, "note": note}
        case Source(title, text):
            fields = {"title": title, "text": text}
    return {"kind": type(block).__name__.lower(), **_plain(fields, where)}


def _plain(value: object, where: str) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else _infinite(value)
        case Cell(text, tone):
            return {"text": text, "tone": tone}
        case Mapping():
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"{where}: key {key!r} is not a string")
            return {key: _plain(item, f"{where}[{key!r}]") for key, item in value.items()}
        case Sequence() if not isinstance(value, bytes | bytearray | memoryview):
            return [_plain(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TypeError(
        f"{where} is a {type(value).__name__}, which JSON does not know; turn it into a string, "
        f"a number, a list or a dict"
    )


def _infinite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
