"""A block of a page in which one looks around: a tree of modules, a graph, what is at each node.

The items travel compressed within the page, and a script draws the few that one looks at, so that
thousands of them stay quick. Where there is no script the tables of the report hold the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from torchferry.report.model import Source, Tone

__all__ = ["Explorer", "Item", "Spread", "explorer_payload", "script", "script_hash", "smaller"]

_TONES: tuple[Tone | None, ...] = (None, "good", "bad", "warn", "muted")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NEAR = 600  # items that are kept whole when a page gets too large: those next to the first

_MORE = "the JSON report has all"
_KEPT = ("line", "verdict", "difference", "reason")  # facts that are kept longest


@dataclass(frozen=True)
class Spread:
    """Two histograms over one range.

    Attributes:
        low: where the first part begins.
        high: where the last part ends.
        first: counts, one a part.
        second: the same of the other side; empty where there is none.
    """

    low: float
    high: float
    first: tuple[int, ...]
    second: tuple[int, ...] = ()


@dataclass(frozen=True)
class Item:
    """One thing to look at.

    Attributes:
        name: what it is called.
        kind: its operator or class.
        path: where it stands in the tree: ``layers.0.mlp``.
        tone: how it fared; ``muted``: nothing is known of it.
        heat: 0 to 1, how strongly it is coloured.
        reads: places of the items that it takes something from, all before it.
        facts: labels and texts.
        sides: rows of a table: a label and what each of two sides has.
        spread: the histograms of both sides.
    """

    name: str
    kind: str
    path: str
    tone: Tone | None = None
    heat: float = 0.0
    reads: tuple[int, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    sides: tuple[tuple[str, str, str], ...] = ()
    spread: Spread | None = None


@dataclass(frozen=True)
class Explorer(Source):
    """Items in a tree by their paths, and in a graph where they read one another.

    Attributes:
        items: in the order of computation.
        heads: what the two sides are called.
        first: place of the item that is shown when the page opens.
        legend: what the colours mean: tone and words.
        note: what stands below.
    """

    items: tuple[Item, ...] = ()
    heads: tuple[str, str] = ("", "")
    first: int = 0
    legend: tuple[tuple[Tone | None, str], ...] = ()
    note: str = ""


def explorer_payload(block: Explorer) -> str:
    """The items as the script reads them: JSON, deflated (RFC 1951), in base64."""
    items = block.items
    kinds, paths = _numbered(i.kind for i in items), _numbered(i.path for i in items)
    data = {
        "heads": block.heads,
        "first": block.first,
        "legend": [[tone or "", words] for tone, words in block.legend],
        "kinds": list(kinds),
        "paths": list(paths),
        "names": [item.name for item in items],
        "kind": [kinds[item.kind] for item in items],
        "path": [paths[item.path] for item in items],
        "tone": [_TONES.index(item.tone) for item in items],
        "heat": [round(99 * item.heat) for item in items],
        "reads": [[place - one for one in item.reads] for place, item in enumerate(items)],
        "facts": [item.facts for item in items],
        "sides": [item.sides for item in items],
        "spread": [_spread(item.spread) for item in items],
    }
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(text.encode("utf-8", "backslashreplace")) + packer.flush()
    return base64.b64encode(packed).decode("ascii")


def _numbered(texts: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        found.setdefault(text, len(found))
    return found


def _spread(spread: Spread | None) -> Any:
    """Heights of 0 to 35 as letters: nobody sees more."""
    if spread is None:
        return 0
    top = max((*spread.first, *spread.second, 1))
    first, second = (_heights(side, top) for side in (spread.first, spread.second))
    ends = [float(f"{end:.3g}") for end in (spread.low, spread.high)]
    return [*ends, first, "=" if first == second else second]


def _heights(counts: Sequence[int], top: int) -> str:
    # What is there at all can be seen.
    return "".join(_DIGITS[-(-count * 35 // top)] for count in counts)


def smaller(block: Explorer, rows: int) -> Explorer:
    """The same with less said of the items that are far from the first, for a smaller page.

    Args:
        block: stays as it is.
        rows: of the page's tables, of which there are fewer the less room there is.
    """
    near = range(block.first - _NEAR // 2, block.first + _NEAR // 2)
    items = list(block.items)
    for place, item in enumerate(items):
        if place not in near:
            facts = [one for one in item.facts if rows >= 1000 or one[0] in _KEPT]
            items[place] = replace(item, spread=None, sides=(), facts=tuple(facts))
    if rows <= 100:
        start = max(0, min(near.start, len(items) - rows * _NEAR // 10))
        kept = range(start, min(len(items), start + rows * _NEAR // 10))
        items = [
            replace(items[p], reads=tuple(r - start for r in items[p].reads if r in kept))
            for p in kept
        ]
        note = f"{len(kept)} of {len(block.items)} stand here, those around the first; {_MORE}"
        return replace(block, items=tuple(items), first=block.first - start, note=note)
    return replace(block, items=tuple(items), note=f"less is said far from the first; {_MORE}")


@cache
def script() -> str:
    """The script of the page."""
    return (files("torchferry.report") / "templates" / "explorer.js").read_text("utf-8")


@cache
def script_hash() -> str:
    """What the page's policy lets run: this script and no other."""
    digest = hashlib.sha256(script().encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode('ascii')}"
