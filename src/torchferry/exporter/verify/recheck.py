"""Hold an ONNX file that was exported before to its model as it is today."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torchferry.errors import UsageError
from torchferry.exporter.steps import Steps, counted
from torchferry.exporter.tell.tables import dimension_table, environment, sizes_text
from torchferry.exporter.verify.dimension import check_dimensions
from torchferry.exporter.verify.limits import Limits
from torchferry.exporter.verify.verify import Check, verify
from torchferry.exporter.watch import describe_size, run_sets
from torchferry.judge import Tolerance
from torchferry.observer import Observation, observe
from torchferry.observer.given import Stated
from torchferry.progress import Progress
from torchferry.report.model import Report, Section
from torchferry.runner import Session
from torchferry.runner.conditions import conditions_in
from torchferry.sources.source import Source, load_source
from torchferry.values.step import LIFTED

__all__ = ["check_file"]

_SHOWN = 3  # sets of sizes in a sentence


def check_file(
    model: str,
    file: Path,
    *,
    inputs: str | None = None,
    sizes: Stated = None,
    dtype: str | None = None,
    budget: float | None = None,
    progress: Progress = None,
) -> Report:
    """Compare an exported file with its model, at recorded sizes and at others.

    Nothing is exported: the file may be of an older torchferry, or of another machine.

    Args:
        model: what `load_source` accepts.
        file: the ``.onnx`` file, or the folder that holds ``model.onnx``.
        inputs: see `load_source`.
        sizes: the legal sizes.
        dtype: ``fp32``, ``fp16`` or ``bf16``; as the model is when ``None``.
        budget: see `verify`.
        progress: what to do with the name of each step as it begins.

    Raises:
        UsageError: the file was not written by torchferry, or holds lifted state.
        FerryError: onnxruntime cannot load it, or the model cannot be loaded.
    """
    steps = Steps(progress)
    session = Session(file / "model.onnx" if file.is_dir() else file)
    if any(slot.path[0] == LIFTED for slot in session.signature.inputs):
        raise UsageError(
            f"{file} holds lifted state, which --check does not run: export the model again with "
            "--state lift, which compares calls in a row"
        )
    with steps.step("load model") as made:
        source = load_source(model, inputs=inputs, sizes=sizes, dtype=dtype)
        made(describe_size(source))
    with steps.step("observe") as made, observe(source.model) as seen:
        run_sets(source)
        made(counted(len(seen.calls), "call"))
    seen = source.observed(seen)
    calls = [(call.args, call.kwargs) for call in seen.calls[:1]]
    with steps.step("verify") as made:
        checks = verify(
            source.model, seen, session, tolerance=Tolerance.usual(source.model, calls),
            conditions=conditions_in(session.signature), budget=budget,
        )  # fmt: skip
        made(f"{counted(len(checks), 'set')} of sizes")
    return _report(source, file, session, seen, checks)


def _report(
    source: Source, file: Path, session: Session, seen: Observation, checks: list[Check]
) -> Report:
    """The verdict on the file within the conditions that it was exported under."""
    conditions = tuple(conditions_in(session.signature))
    limits = Limits(conditions, tuple(one for one in conditions if not one.of_empty))
    inside = [check for check in checks if limits.meets(check.sizes)]
    problems = tuple(_problems(file, inside))
    sets = sum(check.ok for check in inside)
    if not problems and not sets:
        problems = (f"nothing could be compared: PyTorch refuses all sizes of {source.title}",)
    worst = max((o.difference.abs for check in inside for o in check.outputs), default=0.0)
    equal = f"{file} equals {source.title} at {counted(sets, 'set')} of sizes, max abs {worst:.2g}"
    dimensions = check_dimensions(seen, (), inside, limits)
    return Report(
        title=f"check {file}",
        ok=not problems,
        verdict=f"{file} is not {source.title} any longer" if problems else equal,
        problems=problems,
        sections=(
            Section("Dynamic dimensions", (dimension_table(dimensions),)),
            Section("Environment", (environment(),), brief=False),
        ),
        next_steps=(
            f"find the first node that differs: torchferry compare {source.title} {file}",
            f"or export it again: torchferry export {source.title} -o OUT",
        )
        if problems
        else (),
        data={
            "kind": "check",
            "file": str(file),
            "dimensions": [
                {"name": d.name, "status": d.status, "agreed": list(d.agreed)} for d in dimensions
            ],
            "sets": sets,
            "worst": worst,
            "problems": list(problems),
        },
    )


def _problems(file: Path, checks: list[Check]) -> Iterator[str]:
    """One sentence a fault, with the sizes where it shows."""
    faults: dict[str, list[Check]] = {}
    for check in checks:
        if check.error is not None:
            faults.setdefault(f"{file} does not run, {check.error}", []).append(check)
        for output in check.outputs:
            if output.kind in ("differs", "failed"):
                faults.setdefault(f"output {output.name} differs", []).append(check)
    for said, where in faults.items():
        more = f" and {len(where) - _SHOWN} more" * (len(where) > _SHOWN)
        yield f"{said}: at {'; '.join(map(sizes_text, where[:_SHOWN]))}{more}"
