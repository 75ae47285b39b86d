"""The first divergence alone: its nodes, given what the reference computed before them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from torchferry.comparer.align.segment import Segment, segment_of
from torchferry.comparer.comparison import Apart, Comparison, Row
from torchferry.comparer.explain.blame import blame
from torchferry.comparer.explain.channels import channel_difference
from torchferry.comparer.explain.judge import Allows
from torchferry.comparer.run.piece import cut, ort_value
from torchferry.comparer.setting import Setting
from torchferry.comparer.walk import Walk
from torchferry.dumper import open_dump
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.judge.value import difference_of

__all__ = ["check_places", "isolate"]

_HIDDEN = "one channel of it is wrong: next to others, far larger, that does not show in the whole"

_Piece = tuple[Segment, dict[str, torch.Tensor], torch.Tensor]


def check_places(keep: Path | str | None, cut: Path | str | None) -> None:
    """Refuse, before anything is run, what could not be written.

    Args:
        keep: a dump.
        cut: an ONNX file.

    Raises:
        UsageError: the file does not end in ``.onnx``, or a folder is not there or cannot be
            written to.
    """
    if cut is not None and (Path(cut).suffix != ".onnx" or Path(cut).is_dir()):
        raise UsageError(f"cannot cut to {cut}: give a file name that ends in .onnx")
    for path in (Path(one) for one in (keep, cut) if one is not None):
        if not path.parent.is_dir():
            raise UsageError(f"cannot write {path}: there is no folder {path.parent}")
        if not os.access(path.parent, os.W_OK):
            raise UsageError(f"cannot write {path}: {path.parent} cannot be written to")


def isolate(found: Comparison, setting: Setting, allows: Allows, path: Path | None) -> Comparison:
    """Cut out the first divergence, run it on the reference's values, and name its nodes.

    Args:
        found: what the walk gave; where nothing differs it is given back.
        setting: what was compared.
        allows: whether a value passes.
        path: where to write the segment, ``NAME.onnx``; nowhere when ``None``.

    Raises:
        UsageError: the files cannot be written.
    """
    row = found.first
    if row is None and not found.differing:
        return found
    notes: tuple[str, ...] = ()
    apart: Apart = difference_of
    if row is not None:
        piece = _piece(found, row, setting)
        row, notes = _alone(row, *piece, allows)
    if row is None or notes:
        hidden = _hidden(found, setting, allows)
        if hidden is not None:
            row, notes, apart = hidden, (_HIDDEN,), channel_difference
            found = _with(found, row)
            piece = _piece(found, row, setting)
    if row is None:
        return found
    segment, feeds, expected = piece
    blamed = blame(segment, setting, feeds, expected, allows, apart=apart)
    if path is not None:
        _write(path, segment, feeds, expected)
    notes = (*found.notes, *notes)
    suspects = tuple(str(node.name) for node in blamed)
    return replace(found, first=row, suspects=suspects, notes=notes, cut=path)


def _piece(found: Comparison, row: Row, setting: Setting) -> _Piece:
    """What makes a value, what the reference gives it, and what is to come out."""
    usable = [r.name for r in found.rows if r.got is None or r.got.dtype == r.expected.dtype]
    origins = setting.reference.origins
    known = {name: origins[name].key for name in usable if name != row.name}
    segment = segment_of(setting.onnx, row.name, known)
    values = dict(setting.reference.values({*segment.keys.values(), row.origin}))
    return segment, segment.feeds(setting.feeds, values), values[row.origin]


def _alone(
    row: Row,
    segment: Segment,
    feeds: Mapping[str, torch.Tensor],
    expected: torch.Tensor,
    allows: Allows,
) -> tuple[Row, tuple[str, ...]]:
    """The row with its own error, and what that says."""
    if row.verdict != "differs":
        return row, ()
    got = segment.run(feeds)[0].get(row.name)
    alone = difference_of(expected, got)
    inherited = allows(expected, alone)
    note = "given the reference's values it agrees: small differences before it grew here"
    return replace(row, local=alone), (note,) if inherited and row.local is None else ()


def _hidden(found: Comparison, setting: Setting, allows: Allows) -> Row | None:
    """The first value behind what differs, one channel of which is wrong by itself."""
    walk = Walk(setting, "torch", allows, channel_difference)
    walk.run()
    ends = found.differing if found.first is None else (found.first.name,)
    behind = {
        value.name
        for end in ends
        for node in segment_of(setting.onnx, end, {}).nodes
        for value in node.outputs
    }
    return next((r for r in walk.rows if r.verdict == "differs" and r.name in behind), None)


def _with(found: Comparison, row: Row) -> Comparison:
    """The comparison with this row in place of the one of its name."""
    rows = tuple(row if other.name == row.name else other for other in found.rows)
    return replace(found, rows=rows)


def _write(
    path: Path, segment: Segment, feeds: Mapping[str, torch.Tensor], expected: torch.Tensor
) -> None:
    given = {name: ort_value(tensor) for name, tensor in feeds.items()}
    io.save(cut(segment.model, segment.inputs, [segment.output], given), path)
    with open_dump(path.with_suffix(".inputs.safetensors")) as dump:
        dump.add("inputs", dict(feeds))
        dump.add("expected", {str(segment.output.name): expected})
