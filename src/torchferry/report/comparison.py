"""The report of two models side by side: what differs first, where, and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torchferry.report.compared_graph import compared_graph, severity
from torchferry.report.compared_weights import (
    weight_problems,
    weight_rows,
    weight_table,
    weight_verdict,
)
from torchferry.report.depth import Mark, error_plot
from torchferry.report.model import Cell, Facts, Report, Section, Table, Tone
from torchferry.report.number import number_text
from torchferry.report.quantity import counted

if TYPE_CHECKING:
    from torchferry.comparer import Comparison, Row
    from torchferry.values.difference import Discrepancy

__all__ = ["comparison_report"]

_AROUND = 12  # rows shown before and after the first divergence
_BEYOND = 150  # rows beyond tolerance that are shown
_WHOLE = 300  # rows that are shown without leaving any out
_LAYERS = 80  # rows of the table of layers
_TONES: dict[str, Tone | None] = {
    "differs": "bad", "failed": "bad", "random": "muted", "incomparable": "warn"
}  # fmt: skip


def comparison_report(title: str, found: Comparison) -> Report:
    """Make a report that stays small however many values were compared; ``data`` has them all.

    Args:
        title: what was compared with what.
        found: what `torchferry.compare` gave.
    """
    sections = []
    if found.weights:
        sections.append(Section("Weights", (weight_table(found.weights),)))
    if found.first is not None:
        sections.append(Section("First divergence", (_first(found, found.first),)))
    if found.outputs:
        sections.append(Section("Outputs", (_outputs(found),)))
    if found.stages:
        sections.append(Section("Stages", (_stages(found),)))
    if found.rows:
        marks = [Mark(r.name, r.layer, r.relative, _TONES.get(r.verdict)) for r in found.rows]
        limit = found.tolerance.atol + found.tolerance.rtol
        plot = error_plot(
            "Error of each value, relative to its scale", marks, limit, _place(found)
        )
        sections.append(Section("Error by depth", (plot,)))
        if found.graph:
            sections.append(Section("Graph", (compared_graph(found),), brief=False))
        sections.append(Section("Layers", (_layers(found.rows),), brief=False))
        sections.append(Section("Values", (_values(found),), brief=False))
    return Report(
        title,
        ok=found.ok,
        verdict=_verdict(found),
        sections=tuple(sections),
        problems=_problems(found),
        next_steps=_next_steps(found),
        data=_data(found),
    )


def _verdict(found: Comparison) -> str:
    """The weights that differ come before any value: they are the first divergence."""
    if not found.weights:
        return _values_verdict(found)
    values = _values_verdict(replace(found, weights=()))
    return f"{weight_verdict(found.weights)}; of the values, {values}"


def _values_verdict(found: Comparison) -> str:
    number = sum(row.verdict == "equal" for row in found.rows)
    agree = counted(number, "value")
    if found.unaligned:
        agree = f"{number} of the graph's {counted(len(found.rows) + found.unaligned, 'value')}"
    others = [
        (sum(row.verdict == "random" for row in found.rows), "random"),
        (sum(row.verdict == "incomparable" for row in found.rows), "that cannot be compared"),
    ]
    more = "".join(f", {number} {what}" for number, what in others if number)
    if found.ok:
        said = found.verdict
        why = f" ({said.kind}: {said.evidence})" if said.evidence else ""
        if found.left_out:
            why += f"; {counted(found.left_out, 'set')} of inputs could not be compared"
        return f"all agree: {agree}{more}, and {counted(len(found.outputs), 'output')}{why}"
    if found.first is None and found.differing:
        return (
            f"{agree} agree when each stands alone{more}, and these outputs differ: "
            + ", ".join(found.differing)
        )
    if found.first is None and found.open:
        return f"no difference in {agree}{more}; not compared: {', '.join(found.open)}"
    if found.first is None:
        return f"{agree} agree with the captured program, which is not what eager mode computes"
    where = found.suspects[0] if len(found.suspects) == 1 else found.first.node
    outputs = f"{len(found.differing)} of {len(found.outputs)} outputs differ"
    if not found.differing:
        outputs = "the outputs agree" + (", as far as they can be compared" if found.open else "")
    count = counted(len(found.rows), "value")
    return f"the first of {count} to differ is {found.first.name}, made by {where}; {outputs}"


def _problems(found: Comparison) -> tuple[str, ...]:
    if found.ok:
        return ()
    said = weight_problems(found.weights)
    row = found.first
    if row is not None:
        place = f" in {row.layer}" if row.layer else ""
        line = f", at {row.line}" if row.line else ""
        why = row.note or row.said.reason or f"it is off by {number_text(row.said.abs)}"
        if not row.note and row.said.dnan:
            why = f"it has {_odd(row)}"
        nodes = ", ".join(found.suspects[:4]) or row.node
        said.append(f"{row.name}{place}{line}: {why}. Look at {nodes}")
    elif found.differing:
        said.append(f"{', '.join(found.differing)}: beyond tolerance; see the outputs")
    reasons = {r.name: f": {r.note}" for r in found.rows if r.verdict == "incomparable"}
    said += [f"{name} was not compared{reasons.get(name, '')}" for name in found.open[:3]]
    notes = [note for note in found.notes if row is None or not row.note or row.note not in note]
    return (*said, *notes)[:8]


def _next_steps(found: Comparison) -> tuple[str, ...]:
    if found.ok:
        return found.notes
    steps = []
    if any(row.verdict == "incomparable" for row in found.rows):
        steps.append("--against program knows each random number; --feed torch looks past them")
    if found.cut is not None:
        inputs = found.cut.with_suffix(".inputs.safetensors").name
        steps.append(f"{found.cut} shows it alone; {inputs} holds its inputs and what is expected")
    elif found.first is not None:
        steps.append("--cut first.onnx  writes the piece that differs, alone, with its inputs")
    if found.first is not None and found.first.local is None and found.first.got is not None:
        steps.append("--feed torch  tells each node's own error from what it inherited")
    if not found.stages and (found.first is not None or found.differing):
        steps.append("--bisect  tells which step of the way brought it in")
    return tuple(steps)


def _place(found: Comparison) -> int | None:
    names = [row.name for row in found.rows]
    return None if found.first is None else names.index(found.first.name)


def _first(found: Comparison, row: Row) -> Facts:
    got = "nothing" if row.got is None else str(row.got)
    pairs: list[tuple[str, str | Cell]] = [
        ("node", Cell(f"{row.op_type} {row.node}", "bad")),
        ("value", f"{row.name}: {got}, expected {row.expected}"),
    ]
    if len(found.suspects) == 1 and found.suspects[0] != row.node:
        pairs.append(("node at fault", Cell(found.suspects[0], "bad")))
    elif len(found.suspects) > 1:
        more = f" and {len(found.suspects) - 8} more" if len(found.suspects) > 8 else ""
        pairs.append(("made by", ", ".join(found.suspects[:8]) + more))
    pairs += [("module", row.layer or "the model itself"), ("stands for", row.origin)]
    pairs += [("line", row.line)] if row.line else []
    pairs.append(("difference", _said(row.error)))
    if row.local is not None:
        pairs.append(("by itself", _said(row.local)))
    if row.got is not None and _odd(row):
        pairs.append(("NaN, infinite", _odd(row)))
    pairs += [("reason", text) for text in (row.said.reason, row.note) if text]
    return Facts(tuple(pairs))


def _said(difference: Discrepancy) -> str:
    if not math.isfinite(difference.abs):
        return _one_sided(difference) or "cannot be told in numbers"
    at = "" if difference.argm is None else f", at {list(difference.argm)}"
    return (
        f"{number_text(difference.abs)} at most{at}, {number_text(difference.mean)} on average, "
        f"{number_text(difference.rel)} relative, of a scale of {number_text(difference.scale)}"
    )


def _one_sided(difference: Discrepancy) -> str:
    """How many elements are NaN on one side only."""
    count = counted(difference.dnan, "element")
    return f"NaN on one side only, in {count}" if difference.dnan else ""


def _odd(row: Row) -> str:
    """NaN and infinite elements on both sides, where there are any."""
    got = (0, 0) if row.got is None else (row.got.nans, row.got.infinities)
    expected = row.expected.nans, row.expected.infinities
    if got == expected == (0, 0):
        return ""
    return f"{got[0]} NaN, {got[1]} inf; expected {expected[0]}, {expected[1]}"


def _outputs(found: Comparison) -> Table:
    tones: dict[str, Tone] = dict.fromkeys(found.open, "warn")
    tones.update(dict.fromkeys(found.differing, "bad"))
    rows = [
        (
            Cell(name, tones.get(name)),
            *_told(difference),
            difference.reason or _one_sided(difference) or "not compared" * (name in found.open),
        )
        for name, difference in found.outputs.items()
    ]
    note = "as onnxruntime computes them with all its optimizations"
    return Table(("output", "max abs", "max rel", "mean", ""), tuple(rows), note=note)


def _told(difference: Discrepancy) -> tuple[str, str, str]:
    """Largest, relative and mean difference, where there are such."""
    if not math.isfinite(difference.abs):
        return "-", "-", "-"
    return (
        number_text(difference.abs), number_text(difference.rel), number_text(difference.mean)
    )  # fmt: skip


def _stages(found: Comparison) -> Table:
    rows = [
        (
            Cell(stage.name, None if stage.ok else "bad"),
            *_told(stage.difference)[:2],
            stage.difference.reason or _one_sided(stage.difference) or stage.rule,
        )
        for stage in found.stages
    ]
    return Table(("outputs after", "max abs", "max rel", ""), tuple(rows), note=_brought_in(found))


def _of_the_file(found: Comparison, place: int) -> bool:
    return found.stages[place].name.startswith("the file")


def _brought_in(found: Comparison) -> str:
    """The step that brought the difference in, as a sentence."""
    bad = next((place for place, stage in enumerate(found.stages) if not stage.ok), None)
    if bad is None:
        return "no step brings a difference in"
    name = found.stages[bad].name
    if name.startswith("the file") and (not bad or not _of_the_file(found, bad - 1)):
        if not bad:
            return "the file is so without any optimization: look at what wrote it"
        return "the steps from MODEL agree: the file was changed, or something else wrote it"
    rule = found.stages[bad].rule
    return f"the difference comes in with: {name}" + (f", by {rule}" if rule else "")


def _layers(rows: Sequence[Row]) -> Table:
    """The worst of each module; of outer modules, or of the worst only, when there are many."""
    depth = max(row.layer.count(".") for row in rows) + 1
    while depth > 2 and len({_outer(row.layer, depth) for row in rows}) > _LAYERS:
        depth -= 1
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(_outer(row.layer, depth), []).append(row)
    worst = {layer: max(members, key=severity) for layer, members in groups.items()}
    shown = sorted(worst, key=lambda layer: severity(worst[layer]), reverse=True)[:_LAYERS]
    lines = []
    for layer in (layer for layer in groups if layer in set(shown)):
        row = worst[layer]
        cell = Cell(number_text(row.relative), _TONES.get(row.verdict))
        lines.append((layer or "the model itself", len(groups[layer]), cell, row.name))
    left_out = len(groups) - len(shown)
    note = f"the worst {len(shown)} of {len(groups)}" if left_out else ""
    return Table(("layer", "values", "worst, of its scale", "at"), tuple(lines), note=note)


def _outer(layer: str, depth: int) -> str:
    return ".".join(layer.split(".")[:depth])


def _values(found: Comparison) -> Table:
    """All rows, or those around the first divergence or the worst, and those beyond tolerance."""
    rows, note = found.rows, ""
    shown = set(range(len(rows)))
    if len(rows) > _WHOLE:
        beyond = [i for i, row in enumerate(rows) if _TONES.get(row.verdict) == "bad"]
        middle = beyond[0] if beyond else max(shown, key=lambda place: severity(rows[place]))
        near = range(middle - _AROUND, middle + _AROUND + 1)
        shown = {*shown.intersection(near), *beyond[:_BEYOND]}
        note = f"{len(shown)} of {len(rows)} values; the JSON report has all"
    columns = ["#", "value", "verdict", "operator", "layer", "shape", "max abs", "max rel", "mean"]
    columns += ["by itself"] if any(row.local is not None for row in rows) else []
    columns += ["NaN, inf"] if any(map(_odd, rows)) else []
    lines = []
    for place, row in enumerate(rows):
        if place not in shown:
            continue
        cells: list[Cell | str | int | float] = [place + 1, row.name]
        cells += [Cell(row.verdict, _TONES.get(row.verdict)), row.op_type, row.layer]
        cells += [str(row.expected), *_told(row.error)]
        if "by itself" in columns:
            cells.append("-" if row.local is None else _told(row.local)[0])
        cells += [_odd(row)] if "NaN, inf" in columns else []
        lines.append(tuple(cells))
    return Table(tuple(columns), tuple(lines), note=note)


def _data(found: Comparison) -> dict[str, Any]:
    return {
        "verdict": found.verdict.kind,
        "evidence": found.verdict.evidence,
        "first": None if found.first is None else found.first.name,
        "weights": weight_rows(found.weights),
        "suspects": list(found.suspects),
        "differing": list(found.differing),
        "open": list(found.open),
        "set": found.place,
        "nodes": found.nodes,
        "unaligned": found.unaligned,
        "outputs": {name: _numbers(d) for name, d in found.outputs.items()},
        "stages": [
            {"stage": s.name, "ok": s.ok, "rule": s.rule, **_numbers(s.difference)}
            for s in found.stages
        ],
        "notes": list(found.notes),
        "cut": None if found.cut is None else str(found.cut),
        "values": [_row(row) for row in found.rows],
    }


def _row(row: Row) -> Mapping[str, Any]:
    return {
        "name": row.name,
        "node": row.node,
        "op_type": row.op_type,
        "origin": row.origin,
        "layer": row.layer,
        "line": row.line,
        "expected": _side(row.expected),
        "got": None if row.got is None else _side(row.got),
        "error": _numbers(row.error),
        "local": None if row.local is None else _numbers(row.local),
        "verdict": row.verdict,
        "note": row.note,
    }


def _side(side: Any) -> dict[str, Any]:
    return {
        "shape": list(side.shape),
        "dtype": side.dtype,
        "nans": side.nans,
        "infinities": side.infinities,
        "least": side.least,
        "largest": side.largest,
        "mean": side.mean,
    }


def _numbers(difference: Discrepancy) -> dict[str, Any]:
    return {
        "abs": difference.abs,
        "rel": difference.rel,
        "mean": difference.mean,
        "scale": difference.scale,
        "at": None if difference.argm is None else list(difference.argm),
        "reason": difference.reason,
    }
