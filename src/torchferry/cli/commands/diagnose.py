"""``torchferry diagnose``: which modules of a model break its export, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchferry.cli.options import (
    DtypeOption,
    InputsOption,
    ModelArgument,
    SizesOption,
    repeated,
)
from torchferry.report.diagnosis_tree import module_tree, tone_of
from torchferry.report.model import Block, Cell, Facts, Report, Section, Source, Table

if TYPE_CHECKING:
    from torchferry.diagnoser import Culprit, Diagnosis, ModelDiagnoseOutput, StatusExport
    from torchferry.diagnoser.record.tree import Piece

__all__ = ["diagnose"]


_ROWS = 50  # of modules, that are shown on the terminal


class _Exporter(StrEnum):
    fx = "fx"
    to_onnx = "to_onnx"
    onnx_dynamo = "onnx_dynamo"
    torch_script = "torch_script"


_ExporterOption = Annotated[
    _Exporter, typer.Option(help="torch.export alone (fx), ours, or one of torch.onnx.export's.")
]
_SecondsOption = Annotated[
    float | None,
    typer.Option(metavar="N", min=0.1, help="Try each piece in its own process, N seconds long."),
]
_MegabytesOption = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="The same, with N megabytes at most.")
]
_ReproduceOption = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Write a script for each fault that shows it alone."),
]
_FunctionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--function",
        metavar="MODULE.NAME",
        help="Try this function too, as the module that calls it has it; may be repeated.",
    ),
]
_RestOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.onnx", help="Write everything else, faults as operators."),
]


def diagnose(
    model: ModelArgument,
    inputs: InputsOption = None,
    sizes: SizesOption = None,
    dtype: DtypeOption = None,
    exporter: _ExporterOption = _Exporter.fx,
    seconds: _SecondsOption = None,
    megabytes: _MegabytesOption = None,
    reproduce: _ReproduceOption = None,
    export_rest: _RestOption = None,
    functions: _FunctionOption = None,
) -> Report:
    """Find the modules of MODEL that cannot be exported, and the lines that are at fault.

    The model is run on its inputs and exported. Where that fails, its submodules are exported one
    by one, each with the inputs it was given; those that fail are replaced by operators to see
    whether the rest works. Exit code 1 when something cannot be exported.
    """
    from torchferry.diagnoser import Limits
    from torchferry.diagnoser import diagnose as find
    from torchferry.progress import show_steps
    from torchferry.sources.source import load_source

    limits = None
    if seconds is not None or megabytes is not None:
        limits = Limits(300.0 if seconds is None else seconds, megabytes)
    with show_steps() as begin:
        begin("load model")
        kind = dtype.value if dtype else None
        source = load_source(model, inputs=inputs, sizes=sizes, dtype=kind, least=1)
        found = find(
            source.model,
            source.input_sets,
            exporter=exporter.value,
            limits=limits,
            reproduce=reproduce,
            export_rest=export_rest,
            traced_functions=functions or (),
            progress=begin,
        )
    fixed = len(source.input_sets) == 1 and source.program is None
    return _report(
        model, found, _next_steps(repeated(model, inputs, kind, sizes), found, fixed=fixed)
    )


def _report(model: str, found: Diagnosis, next_steps: tuple[str, ...]) -> Report:
    count = len(found.culprits)
    faults = f"{count} {'fault' if count == 1 else 'faults'}"
    verdict = (
        f"{found.tree.title} can be exported as it is ({found.exporter})"
        if found.ok
        else f"{faults} in {found.tree.title} ({found.exporter}): "
        f"{'; '.join(culprit.where for culprit in found.culprits[:3])}"
    )
    sections = [Section("Modules", (_tree(found),))]
    sections += [Section(culprit.where, _fault(culprit)) for culprit in found.culprits]
    sections += _notes(found)
    sections.append(Section("Look around", (module_tree(found),), brief=False))
    return Report(
        f"diagnose {model}",
        ok=found.ok,
        verdict=verdict,
        sections=tuple(sections),
        problems=tuple(map(str, found.culprits)),
        next_steps=next_steps,
        data=_data(found),
    )


def _tree(found: Diagnosis) -> Table:
    pieces = [*found.tree.walk()]
    shown = _shown(pieces)
    rows = tuple(
        (name, title, Cell(text, tone_of(piece.exporter_status)))
        for (name, title, text), piece in zip(found.rows, pieces, strict=True)
        if piece in shown
    )
    note = "<OK-2i-0>: not tried, as what it is a part of works; 2 calls, the first is usable"
    if len(rows) < len(pieces):
        note = f"{len(pieces) - len(rows):,} more modules: --html and --json have them all; {note}"
    return Table(("module", "class", "status"), rows, note=note)


def _shown(pieces: Sequence[ModelDiagnoseOutput]) -> list[ModelDiagnoseOutput]:
    """All modules, or of many those at fault, what they are in and, if not too many, beside."""
    if len(pieces) <= _ROWS:
        return [*pieces]
    near = set()
    for piece in (one for one in pieces if tone_of(one.exporter_status) == "bad"):
        above: Piece | None = piece
        while above is not None:
            near.add(above)
            above = above.parent
    near.add(pieces[0])
    beside = near | {below for one in near for below in one.children}
    chosen = beside if len(beside) <= _ROWS else near
    return [piece for piece in pieces if piece in chosen][:_ROWS]


def _notes(found: Diagnosis) -> list[Section]:
    """What is to be known of modules that are no culprits, as that their numbers are random."""
    faults = {place for culprit in found.culprits for place in culprit.places}
    rows = tuple(
        (piece.path or piece.name, note)
        for piece in found.tree.walk()
        if piece.exporter_status is not None and piece.path not in faults and piece.calls
        for note in piece.exporter_status.notes
    )
    return [Section("Notes", (Table(("module", "note"), rows),))] if rows else []


def _fault(culprit: Culprit) -> tuple[Block, ...]:
    status = culprit.status
    pairs: list[tuple[str, str | Cell]] = [
        ("step", status.step),
        ("reason", Cell((status.reason.splitlines() or [""])[0], "bad")),
    ]
    if status.line:
        pairs.append(("line", status.line))
    pairs += [
        ("what to do", status.advice or "-"),
        ("modules", ", ".join(p or "__main__" for p in culprit.places[:20])),
    ]
    pairs += [("note", note) for note in status.notes]
    if culprit.script is not None:
        pairs.append(("reproduction", f"python {culprit.script}"))
    if culprit.refused:
        pairs.append(("no reproduction", culprit.refused))
    blocks: list[Block] = [Facts(tuple(pairs))]
    if "\n" in status.reason.strip():
        blocks.append(Source("All that was said", status.reason))
    return tuple(blocks)


def _next_steps(call: str, found: Diagnosis, *, fixed: bool) -> tuple[str, ...]:
    steps = []
    if fixed:
        steps.append(
            "give two or more input sets of different sizes: one does not tell what varies, so "
            "that all sizes were taken as fixed, and export needs more"
        )
    elif found.ok:
        steps.append(f"torchferry export {call} -o OUT  exports and checks it")
    if not found.ok:
        steps.append("change the lines above, then run this again")
        if not any(culprit.script or culprit.refused for culprit in found.culprits):
            steps.append("--reproduce FOLDER  writes each fault as a script of its own")
    if found.rest is not None:
        steps.append(
            f"everything else is in {found.rest}; in Python, torchferry.diagnose(...).open_rest() "
            "runs it, the modules above by PyTorch"
        )
    if found.rest_note:
        steps.append(f"look at {found.rest} before it is used: {found.rest_note}")
    if found.rest_refused:
        steps.append(f"everything else could not be written: {found.rest_refused}")
    return tuple(steps)


def _data(found: Diagnosis) -> dict[str, Any]:
    """The facts as JSON types."""
    modules = []
    for piece in found.tree.walk():
        status = piece.exporter_status
        modules.append(
            {
                "path": piece.path,
                "class": piece.title,
                "method": piece.method_name,
                "calls": len(piece.calls),
                "status": None if status is None else str(status.status),
                **({} if status is None else _status_data(status)),
            }
        )
    culprits = [
        {
            "places": list(culprit.places),
            "class": culprit.title,
            "script": None if culprit.script is None else str(culprit.script),
            "refused": culprit.refused,
            **_status_data(culprit.status),
        }
        for culprit in found.culprits
    ]
    return {
        "exporter": found.exporter,
        "modules": modules,
        "culprits": culprits,
        "rest": None if found.rest is None else str(found.rest),
        "rest_note": found.rest_note,
    }


def _status_data(status: StatusExport) -> dict[str, Any]:
    return {
        "step": status.step,
        "reason": status.reason,
        "line": status.line,
        "advice": status.advice,
        "blame": list(status.blame),
        "notes": list(status.notes),
    }
