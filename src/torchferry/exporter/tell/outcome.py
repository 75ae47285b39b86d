"""What an export found, as a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from torchferry.capturer.advice import around
from torchferry.exporter.steps import counted
from torchferry.exporter.tell import tables
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.tell.strategy import capture_data, capture_sections
from torchferry.exporter.tell.tables import sizes_text
from torchferry.exporter.verify.dimension import DimensionCheck, check_dimensions
from torchferry.exporter.verify.in_a_row import problems_in_a_row, row_table
from torchferry.exporter.verify.verify import Check
from torchferry.graph.packed import packed_weights
from torchferry.report.model import Facts, Report, Section
from torchferry.report.quantity import shortened

__all__ = ["report"]

_DRAWN = "outputs are random; make the random numbers an argument, so that they can be compared"
_SHOWN = 3  # limits on the verdict line
_SYMBOLIC = (
    "Keep the size symbolic there: use x.shape[i] itself, not the length of a list made from it"
)
_NAMES = {"output": "the output", "structure": "the structure of the outputs"}


def report(found: Findings, title: str) -> Report:
    """The report of a finished export.

    ``ok`` means: every output that is not random agreed at every size both sides accept, and there
    is one; no dimension was fixed; each dynamic dimension was verified at two sizes at least.
    """
    fixed = found.captured.fixed
    dimensions = check_dimensions(found.seen, fixed, found.checks, found.limits)
    problems = list(_problems(found, dimensions))
    packed = packed_weights(found.model)
    return Report(
        title=f"export {title}",
        ok=not problems,
        verdict=f"{counted(len(problems), 'problem')} with {title}"
        if problems
        else f"{title}: {_success(found)}",
        problems=tuple(problems),
        sections=(
            Section("Dynamic dimensions", (tables.dimension_table(dimensions),)),
            Section("Outputs against PyTorch", (tables.output_table(found), *_notes(found))),
            Section("Sizes tried", (tables.sizes_table(found),)),
            *((found.layers.section,) if found.layers else ()),
            *_in_a_row(found),
            Section("Inputs", (tables.argument_table(found.seen.arguments),), brief=False),
            Section("Steps", (tables.step_table(found), *tables.packed_facts(packed))),
            Section("Time and memory", tables.step_bars(found), brief=False),
            Section("Model", tables.model_blocks(found), brief=False),
            *capture_sections(found.captured, brief=len(found.captured.attempts) > 1),
            Section("Every output at every size", (tables.whole_table(found),), brief=False),
            Section("Environment", (tables.environment(),), brief=False),
        ),
        data=_data(found, dimensions),
    )


def _in_a_row(found: Findings) -> tuple[Section, ...]:
    rows = found.in_a_row
    return (Section("Calls in a row", (row_table(rows),)),) if rows else ()


def _notes(found: Findings) -> tuple[Facts, ...]:
    return (Facts((("note", found.note),)),) if found.note else ()


def _success(found: Findings) -> str:
    """What agreed, and what could not be compared, in one sentence."""
    checks = [check for check in found.checks if found.limits.meets(check.sizes)]
    outputs = [o for check in checks for o in check.outputs]
    random = {o.name: o.verdict.evidence for o in outputs if o.kind == "random"}
    equal = {o.name for o in outputs} - random.keys()
    sets = sum(bool(check.outputs) for check in checks)
    worst = max(o.difference.abs for o in outputs if o.verdict.ok)
    said = ", ".join(f"{name} ({why})" if why else name for name, why in random.items())
    return (
        f"{counted(len(equal), 'output')} equal{'s' * (len(equal) == 1)} PyTorch's at "
        f"{counted(sets, 'set')} of sizes, max abs {worst:.2g}{_said_of_state(found)}"
        + (f"; not compared, being random: {said}" if random else "")
        + "".join(f"; verified where {text}" for text in _limit_texts(found))
        + ("" if found.seen.dynamic_names else f"; {tables.NO_DIMENSION}")
        + (f"; {found.layers}" if found.layers else "")
    )


def _said_of_state(found: Findings) -> str:
    """What was lifted, and how many calls in a row were equal."""
    if not found.captured.state:
        return ""
    rows = [row.count for row in found.in_a_row if row.ok]
    proven = f" in up to {max(rows)} calls in a row" if rows else ""
    return f"; {counted(len(found.captured.state), 'value')} of state lifted, right{proven}"


def _limit_texts(found: Findings) -> list[str]:
    """The limits of the exported model, with the lines they come from."""
    texts = [
        shortened(str(limit)) + (f" ({limit.line})" if limit.line else "")
        for limit in found.limits.limits
    ]
    more = [f"{len(texts) - _SHOWN} more conditions hold"] if len(texts) > _SHOWN else []
    return [*texts[:_SHOWN], *more]


def _problems(found: Findings, dimensions: list[DimensionCheck]) -> Iterator[str]:
    """One sentence a fault: what, where, what to do."""
    within = [check for check in found.checks if found.limits.meets(check.sizes)]
    if found.training and any(not o.verdict.ok for check in within for o in check.outputs):
        yield "the model is in training mode, where dropout is random: call model.eval() first"
    compared = any(check.ok or check.failed for check in found.checks)
    if not compared:
        yield f"nothing could be compared: {_why_not(found)}"
    for name in sorted({name for check in found.checks for name in check.changed}):
        yield (
            f"forward changes its argument {name} in place and does not return it: the ONNX model "
            "leaves it as it was. Return the new value"
        )
    for fixed in found.captured.fixed:
        yield f"{fixed}. {around(fixed.line, _SYMBOLIC)}"
    yield from (str(changed) for changed in found.captured.changed)
    yield from _branches(found)
    if found.captured.unproven:
        yield found.captured.unproven
    if found.strict:
        for text in _limit_texts(found):
            yield f"the exported model is right only where {text}: calls elsewhere are refused"
    random = any(o.verdict.kind == "random" for check in within for o in check.outputs)
    advice = _DRAWN if random else "give input sets of other sizes that the model takes"
    for dimension in dimensions:
        if dimension.status == "unverified" and compared:
            at = f"at size {dimension.agreed[0]} only" if dimension.agreed else "at no size"
            note = f" ({dimension.note})" if dimension.note else ""
            yield f"dimension {dimension.name} was verified {at}{note}: {advice}"
    yield from _faults(found)
    yield from problems_in_a_row(found.in_a_row)


def _branches(found: Findings) -> Iterator[str]:
    """Recorded sets that go another way through the code than the one that was captured."""
    for limit in found.limits.limits:
        recorded = [check for check in found.checks if not check.made]
        apart = [c for c in recorded if c.refused is None and limit.broken_by(c.sizes)]
        if apart:
            at = f" at {limit.line}" if limit.line else ""
            yield (
                f"the recorded input sets take different branches{at}: {shortened(str(limit))} "
                f"does not hold at {'; '.join(map(sizes_text, apart[:3]))}, and the exported "
                "model follows the others. Give sets of one branch, or write both with "
                "torch.where or torch.cond"
            )


def _faults(found: Findings) -> Iterator[str]:
    """What onnxruntime got wrong: one sentence an output or error, with the sizes."""
    faults: dict[tuple[str, str], list[Check]] = {}
    for check in found.checks:
        if any(check.sizes.get(n) != size for n, size in found.captured.sizes.items()):
            continue  # the model takes no other size, as a sentence above says
        if not found.limits.meets(check.sizes):
            continue  # the exported model refuses them
        if check.error is not None:
            faults.setdefault(("error", check.error), []).append(check)
        for output in check.outputs:
            if output.kind in ("differs", "failed"):
                faults.setdefault(("output", output.name), []).append(check)
    for (kind, what), checks in faults.items():
        where = "; ".join(sizes_text(check) for check in checks[:3])
        more = f" and {len(checks) - 3} more" if len(checks) > 3 else ""
        if kind == "error":
            yield f"onnxruntime failed at {where}{more}: {what}"
            continue
        differing = [o for c in checks for o in c.outputs if o.name == what]
        worst = max(differing, key=lambda o: o.difference.abs)
        name = _NAMES.get(what, f"output {what}")
        yield (
            f"{name} differs from PyTorch at {where}{more}: {worst.verdict.numbers}"
            + "".join(f"; {check.blame}" for check in checks[:1] if check.blame)
        )


def _why_not(found: Findings) -> str:
    refused = next((c.refused for c in found.checks if c.refused is not None), None)
    outputs = [output for check in found.checks for output in check.outputs]
    if outputs:
        why = outputs[0].verdict.evidence
        said = f" ({why})" if why else ""
        return f"every output is random{said}; return what is computed before that too"
    if refused is not None:
        return f"PyTorch itself refuses all sizes, with {refused}"
    return "the model returns no tensor; return what is to be computed"


def _check_data(check: Check, found: Findings) -> dict[str, Any]:
    return {
        "sizes": check.sizes,
        "inputs": "made" if check.made else "recorded",
        "outside": [str(c) for c in found.limits.kept if c.broken_by(check.sizes)],
        "refused": check.refused,
        "untried": check.untried,
        "breaks": check.breaks and str(check.breaks),
        "error": check.error,
        "blame": check.blame,
        "outputs": [
            {"name": o.name, "verdict": o.kind, "abs": o.difference.abs,
             "rel": o.difference.rel, "rounding": o.verdict.rounding, "nan": o.difference.dnan,
             "reason": o.difference.reason, "evidence": o.verdict.evidence}
            for o in check.outputs
        ],
    }  # fmt: skip


def _data(found: Findings, dimensions: list[DimensionCheck]) -> dict[str, Any]:
    """The same facts for programs."""
    return {
        "dimensions": [
            {"name": d.name, "places": list(d.places), "status": d.status,
             "where": list(d.where), "agreed": list(d.agreed), "failed": list(d.failed),
             "note": d.note}
            for d in dimensions
        ],
        "conditions": [
            {"condition": str(one), "line": one.line, "limit": one in found.limits.limits}
            for one in found.limits.kept
        ],
        "checks": [_check_data(check, found) for check in found.checks],
        "inputs": [
            {"name": a.name, "dtype": str(a.dtype).removeprefix("torch."),
             "shape": [str(axis.size) for axis in a.axes],
             "why": [axis.reason for axis in a.sizes]}
            for a in found.seen.arguments
        ],
        "steps": [
            {"name": s.name, "seconds": s.seconds, "cpu_seconds": s.cpu_seconds,
             "peak_bytes": s.peak_bytes, "made": s.size}
            for s in found.steps.done
        ],
        **capture_data(found.captured),
        "model": {
            "nodes": len(found.model.graph),
            "bytes": found.bytes_written,
            "opset": found.model.opset_imports.get("", 0),
            "ir_version": found.model.ir_version,
            "target": found.target,
            "exporter": found.exporter,
        },
        "in_a_row": [
            {"calls": row.count, "title": row.title, "ok": row.ok, "refused": row.refused,
             "error": row.error, "wrong": [one.name for one in row.wrong]}
            for row in found.in_a_row
        ],
        "packed": [asdict(one) for one in packed_weights(found.model)],
        "layers": found.layers and found.layers.data,
        "note": found.note,
        "tolerance": {"atol": found.tolerance.atol, "rtol": found.tolerance.rtol},
    }  # fmt: skip
