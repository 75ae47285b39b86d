"""``torchferry diagnose``: which modules of a model break its export, and what to do."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchferry.cli.options import DtypeOption, InputsOption, ModelArgument
from torchferry.report.diagnosis_tree import module_tree, tone_of
from torchferry.report.model import Block, Cell, Facts, Report, Section, Source, Table

if TYPE_CHECKING:
    from torchferry.diagnoser import Culprit, Diagnosis, StatusExport

__all__ = ["diagnose"]


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
    from torchferry.cli.progress import progress
    from torchferry.diagnoser import Limits
    from torchferry.diagnoser import diagnose as find
    from torchferry.exporter.source import load_source

    limits = None
    if seconds is not None or megabytes is not None:
        limits = Limits(300.0 if seconds is None else seconds, megabytes)
    with progress() as begin:
        begin("load model")
        source = load_source(model, inputs=inputs, dtype=dtype.value if dtype else None)
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
    return _report(model, found)


def _report(model: str, found: Diagnosis) -> Report:
    count = len(found.culprits)
    faults = f"{count} {'fault' if count == 1 else 'faults'}"
    verdict = (
        f"{found.tree.title} can be exported as it is ({found.exporter})"
        if found.ok
        else f"{faults} in {found.tree.title} ({found.exporter}): "
        f"{', '.join(culprit.where for culprit in found.culprits[:3])}"
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
        next_steps=_next_steps(model, found),
        data=_data(found),
    )


def _tree(found: Diagnosis) -> Table:
    rows = []
    for (name, title, text), piece in zip(found.rows, found.tree.walk(), strict=True):
        status = piece.exporter_status
        rows.append((name, title, Cell(text, tone_of(status))))
    note = "<OK-2i-0>: not tried, as what it is a part of works; 2 calls, the first is usable"
    return Table(("module", "class", "status"), tuple(rows), note=note)


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


def _next_steps(model: str, found: Diagnosis) -> tuple[str, ...]:
    steps = []
    if found.ok:
        steps.append(f"torchferry export {model} -o OUT  exports and checks it")
    else:
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
