"""The index of errors: every message of the package, with its code, cause and cure."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

from rst import heading, prose

__all__ = ["Kind", "kind_of", "kinds", "rows", "text", "unexplained"]

DOCS = Path(__file__).resolve().parents[1]
TABLE = DOCS.parent / "src/torchferry/messages.txt"
CLASSES = ("U", "C", "V", "O", "L", "R", "M", "B")

Kind = dict[str, str]
"""``title``, ``cause`` and ``cure`` of the messages of some files."""


@cache
def kinds() -> dict[str, Kind]:
    """By the beginning of a file's name, or by the code of a message: its title is its file's."""
    found: dict[str, Kind] = tomllib.loads((DOCS / "errors.toml").read_text("utf-8"))
    for code, file, _ in rows():
        if code in found and (kind := kind_of(file, within=found)):
            found[code] = {"title": kind["title"], **found[code]}
    return found


def rows() -> list[tuple[str, str, str]]:
    """Code, file and template of each message."""
    lines = TABLE.read_text("utf-8").splitlines()
    table = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(code, file, template) for code, file, template in table]


def kind_of(file: str, code: str = "", within: dict[str, Kind] | None = None) -> Kind | None:
    """Cause and cure of a message, or else of all those of its file, if there are any."""
    known = kinds() if within is None else within
    parts = file.split("/")
    names = [code, *("/".join(parts[:count]) for count in range(len(parts), 0, -1))]
    return next((known[name] for name in names if name in known), None)


def unexplained() -> list[str]:
    """Codes of messages that no cause and cure is written for."""
    return [code for code, file, _ in rows() if kind_of(file, code) is None]


def text() -> str:
    """The classes first, then the messages in parts by what they are about."""
    parts: dict[str, list[tuple[Kind, list[tuple[str, str, str]]]]] = defaultdict(list)
    for row in rows():
        kind = kind_of(row[1])
        if kind is None:
            continue
        same = [entries for other, entries in parts[kind["title"]] if other is kind]
        if same:
            same[0].append(row)
        else:
            parts[kind["title"]].append((kind, [row]))
    index = heading("By message", "=", "errors-by-message")
    return _classes() + index + "".join(_part(title, parts[title]) for title in sorted(parts))


def _classes() -> str:
    out = heading("By class", "=", "errors-by-class")
    out += "A message with no code of its own has that of its class.\n\n"
    for letter in CLASSES:
        kind = kinds()[f"classes/{letter}"]
        out += f".. message:: TF-{letter}\n\n   `{kind['title']}`: {kind['cause']}\n\n"
        out += f"   *Cure:* {kind['cure']}\n\n"
    return out


def _part(title: str, groups: list[tuple[Kind, list[tuple[str, str, str]]]]) -> str:
    """Messages with a cause of their own first, then those that share one."""
    out = heading(title, "-")
    for kind, entries in groups:
        shared = ""
        for code, file, template in entries:
            entry = f".. message:: {code}\n\n   {prose(template.replace('{}', '…'))}\n\n"
            own = kind_of(file, code)
            if own is None or own is kind:
                shared += entry
            else:
                out += f"{entry}   *Cause:* {own['cause']}\n\n   *Cure:* {own['cure']}\n\n"
        if shared:
            out += f"*Cause:* {kind['cause']}\n\n*Cure:* {kind['cure']}\n\n{shared}"
    return out
