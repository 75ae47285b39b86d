"""How a model was captured, to read: attempts, patches, rewritten code."""

from __future__ import annotations

from typing import Any

from torchferry.capturer import Captured, patch_rows
from torchferry.report.model import Cell, Facts, Section, Source, Table
from torchferry.values.step import state_text

__all__ = ["capture_data", "capture_sections"]


def capture_sections(captured: Captured, *, brief: bool = True) -> tuple[Section, ...]:
    """Every strategy of torch.export with what it said, and what was done for the one that worked.

    Args:
        captured: the program and the attempts at it.
        brief: whether the short form of a report shows the attempts.
    """
    rows = tuple(
        (
            one.strategy,
            Cell("worked", "good") if one.error is None else Cell("failed", "bad"),
            one.error or ", ".join(one.patches),
        )
        for one in captured.attempts
    )
    columns = ("strategy of torch.export", "outcome", "reason, or patches that were hit")
    sections = [Section("Capture", (Table(columns, rows),), brief=brief)]
    if captured.patches:
        sections.append(Section("Patches", (_patches(captured),), brief=brief))
    if captured.joined:
        text = (
            f"The model returns {', '.join(captured.joined)} as a list with a tensor for each "
            "item; the exported one as a list of one tensor, the items one after the other"
        )
        sections.append(Section("Joined outputs", (Facts((("joined", text),)),), brief=brief))
    if captured.state:
        text = ", ".join(f"{name} ({state_text(one)})" for name, one in captured.state.items())
        sections.append(Section("State", (Facts((("state lifted", text),)),)))
    if captured.repeated.layers:
        sections.append(Section("Identical layers", _repeated(captured)))
    if captured.rewritten:
        sections.append(Section("Rewritten", (Source("", captured.rewritten),)))
    if captured.declined:
        lines = Table(("left as it is, and why",), tuple((one,) for one in captured.declined))
        sections.append(Section("Not rewritten", (lines,)))
    return tuple(sections)


def _patches(captured: Captured) -> Table:
    rows = {row.subject: row for row in patch_rows() if row.subject in captured.patches}
    return Table(
        ("patch", "why", "upstream"),
        tuple((one.subject, one.why, one.link) for one in rows.values()),
    )


def _repeated(captured: Captured) -> tuple[Facts | Table, ...]:
    reasons = [(path, reason) for path, reason in captured.repeated.reasons if reason]
    facts = Facts((("traced once", str(captured.repeated)),))
    return (facts, Table(("traced itself", "why"), tuple(reasons))) if reasons else (facts,)


def capture_data(captured: Captured) -> dict[str, Any]:
    """The same facts for programs."""
    return {
        "attempts": [
            {"strategy": a.strategy, "error": a.error, "patches": list(a.patches)}
            for a in captured.attempts
        ],
        "patches": list(captured.patches),
        "registered": list(captured.registered),
        "changed": [
            {"name": c.name, "before": c.before, "after": c.after} for c in captured.changed
        ],
        "rewritten": captured.rewritten,
        "joined": list(captured.joined),
        "declined": list(captured.declined),
        "repeated": {
            "layers": captured.repeated.layers,
            "like": dict(captured.repeated.like),
            "reasons": dict(captured.repeated.reasons),
        },
        "state": {name: state_text(value) for name, value in captured.state.items()},
    }
