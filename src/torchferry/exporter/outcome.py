"""What an export found, as a report."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torchferry.exporter.dimension import DimensionCheck, check_dimensions
from torchferry.exporter.verify import Check, Compared
from torchferry.report.model import Bars, Cell, Facts, Report, Section, Table, Tone

if TYPE_CHECKING:
    from torchferry.exporter.export import Walk

__all__ = ["report"]

_PACKAGES = ("torchferry", "torch", "transformers", "onnx", "onnx-ir", "onnxscript", "onnxruntime")
_TONES: dict[str, Tone] = {"ok": "good", "differs": "bad", "random": "warn"}


def report(walk: Walk, title: str) -> Report:
    """The report of a finished walk.

    ``ok`` means: every output agreed at every size both sides accept, no dimension was fixed, and
    each dynamic dimension was verified at two sizes at least.
    """
    dimensions = check_dimensions(walk.seen, walk.captured.fixed, walk.checks)
    problems = list(_problems(walk, dimensions))
    compared = [o for check in walk.checks for o in check.outputs]
    ran = sum(bool(check.outputs) for check in walk.checks)
    worst = max((o.difference.abs for o in compared if o.verdict != "random"), default=0.0)
    verdict = (
        f"verified: {len({o.name for o in compared})} outputs equal PyTorch's at {ran} sets of "
        f"sizes, max abs {worst:.2g}"
        if not problems
        else f"failed: {len(problems)} problem{'s' * (len(problems) > 1)}"
    )
    return Report(
        title=f"export {title}",
        ok=not problems,
        verdict=verdict,
        problems=tuple(problems),
        sections=(
            Section("Dynamic dimensions", (_dimension_table(dimensions),)),
            Section("Outputs against PyTorch", (_output_table(walk),)),
            Section("Inputs", (_input_table(walk),), brief=False),
            Section("Steps", _step_blocks(walk)),
            Section("Model", _model_blocks(walk), brief=False),
            Section("Capture", (_attempt_table(walk),), brief=len(walk.captured.attempts) > 1),
            Section("Environment", (_environment(),), brief=False),
        ),
        data=_data(walk, dimensions),
    )


def _problems(walk: Walk, dimensions: list[DimensionCheck]) -> Iterator[str]:
    """One sentence a fault: what, where, what to do."""
    for fixed in walk.captured.fixed:
        yield (
            f"{fixed}. Keep sizes symbolic there: use x.shape[i] without int(), "
            "and no Python loop or list over it"
        )
    for dimension in dimensions:
        if dimension.status == "unverified":
            yield (
                f"dimension {dimension.name} was verified at one size only ({dimension.note}): "
                "give input sets in which it differs"
            )
    faults: dict[tuple[str, str], list[Check]] = {}
    for check in walk.checks:
        if check.error is not None:
            faults.setdefault(("error", check.error), []).append(check)
        for output in check.outputs:
            if output.verdict == "differs":
                faults.setdefault(("output", output.name), []).append(check)
    for (kind, what), checks in faults.items():
        where = "; ".join(_sizes(check) for check in checks[:3])
        more = f" and {len(checks) - 3} more" if len(checks) > 3 else ""
        if kind == "error":
            yield f"onnxruntime failed at {where}{more}: {what}"
            continue
        differing = [o for c in checks for o in c.outputs if o.name == what]
        worst = max(differing, key=lambda o: o.difference.abs)
        yield (
            f"output {what} differs from PyTorch at {where}{more}: {_difference(worst)}; "
            f"tolerance {walk.tolerance.atol:g} for values of order 1"
        )


def _difference(output: Compared) -> str:
    difference = output.difference
    if difference.reason:
        return difference.reason
    nans = f", {difference.dnan} NaN on one side only" if difference.dnan else ""
    return f"max abs {difference.abs:.3g}, max rel {difference.rel:.3g}{nans}"


def _sizes(check: Check) -> str:
    return ", ".join(f"{name}={size}" for name, size in check.sizes.items()) or "the size seen"


def _dimension_table(dimensions: list[DimensionCheck]) -> Table:
    tones: dict[str, Tone] = {"verified": "good", "unverified": "warn"}
    return Table(
        ("dimension", "where", "verdict", "sizes that agree", "sizes that do not", "note"),
        tuple(
            (
                d.name,
                ", ".join(d.places),
                Cell(d.status, tones.get(d.status, "bad")),
                ", ".join(map(str, d.agreed)),
                ", ".join(map(str, d.failed)),
                d.note,
            )
            for d in dimensions
        ),
        note="" if dimensions else "No dimension is dynamic: the model takes the sizes seen only.",
    )


def _output_table(walk: Walk) -> Table:
    rows: list[tuple[Cell | str | int | float, ...]] = []
    for check in walk.checks:
        origin = "made" if check.made else "recorded"
        if check.refused is not None:
            rows.append((_sizes(check), origin, "", "", "",
                         Cell(f"PyTorch refuses: {check.refused}", "muted")))  # fmt: skip
        if check.error is not None:
            rows.append((_sizes(check), origin, "", "", "", Cell(check.error, "bad")))
        for output in check.outputs:
            difference = output.difference
            text = difference.reason or output.verdict
            rows.append(
                (_sizes(check), origin, output.name, _figure(difference.abs),
                 _figure(difference.rel), Cell(text, _TONES[output.verdict]))
            )  # fmt: skip
    note = (
        f"An output of order 1 may differ by {walk.tolerance.atol:g}; a larger one by "
        f"{walk.tolerance.rtol:g} of its largest value more, for its rounding."
    )
    return Table(
        ("sizes", "inputs", "output", "max abs", "max rel", "verdict"), tuple(rows), note=note
    )


def _input_table(walk: Walk) -> Table:
    rows: list[tuple[Cell | str | int | float, ...]] = []
    for argument in walk.seen.arguments:
        if argument.dtype is None:
            rows.append((argument.name, "constant", "", "", repr(argument.value)))
        dtype = str(argument.dtype).removeprefix("torch.")
        rows += [
            (argument.name, dtype, axis.index, str(axis.size), axis.reason)
            for axis in argument.axes
        ]
    return Table(("input", "dtype", "axis", "size", "why"), tuple(rows))


def _step_blocks(walk: Walk) -> tuple[Table | Bars, ...]:
    steps = walk.steps.done
    table = Table(
        ("step", "seconds", "peak memory MiB", "made"),
        tuple((s.name, round(s.seconds, 2), round(s.peak_bytes / 2**20), s.size) for s in steps),
    )
    return (
        table,
        Bars("Time", "s", tuple((s.name, s.seconds) for s in steps)),
        Bars("Peak resident memory", "MiB", tuple((s.name, s.peak_bytes / 2**20) for s in steps)),
    )


def _model_blocks(walk: Walk) -> tuple[Facts | Bars, ...]:
    model = walk.model
    opsets = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in model.opset_imports.items())
    counts = Counter(
        f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        for node in model.graph.all_nodes()
    )
    pairs = (
        ("nodes", str(len(model.graph))),
        ("weights", f"{len(model.graph.initializers)} tensors"),
        ("size on disk", f"{walk.bytes_written / 2**20:.1f} MiB"),
        ("target", walk.target),
        ("operator sets", opsets),
        ("IR version", str(model.ir_version)),
    )
    bars = Bars("Operators", "nodes", tuple((n, float(c)) for n, c in counts.most_common(25)))
    return Facts(pairs), bars


def _attempt_table(walk: Walk) -> Table:
    return Table(
        ("strategy of torch.export", "outcome"),
        tuple(
            (a.strategy, Cell(a.error, "warn") if a.error else Cell("worked", "good"))
            for a in walk.captured.attempts
        ),
    )


def _environment() -> Facts:
    pairs = [("Python", platform.python_version()), ("system", platform.platform())]
    for package in _PACKAGES:
        try:
            pairs.append((package, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            pairs.append((package, "not installed"))
    return Facts(tuple(pairs))


def _data(walk: Walk, dimensions: list[DimensionCheck]) -> dict[str, Any]:
    """The same facts for programs."""
    return {
        "dimensions": [
            {"name": d.name, "places": list(d.places), "status": d.status,
             "agreed": list(d.agreed), "failed": list(d.failed), "note": d.note}
            for d in dimensions
        ],
        "checks": [
            {
                "sizes": check.sizes,
                "inputs": "made" if check.made else "recorded",
                "refused": check.refused,
                "error": check.error,
                "outputs": [
                    {"name": o.name, "verdict": o.verdict, "abs": o.difference.abs,
                     "rel": o.difference.rel, "nan": o.difference.dnan,
                     "reason": o.difference.reason}
                    for o in check.outputs
                ],
            }
            for check in walk.checks
        ],
        "inputs": [
            {"name": a.name, "dtype": str(a.dtype).removeprefix("torch."),
             "shape": [str(axis.size) for axis in a.axes],
             "why": [axis.reason for axis in a.axes]}
            for a in walk.seen.arguments
        ],
        "steps": [
            {"name": s.name, "seconds": s.seconds, "cpu_seconds": s.cpu_seconds,
             "peak_bytes": s.peak_bytes, "made": s.size}
            for s in walk.steps.done
        ],
        "attempts": [{"strategy": a.strategy, "error": a.error} for a in walk.captured.attempts],
        "model": {
            "nodes": len(walk.model.graph),
            "bytes": walk.bytes_written,
            "opset": walk.model.opset_imports.get("", 0),
            "ir_version": walk.model.ir_version,
            "target": walk.target,
            "exporter": walk.exporter,
        },
        "tolerance": {"atol": walk.tolerance.atol, "rtol": walk.tolerance.rtol},
    }  # fmt: skip


def _figure(value: float) -> str:
    return f"{value:.2g}"
