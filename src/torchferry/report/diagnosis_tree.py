"""The modules of a diagnosis, to look around in: each with its verdict and what it was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torchferry.report.explorer import Explorer, Item
from torchferry.report.model import Tone

if TYPE_CHECKING:
    from torchferry.diagnoser import Diagnosis, ModelDiagnoseOutput, StatusExport

__all__ = ["module_tree", "tone_of"]

_MOST = 300  # characters of what a call is given
_NOTE = (
    "`T1s2x5` is a tensor of ONNX's type 1, float32, with the shape 2, 5; `T7` is int64, "
    "`T9` bool, `T10` float16"
)
_LEGEND: tuple[tuple[Tone | None, str], ...] = (
    ("good", "can be exported"),
    ("bad", "at fault"),
    ("warn", "fails because of a part"),
    ("muted", "not tried: what it is a part of works, or it was never called"),
)


def module_tree(found: Diagnosis) -> Explorer:
    """Every module of the model, in the order in which they stand."""
    items = [_item(piece) for piece in found.tree.walk()]
    first = next((place for place, item in enumerate(items) if item.tone == "bad"), 0)
    text = f"{len(items)} modules; the HTML page shows them"
    return Explorer("", text, tuple(items), first=first, legend=_LEGEND, note=_NOTE)


def tone_of(status: StatusExport | None) -> Tone:
    """How a verdict is shown."""
    if status is None or not (status.is_ok() or status.failed):
        return "muted"
    if status.failed:
        return "bad" if not status.blame else "warn"
    return "warn" if status.blame else "good"


def _item(piece: ModelDiagnoseOutput) -> Item:
    facts = tuple((label, text) for label, text in _facts(piece) if text)
    tone = tone_of(piece.exporter_status)
    return Item(piece.name, piece.title, piece.path, tone, facts=facts)


def _facts(piece: ModelDiagnoseOutput) -> Iterator[tuple[str, str]]:
    from torchferry.values.describe import string_type

    status = piece.exporter_status
    yield "module", piece.path or "the model itself"
    yield "method", "" if piece.method_name == "forward" else piece.method_name
    if status is not None:
        yield "verdict", status.pretty_text() if status.is_ok() else str(status.status)
        yield "step", "" if status.is_ok() else status.step
        yield "reason", "" if status.is_ok() else (status.reason.splitlines() or [""])[0]
        yield "line", status.line or ""
        yield "what to do", status.advice
        yield "because of", ", ".join(status.blame)
        for note in status.notes:
            yield "note", note
    yield "calls", str(len(piece.calls))
    for call in piece.calls[:2]:
        yield "is given", _cut(string_type((call.args, call.kwargs), with_shape=True))
        yield "returns", _cut(string_type(call.outputs, with_shape=True))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[:_MOST]} …"
