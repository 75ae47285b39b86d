"""``torchferry inspect``: what a dump, an ONNX model or a ``.safetensors`` file holds."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchferry.errors import UsageError
from torchferry.report.model import Bars, Block, Cell, Facts, Report, Section, Table
from torchferry.report.quantity import bytes_text, counted

if TYPE_CHECKING:
    from torchferry.dumper.statistics import Statistics
    from torchferry.dumper.summary import DumpSummary, TensorsSummary, TensorSummary
    from torchferry.graph.outline import Outline

__all__ = ["inspect"]

_ROWS = 300  # tensors told one by one, so that a page stays small; the JSON form has all
_PICTURES = 30
_DUMP = "torchferry.dump"  # the property of a model that is a dump; the room of dumps loads torch

_WORDS = ("environment", "ops", "patches", "sources", "zoo")

Row = tuple[Cell | str | int | float, ...]


def inspect(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A dump (file or folder), a .onnx, a .safetensors; or environment, ops, patches, "
            "sources, zoo.",
        ),
    ],
    svg: Annotated[
        Path | None,
        typer.Option(metavar="PICTURE", help="Also draw the graph of an ONNX model to PICTURE."),
    ] = None,
) -> Report:
    """Show what FILE holds: the entries of a dump, or the outline of a model.

    Of a dump: keys, shapes, statistics and sizes; the page (--html) adds a histogram of each
    tensor. Of another ONNX model: inputs, outputs and operators, and a picture of the graph
    (--svg). Of another .safetensors file: its tensors. Nothing in FILE is run.
    The words ops, patches, sources and zoo show what torchferry itself has: operators it converts,
    patches of torch and transformers, what MODEL may be, models to try. The word environment
    shows what it runs with, for a bug report: versions, what they lack, providers, compiler,
    threads, and what is wrong.
    """
    if str(file) in _WORDS and not file.exists():
        from torchferry.exporter.inventory import INVENTORIES

        return INVENTORIES[str(file)]()
    found = _outline(file)
    if svg is not None:
        _draw(file, svg, drawable=found is not None)
    if found is not None:
        return _model_report(found, svg)
    from torchferry.dumper.summary import TensorsSummary, summarize

    told = summarize(file)
    return _tensors_report(told) if isinstance(told, TensorsSummary) else _dump_report(told)


def _outline(file: Path) -> Outline | None:
    """The outline of an ONNX model that is no dump; it is read without loading torch."""
    if file.suffix != ".onnx" or file.is_dir():
        return None
    from torchferry.graph.outline import outline

    found = outline(file)
    return None if _DUMP in found.metadata else found


def _draw(file: Path, picture: Path, *, drawable: bool) -> None:
    if not drawable:
        raise UsageError(f"--svg draws the graph of an ONNX model, and {file} is none")
    from torchferry.graph.draw import draw_svg
    from torchferry.report.file import write_whole

    write_whole(picture, draw_svg(file))


def _dump_report(found: DumpSummary) -> Report:
    tensors = [(entry, tensor) for entry in found.entries for tensor in entry.tensors]
    calls: list[Row] = [(repr(entry.key), entry.type) for entry in found.entries]
    pictures = [
        _histogram(f"{entry.key!r} {tensor.name}".strip(), tensor.statistics)
        for entry, tensor in tensors
        if tensor.statistics and len(tensor.statistics.counts) > 1
    ]
    sections = (
        Section("Entries", (_table(("key", "value"), calls, counted(len(calls), "key")),)),
        Section("Tensors", (_tree(found, counted(len(tensors), "tensor")),)),
        Section("Histograms", _shown(pictures), brief=False),
    )
    number = len(found.entries)
    what = f"{number} {'entry' if number == 1 else 'entries'}, {counted(len(tensors), 'tensor')}"
    return Report(
        title=f"inspect {found.path}",
        ok=True,
        verdict=f"a dump: {what}, {bytes_text(found.nbytes)}",
        sections=sections if pictures else sections[:2],
        next_steps=(
            f'have the values: torchferry.create_input_tensors_from_onnx_model("{found.path}")',
        ),
        data=_data("dump", found),
    )


def _tensors_report(found: TensorsSummary) -> Report:
    rows: list[Row] = [(t.name, t.type, bytes_text(t.nbytes)) for t in found.tensors]
    what = counted(len(rows), "tensor")
    blocks: tuple[Block, ...] = (_table(("tensor", "type", "size"), rows, what),)
    if found.metadata:
        blocks = (Facts(tuple((name, text[:200]) for name, text in found.metadata)), *blocks)
    return Report(
        title=f"inspect {found.path}",
        ok=True,
        verdict=f"a .safetensors file: {what}, {bytes_text(found.nbytes)}",
        sections=(Section("Tensors", blocks),),
        data=_data("safetensors", found),
    )


def _model_report(found: Outline, picture: Path | None) -> Report:
    nodes = sum(count for _, count in found.operators)
    weights = f"{found.initializers}, {bytes_text(found.initializer_bytes)}"
    if found.external:
        weights += f", some of them in {', '.join(found.external)}"
    facts = Facts(
        (
            ("made by", found.producer or "-"),
            ("opset", ", ".join(f"{domain} {version}" for domain, version in found.opsets)),
            ("IR version", str(found.ir_version)),
            ("least onnxruntime", found.least_onnxruntime or "-"),
            ("initializers", weights),
            ("file", bytes_text(found.nbytes)),
        )
    )
    values = [("input", *value) for value in found.inputs]
    values += [("output", *value) for value in found.outputs]
    histogram = Bars("", "", tuple((name, count) for name, count in found.operators))
    conditions = Table(
        ("condition", "decided by"),
        tuple(line.partition("  # ")[::2] for line in found.conditions),
        note="Sizes for which the model was proven; calls with others are refused.",
    )
    state = Table(
        ("state", "type"),
        found.state,
        note="Kept from call to call: give the output state_next.NAME as the input state.NAME of "
        "the next call. The metadata hold the values before the first one.",
    )
    kept = (Section("State", (state,)),) if found.state else ()
    where = (Section("Right where", (conditions,)),) if found.conditions else ()
    return Report(
        title=f"inspect {found.path}",
        ok=True,
        verdict=f"an ONNX model: {counted(nodes, 'node')}, opset {found.opsets[0][1]}",
        sections=(
            Section("Model", (facts,)),
            Section("Inputs and outputs", (Table(("kind", "name", "type"), tuple(values)),)),
            *kept,
            *where,
            Section("Operators", (histogram,)),
        ),
        next_steps=(
            (f"open {picture} in a browser",)
            if picture is not None
            else (f"draw the graph: torchferry inspect {found.path} --svg PICTURE.svg",)
        ),
        data=_data("onnx", found),
    )


def _tree(found: DumpSummary, tensors: str) -> Table:
    rows: list[Row] = []
    for entry in found.entries:
        if len(entry.tensors) == 1 and not entry.tensors[0].name:
            rows.append(_row(repr(entry.key), entry.tensors[0]))  # the value is this tensor
            continue
        size = bytes_text(sum(tensor.nbytes for tensor in entry.tensors))
        rows.append((repr(entry.key), "", size, "", "", "", "", ""))
        rows += [_row(f"..{tensor.name}", tensor) for tensor in entry.tensors]
    columns = ("entry and tensor", "type", "size", "min", "max", "mean", "NaN", "inf")
    return _table(columns, rows, tensors)


def _row(name: str, tensor: TensorSummary) -> Row:
    size = bytes_text(tensor.nbytes)
    told = tensor.statistics
    if told is None:
        return (name, tensor.type, size, "-", "-", "-", "-", "-")
    counts = [Cell(str(n), "warn") if n else "0" for n in (told.nans, told.infinities)]
    return (name, tensor.type, size, told.least, told.largest, told.mean, *counts)


def _table(columns: tuple[str, ...], rows: list[Row], what: str) -> Table:
    note = f"… the first {_ROWS} rows of {what}; --json has all"
    return Table(columns, tuple(rows[:_ROWS]), note=note if len(rows) > _ROWS else "")


def _histogram(title: str, told: Statistics) -> Bars:
    borders = [f"{edge:.4g}" for edge in told.edges]
    labels = [f"{low} to {high}" for low, high in pairwise(borders)]
    return Bars(title, "", tuple(zip(labels, map(float, told.counts), strict=True)))


def _shown(pictures: list[Bars]) -> tuple[Block, ...]:
    if len(pictures) <= _PICTURES:
        return tuple(pictures)
    more = f"the first {_PICTURES} of {len(pictures)} histograms; --json has all"
    return (Facts((("shown", more),)), *pictures[:_PICTURES])


def _data(kind: str, found: Any) -> dict[str, Any]:
    data = asdict(found)
    data["path"] = str(data["path"])
    return {"kind": kind, **data}
