"""``torchferry inspect``: what a dump, an ONNX model or a ``.safetensors`` file holds."""

from __future__ import annotations

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchferry.report.model import Bars, Block, Cell, Facts, Report, Section, Source, Table

if TYPE_CHECKING:
    from torchferry.dumper.statistics import Statistics
    from torchferry.dumper.summary import (
        DumpSummary,
        ModelSummary,
        TensorsSummary,
        TensorSummary,
    )

__all__ = ["inspect"]

_ROWS = 300  # tensors told one by one, so that a page stays small; the JSON form has all
_PICTURES = 30

Row = tuple[Cell | str | int | float, ...]


def inspect(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A dump (file or folder), a .onnx or a .safetensors."),
    ],
) -> Report:
    """Show what FILE holds: the entries of a dump, or the outline of a model.

    Of a dump: keys, shapes, statistics and sizes; the page (--html) adds a histogram of each
    tensor. Of another ONNX model: inputs, outputs and operators. Of another .safetensors file:
    its tensors. Nothing in FILE is run.
    """
    from torchferry.dumper.summary import ModelSummary, TensorsSummary, summarize

    found = summarize(file)
    if isinstance(found, ModelSummary):
        return _model_report(found)
    return _tensors_report(found) if isinstance(found, TensorsSummary) else _dump_report(found)


def _dump_report(found: DumpSummary) -> Report:
    from torchferry.exporter.steps import counted

    tensors = [(entry, tensor) for entry in found.entries for tensor in entry.tensors]
    calls = "\n".join(f"{entry.key!r} -- {entry.type}" for entry in found.entries)
    pictures = [
        _histogram(f"{entry.key!r} {tensor.name}".strip(), tensor.statistics)
        for entry, tensor in tensors
        if tensor.statistics and len(tensor.statistics.counts) > 1
    ]
    sections = (
        Section("Entries", (Source("", calls or "none"),)),
        Section("Tensors", (_tree(found, len(tensors)),)),
        Section("Histograms", _shown(pictures), brief=False),
    )
    number = len(found.entries)
    what = f"{number} {'entry' if number == 1 else 'entries'}, {counted(len(tensors), 'tensor')}"
    return Report(
        title=f"inspect {found.path}",
        ok=True,
        verdict=f"a dump: {what}, {_size(found.nbytes)}",
        sections=sections if pictures else sections[:2],
        next_steps=(
            f'have the values: torchferry.create_input_tensors_from_onnx_model("{found.path}")',
        ),
        data=_data("dump", found),
    )


def _tensors_report(found: TensorsSummary) -> Report:
    from torchferry.exporter.steps import counted

    rows: list[Row] = [(t.name, t.type, _size(t.nbytes)) for t in found.tensors]
    blocks: tuple[Block, ...] = (_table(("tensor", "type", "size"), rows, len(rows)),)
    if found.metadata:
        blocks = (Facts(tuple((name, text[:200]) for name, text in found.metadata)), *blocks)
    return Report(
        title=f"inspect {found.path}",
        ok=True,
        verdict=f"a .safetensors file: {counted(len(rows), 'tensor')}, {_size(found.nbytes)}",
        sections=(Section("Tensors", blocks),),
        data=_data("safetensors", found),
    )


def _model_report(found: ModelSummary) -> Report:
    from torchferry.exporter.steps import counted

    nodes = sum(count for _, count in found.operators)
    weights = f"{found.initializers}, {_size(found.initializer_bytes)}"
    if found.external:
        weights += f", some of them in {', '.join(found.external)}"
    facts = Facts(
        (
            ("made by", found.producer or "-"),
            ("opset", ", ".join(f"{domain} {version}" for domain, version in found.opsets)),
            ("IR version", str(found.ir_version)),
            ("initializers", weights),
            ("file", _size(found.nbytes)),
        )
    )
    values = [("input", *value) for value in found.inputs]
    values += [("output", *value) for value in found.outputs]
    histogram = Bars("Operators", "", tuple((name, count) for name, count in found.operators))
    return Report(
        title=f"inspect {found.path}",
        ok=True,
        verdict=f"an ONNX model: {counted(nodes, 'node')}, opset {found.opsets[0][1]}",
        sections=(
            Section("Model", (facts,)),
            Section("Inputs and outputs", (Table(("kind", "name", "type"), tuple(values)),)),
            Section("Operators", (histogram,)),
        ),
        data=_data("onnx", found),
    )


def _tree(found: DumpSummary, tensors: int) -> Table:
    rows: list[Row] = []
    for entry in found.entries:
        size = _size(sum(tensor.nbytes for tensor in entry.tensors))
        rows.append((repr(entry.key), "", size, "", "", "", "", ""))
        rows += [_row(tensor) for tensor in entry.tensors]
    columns = ("entry and tensor", "type", "size", "min", "max", "mean", "NaN", "inf")
    return _table(columns, rows, tensors)


def _row(tensor: TensorSummary) -> Row:
    name, size = f"..{tensor.name}", _size(tensor.nbytes)
    told = tensor.statistics
    if told is None:
        return (name, tensor.type, size, "-", "-", "-", "-", "-")
    counts = [Cell(str(n), "warn") if n else "0" for n in (told.nans, told.infinities)]
    return (name, tensor.type, size, told.least, told.largest, told.mean, *counts)


def _table(columns: tuple[str, ...], rows: list[Row], tensors: int) -> Table:
    note = f"… the first {_ROWS} rows of {tensors} tensors; --json has all"
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


def _size(count: int) -> str:
    from torchferry.exporter.steps import bytes_text

    return bytes_text(count)
