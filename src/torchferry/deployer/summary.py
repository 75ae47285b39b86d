"""The report of a deployment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchferry.deployer.layout import Graph
from torchferry.deployer.prove.proof import Proof, Run, describe_runs
from torchferry.deployer.write.build import Built
from torchferry.exporter.steps import Steps
from torchferry.quantizer.choice import curve
from torchferry.report.model import Bars, Block, Cell, Report, Section, Table
from torchferry.report.quantity import bytes_text, counted

__all__ = ["report", "tables"]

_BFLOAT16 = (
    "bf16 holds weights in bfloat16. onnxruntime has few kernels for it on a CPU: the other nodes "
    "compute in float32 between casts, which saves bytes and costs time."
)
_SHOWN = 16  # weights in the picture of sensitivity


def report(
    title: str,
    graphs: Sequence[Graph],
    built: Built,
    proof: Proof,
    *,
    out: Path,
    steps: Steps,
) -> Report:
    """What was written, what it costs, and where it ran.

    Args:
        title: of the model.
        graphs: the default first.
        built: what was written.
        proof: what was seen of it.
        out: the folder.
        steps: of the walk.
    """
    problems = [
        f"the {floats} graph: {problem}"
        for floats, done in built.exports.items()
        for problem in done.problems
    ] + proof.problems
    folder = out.with_name(f"{out.name}.failed") if problems else out
    sections = [Section(heading, (table,)) for heading, table in tables(graphs, built, proof)]
    if built.units:
        sections.append(Section("What 4 bits cost", _sensitivity(built), brief=False))
    sections += [
        Section(f"{section.title} ({floats})", section.blocks, brief=False)
        for floats, done in built.exports.items()
        for section in done.sections
    ]
    timed = tuple((s.name, f"{s.seconds:.1f} s", bytes_text(s.peak_bytes)) for s in steps.done)
    sections.append(Section("Time", (Table(("step", "time", "peak memory"), timed),), brief=False))
    return Report(
        title=f"deploy {title}",
        ok=not problems,
        verdict=_verdict(title, graphs, proof, problems),
        sections=tuple(sections),
        problems=tuple(problems),
        next_steps=(
            f"look at {folder / 'report.html'}; {folder / 'README.md'} says how to run it",
        ),
        data=_data(graphs, built, proof),
    )


def tables(graphs: Sequence[Graph], built: Built, proof: Proof) -> list[tuple[str, Table]]:
    """Headings and tables that the card shows too."""
    rows = tuple(_file_row(graph, built, proof) for graph in graphs)
    first = next(iter(proof.agreements.values()), None)
    measured = () if first is None else tuple(first.cells)
    columns = ("precision", "file", "size", "8-bit weights", *measured)
    notes = ["" if first is None else first.note]
    if built.kept:
        notes.append(
            f"{built.kept} weights lay on a grid of 4 bits already: int4 keeps it exactly."
        )
    if any(graph.floats == "bf16" for graph in graphs):
        notes.append(_BFLOAT16)
    accuracy = Table(columns, rows, note=" ".join(filter(None, notes)))
    cells = tuple((r.runtime, r.version or "-", r.graph.name, _seen(r)) for r in proof.runs)
    seen = Table(("runtime", "version", "precision", "outputs"), cells)
    return [("Precisions", accuracy), ("Runtimes", seen)]


def _file_row(graph: Graph, built: Built, proof: Proof) -> tuple[Cell | str | int | float, ...]:
    seen = proof.agreements.get(graph.name)
    bits = built.bits.get(graph.name, {})
    wide = f"{sum(count == 8 for count in bits.values())} of {len(bits)}" if bits else "-"
    numbers = () if seen is None else tuple(seen.cells.values())
    return (graph.name, graph.path.as_posix(), bytes_text(built.sizes[graph.name]), wide, *numbers)


def _seen(run: Run) -> Cell:
    if run.same is None:
        return Cell(f"not run: {run.note}", "warn")
    if not run.same:
        return Cell(run.note, "bad")
    if not run.graph.exact and run.runtime == "onnxruntime" and not run.note:
        return Cell("it runs; other runtimes are compared with it")
    if "cosine" in run.note:
        return Cell(run.note, "good")
    against = "PyTorch's" if run.graph.exact else "onnxruntime's"
    return Cell(f"tokens equal {against}" + (f" ({run.note})" if run.note else ""), "good")


def _verdict(title: str, graphs: Sequence[Graph], proof: Proof, problems: Sequence[str]) -> str:
    if problems:
        return f"{counted(len(problems), 'problem')} with {title}"
    ran = dict.fromkeys(f"{run.runtime} {run.version}" for run in proof.runs if run.version)
    missing = dict.fromkeys(run.runtime for run in proof.runs if not run.version)
    names = ", ".join(graph.name for graph in graphs)
    verdict = f"{title} as {names} runs in {', '.join(ran) or 'no runtime'}"
    if missing:
        verdict += f"; not installed here, and not tried: {', '.join(missing)}"
    return verdict


def _sensitivity(built: Built) -> tuple[Block, ...]:
    bits = next((found for name, found in built.bits.items() if name.startswith("int4")), {})
    worst = sorted(built.units, key=lambda unit: -unit.cost)[:_SHOWN]
    bars = tuple((unit.name.removesuffix(".weight"), max(unit.cost, 0.0)) for unit in worst)
    wide = sum(unit.extra for unit in built.units if bits.get(unit.weights[0]) == 8)
    least = next(size for name, size in built.sizes.items() if name.startswith("int4")) - wide
    points = curve(built.units, least)
    step = max(1, len(points) // 12)
    shown = [*points[:-1:step], points[-1]]
    rows = tuple((bytes_text(size), f"{loss:.3g}") for size, loss in shown)
    note = "Estimated as the sum of what each weight costs alone, before calibration."
    return (
        Bars("KL divergence of one weight in 4 bits, all others in full", "nats", bars),
        Bars(
            "What is left of the loss at each size", "nats",
            tuple((bytes_text(size), loss) for size, loss in shown),
        ),
        Table(("size", "loss"), rows, note=note),
    )  # fmt: skip


def _data(graphs: Sequence[Graph], built: Built, proof: Proof) -> dict[str, Any]:
    return {
        "kind": "deployment",
        "graphs": [
            {"name": graph.name, "file": graph.path.as_posix(), "bytes": built.sizes[graph.name],
             "bits": built.bits.get(graph.name, {})}
            for graph in graphs
        ],
        "sensitivity": [{"name": u.name, "kl": u.cost, "extra": u.extra} for u in built.units],
        "kept": built.kept,
        "fitted": built.fitted,
        "floats": built.floats,
        "exports": {floats: done.data for floats, done in built.exports.items()},
        **describe_runs(proof),
    }  # fmt: skip
