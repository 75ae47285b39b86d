"""The report of many exports: a line a model, a column an exporter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from torchferry.exporter.steps import bytes_text
from torchferry.fleet.job import OUTCOMES, Job, Outcome, Row
from torchferry.report.model import Cell, Report, Section, Table, Tone

__all__ = ["sweep_report"]

_TONES: dict[Outcome, Tone] = {"ok": "good", "refused": "warn", "unverified": "warn"}
_SAID: dict[str, str] = {"to_onnx": "torchferry", "onnx_dynamo": "torch.onnx"}


def sweep_report(rows: Iterable[Row], title: str) -> Report:
    """What a sweep found: a line a model, a column an exporter; ok when all of ours are."""
    rows = list(rows)
    ours = [row for row in rows if row.job.exporter == "to_onnx"] or rows
    bad = [row for row in ours if row.outcome != "ok"]
    counts = "; ".join(_counted(rows, exporter) for exporter in _exporters(rows))
    return Report(
        title=f"sweep {title}".strip(),
        ok=not bad,
        verdict=counts,
        problems=tuple(
            f"{row.job.model} ({_how(row.job)}): {row.outcome}: {row.reason}" for row in bad[:50]
        ),
        sections=(
            Section("Outcomes", (_outcome_table(rows),)),
            Section("Models", (_model_table(rows),)),
            Section("Time and memory", (_cost_table(rows),), brief=False),
        ),
        data={"rows": [row.to_dict() for row in rows]},
    )


def _exporters(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.job.exporter for row in rows))


def _counted(rows: list[Row], exporter: str) -> str:
    own = [row for row in rows if row.job.exporter == exporter]
    fine = sum(row.outcome == "ok" for row in own)
    return f"{_SAID.get(exporter, exporter)}: {fine} of {len(own)} ok"


def _how(job: Job) -> str:
    return " ".join(filter(None, (_SAID.get(job.exporter, job.exporter), job.dtype)))


def _outcome_table(rows: list[Row]) -> Table:
    ways = list(dict.fromkeys(_how(row.job) for row in rows))
    counts = {way: Counter(row.outcome for row in rows if _how(row.job) == way) for way in ways}
    met = [outcome for outcome in OUTCOMES if any(counts[way][outcome] for way in ways)]
    return Table(("exporter", *met), tuple((way, *(counts[way][o] for o in met)) for way in ways))


def _model_table(rows: list[Row]) -> Table:
    ways = list(dict.fromkeys(_how(row.job) for row in rows))
    by_model: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_model.setdefault(row.job.model, {})[_how(row.job)] = row
    lines = []
    for model, found in by_model.items():
        cells = [_cell(found.get(way)) for way in ways]
        first = found.get(ways[0])
        lines.append((model, *cells, first.reason[:160] if first else ""))
    return Table(("model", *ways, "first problem"), tuple(lines))


def _cell(row: Row | None) -> Cell | str:
    if row is None:
        return ""
    return Cell(row.outcome, _TONES.get(row.outcome, "bad"))


def _cost_table(rows: list[Row]) -> Table:
    return Table(
        ("model", "exporter", "seconds", "CPU seconds", "peak memory", "nodes", "sizes",
         "max abs"),
        tuple(
            (row.job.model, _how(row.job), f"{row.seconds:.1f}", f"{row.cpu_seconds:.1f}",
             bytes_text(row.peak_bytes), row.nodes, row.sizes, f"{row.worst:.2g}")
            for row in rows
        ),
    )  # fmt: skip
