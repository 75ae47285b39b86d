"""What an export found, as a report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchferry.exporter import tables
from torchferry.exporter.dimension import DimensionCheck, check_dimensions
from torchferry.exporter.findings import Findings
from torchferry.exporter.tables import sizes_text
from torchferry.exporter.verify import Check, Compared
from torchferry.report.model import Report, Section

__all__ = ["report"]


def report(found: Findings, title: str) -> Report:
    """The report of a finished found.

    ``ok`` means: every output agreed at every size both sides accept, no dimension was fixed, and
    each dynamic dimension was verified at two sizes at least.
    """
    dimensions = check_dimensions(found.seen, found.captured.fixed, found.checks)
    problems = list(_problems(found, dimensions))
    compared = [o for check in found.checks for o in check.outputs]
    ran = sum(bool(check.outputs) for check in found.checks)
    attempts = found.captured.attempts
    worst = max((o.difference.abs for o in compared if o.verdict != "random"), default=0.0)
    verdict = (
        f"{title}: {len({o.name for o in compared})} outputs equal PyTorch's at {ran} sets of "
        f"sizes, max abs {worst:.2g}"
        if not problems
        else f"{len(problems)} problem{'s' * (len(problems) > 1)} with {title}"
    )
    return Report(
        title=f"export {title}",
        ok=not problems,
        verdict=verdict,
        problems=tuple(problems),
        sections=(
            Section("Dynamic dimensions", (tables.dimension_table(dimensions),)),
            Section("Outputs against PyTorch", (tables.output_table(found),)),
            Section("Sizes tried", (tables.sizes_table(found),)),
            Section("Inputs", (tables.input_table(found),), brief=False),
            Section("Steps", (tables.step_table(found),)),
            Section("Time and memory", tables.step_bars(found), brief=False),
            Section("Model", tables.model_blocks(found), brief=False),
            Section("Capture", (tables.attempt_table(found),), brief=len(attempts) > 1),
            Section("Every output at every size", (tables.whole_table(found),), brief=False),
            Section("Environment", (tables.environment(),), brief=False),
        ),
        data=_data(found, dimensions),
    )


def _problems(found: Findings, dimensions: list[DimensionCheck]) -> Iterator[str]:
    """One sentence a fault: what, where, what to do."""
    if found.training and any(o.verdict != "ok" for c in found.checks for o in c.outputs):
        yield "the model is in training mode, where dropout is random: call model.eval() first"
    for fixed in found.captured.fixed:
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
    for check in found.checks:
        if any(check.sizes.get(n) != size for n, size in found.captured.sizes.items()):
            continue  # told above: the model takes no other size
        if check.error is not None:
            faults.setdefault(("error", check.error), []).append(check)
        for output in check.outputs:
            if output.verdict == "differs":
                faults.setdefault(("output", output.name), []).append(check)
    for (kind, what), checks in faults.items():
        where = "; ".join(sizes_text(check) for check in checks[:3])
        more = f" and {len(checks) - 3} more" if len(checks) > 3 else ""
        if kind == "error":
            yield f"onnxruntime failed at {where}{more}: {what}"
            continue
        differing = [o for c in checks for o in c.outputs if o.name == what]
        worst = max(differing, key=lambda o: o.difference.abs)
        yield (
            f"output {what} differs from PyTorch at {where}{more}: {_difference(worst)}"
            + "".join(f"; {check.blame}" for check in checks[:1] if check.blame)
        )


def _difference(output: Compared) -> str:
    difference = output.difference
    if difference.reason:
        return difference.reason
    nans = f", {difference.dnan} NaN on one side only" if difference.dnan else ""
    return f"max abs {difference.abs:.3g}, max rel {difference.rel:.3g}{nans}"


def _data(found: Findings, dimensions: list[DimensionCheck]) -> dict[str, Any]:
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
            for check in found.checks
        ],
        "inputs": [
            {"name": a.name, "dtype": str(a.dtype).removeprefix("torch."),
             "shape": [str(axis.size) for axis in a.axes],
             "why": [axis.reason for axis in a.axes]}
            for a in found.seen.arguments
        ],
        "steps": [
            {"name": s.name, "seconds": s.seconds, "cpu_seconds": s.cpu_seconds,
             "peak_bytes": s.peak_bytes, "made": s.size}
            for s in found.steps.done
        ],
        "attempts": [{"strategy": a.strategy, "error": a.error} for a in found.captured.attempts],
        "model": {
            "nodes": len(found.model.graph),
            "bytes": found.bytes_written,
            "opset": found.model.opset_imports.get("", 0),
            "ir_version": found.model.ir_version,
            "target": found.target,
            "exporter": found.exporter,
        },
        "tolerance": {"atol": found.tolerance.atol, "rtol": found.tolerance.rtol},
    }  # fmt: skip
