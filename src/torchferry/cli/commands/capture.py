"""``torchferry capture``: torch.export alone, and what every strategy said."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchferry.cli.options import (
    DtypeOption,
    InputsOption,
    RepeatOption,
    RewriteOption,
    SizesOption,
    StateChoice,
    StateOption,
)
from torchferry.errors import UsageError
from torchferry.report.model import Cell, Report, Section, Table

if TYPE_CHECKING:
    from torchferry.capturer import Captured
    from torchferry.capturer.trial.agreement import Agreement
    from torchferry.observer import Observation

__all__ = ["capture"]

Row = tuple[Cell | str | int | float, ...]


_PatchOption = Annotated[
    bool, typer.Option(help="Whether parts of torch and transformers may be replaced.")
]


def capture(
    model: Annotated[
        str,
        typer.Argument(metavar="MODEL", help="What export takes; inspect sources lists it."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.pt2", help="Save the program.")
    ] = None,
    inputs: InputsOption = None,
    sizes: SizesOption = None,
    dtype: DtypeOption = None,
    patch: _PatchOption = True,
    rewrite: RewriteOption = None,
    state: StateOption = StateChoice.refuse,
    repeat: RepeatOption = True,
) -> Report:
    """Capture MODEL with torch.export and run the program at every size that was seen.

    Shows each strategy with its reason, the dynamic dimensions with the sizes at which the
    program computes what the model does, the patches that were used, and what was rewritten.
    """
    from torchferry import capturer
    from torchferry.capturer.state.lift import lift_state
    from torchferry.capturer.trial.agreement import compare_calls
    from torchferry.exporter.steps import Steps
    from torchferry.exporter.watch import run_source
    from torchferry.progress import show_steps

    if out is not None and (out.suffix != ".pt2" or not out.parent.is_dir()):
        raise UsageError(f"--out {out}: give a file that ends in .pt2, in a folder that exists")
    with show_steps() as begin:
        steps = Steps(begin)
        kind = dtype.value if dtype else None
        lift = state is StateChoice.lift
        source, seen = run_source(model, inputs, kind, steps, sizes=sizes, lift=lift)
        if source.program is not None:
            raise UsageError(f"{model} is captured already; torchferry export {model} goes on")
        with steps.step("capture"):
            lifted = lift_state(source.model, seen) if lift else None
            module, seen = (lifted.model, lifted.seen) if lifted else (source.model, seen)
            made = capturer.capture(
                module, seen, patch=patch, rewrite="auto" if rewrite is None else rewrite,
                repeat=repeat,
            )  # fmt: skip
            made = lifted.complete(made) if lifted else made
        with steps.step("check"):
            checks = compare_calls(made.program, seen, made.joined, model=module)
        if out is not None:
            made.save(out)
    return _report(model, made, seen, checks, out)


def _report(
    title: str,
    made: Captured,
    seen: Observation,
    checks: tuple[Agreement, ...],
    out: Path | None,
) -> Report:
    from torchferry.capturer.advice import around
    from torchferry.exporter.tell.strategy import capture_sections

    problems = [f"{one}. {around(one.line, 'Change that line so that it needs no number')}"
                for one in made.fixed]  # fmt: skip
    problems += [one.verdict.about(f"{_sizes(one)}: the output") for one in checks if not one.ok]
    problems += [str(one) for one in made.changed]
    from torchferry.judge import worst_verdict

    names = seen.dynamic_names
    kept = [name for name in names if name not in {one.name for one in made.fixed}]
    verdict = f"captured; dynamic: {', '.join(kept) or 'nothing'}"
    verdict += f"; the same as the model on {sum(c.ok for c in checks)} of {len(checks)} calls"
    worst = worst_verdict(one.verdict for one in checks)
    if worst.evidence and worst.kind != "failed":
        verdict += f" ({worst.kind}: {worst.evidence})"
    attempts, *others = capture_sections(made)
    dimensions = Section("Dimensions", (_dimensions(made, seen, checks),))
    steps = (f"torchferry export {title} -o OUT  exports and checks it",)
    if out is not None:
        steps = (f"torchferry export {out} -o OUT  converts what was saved",)
    return Report(
        f"capture {title}",
        ok=not problems,
        verdict=verdict,
        sections=(attempts, dimensions, *others),
        problems=tuple(problems),
        next_steps=steps,
        data=_data(made, seen, checks),
    )


def _dimensions(made: Captured, seen: Observation, checks: tuple[Agreement, ...]) -> Table:
    bounds = made.bounds(seen)
    fixed = {one.name: one for one in made.fixed}
    rows: list[Row] = []
    for name in seen.dynamic_names:
        low, high = bounds.get(name, (0, None))
        span = f"{low} to {'any' if high is None else high}"
        good = sorted({one.sizes[name] for one in checks if one.ok and name in one.sizes})
        state = Cell(str(fixed[name]), "bad") if name in fixed else Cell("dynamic", "good")
        rows.append((name, state, span, ", ".join(map(str, good)) or "none"))
    return Table(
        ("dimension", "state", "traced for", "right at"),
        tuple(rows),
        note="traced for: the branches on sizes that the program follows; right at: sizes at "
        "which it computed what the model computes",
    )


def _sizes(check: Agreement) -> str:
    return ", ".join(f"{name} {size}" for name, size in check.sizes.items()) or "the call"


def _data(made: Captured, seen: Observation, checks: tuple[Agreement, ...]) -> dict[str, Any]:
    from torchferry.exporter.tell.strategy import capture_data

    return {
        "dynamic": list(seen.dynamic_names),
        "fixed": [
            {"argument": f.argument, "axis": f.axis, "name": f.name, "size": str(f.size),
             "line": f.line}
            for f in made.fixed
        ],
        "checks": [
            {"sizes": c.sizes, "ok": c.ok, "verdict": c.verdict.kind,
             "error": c.verdict.evidence if c.verdict.kind == "failed" else None,
             "difference": None if c.verdict.kind == "failed" else c.verdict.difference.abs,
             "evidence": c.verdict.evidence}
            for c in checks
        ],
        **capture_data(made),
    }  # fmt: skip
