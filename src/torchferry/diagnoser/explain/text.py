"""The tree of pieces as text: what became of each, and what was given to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.trial.status import StatusExport
from torchferry.values.describe import string_type
from torchferry.values.flatten import flatten

__all__ = ["pretty_lines", "report_rows", "report_text", "waiting_text"]

StatusOf = Callable[[Piece], StatusExport | None]


def waiting_text(piece: Piece) -> str:
    """What is said of a piece that was not tried: how many inputs it has, and a usable one.

    >>> import torch
    >>> from torchferry.diagnoser.record.tree import Piece
    >>> piece = Piece(None, "m", torch.nn.ReLU())
    >>> piece.add_call((torch.zeros(0),), {})
    >>> piece.add_call((torch.zeros(2),), {})
    >>> waiting_text(piece)
    '<OK-2i-1>'
    """
    if not piece.calls:
        return "<NOINPUT>"
    usable = (
        str(number)
        for number, given in enumerate(piece.inputs)
        if all(
            getattr(leaf, "shape", None) is None or leaf.numel() for _, leaf in flatten(given)[0]
        )
    )
    return f"<OK-{len(piece.calls)}i-{next(usable, 'may-need-more')}>"


def report_rows(root: Piece, status_of: StatusOf) -> Iterator[tuple[str, str, str]]:
    """For each piece: indented name, class, status."""
    for piece in root.walk():
        status = status_of(piece)
        text = waiting_text(piece) if status is None else status.pretty_text()
        yield piece.dot_name, piece.title, text


def report_text(
    root: Piece, status_of: StatusOf, exported_program: bool = False, fx: bool = False
) -> str:
    """One line a piece, in columns.

    Args:
        root: where to begin.
        status_of: what became of a piece; None when it was not tried.
        exported_program: add what was exported, in lines that start with ``ep:``.
        fx: add its graph instead, in lines that start with ``fx:``.
    """
    rows = list(report_rows(root, status_of))
    name, title = (max(len(row[column]) for row in rows) for column in (0, 1))
    lines = []
    for piece, row in zip(root.walk(), rows, strict=True):
        lines.append(f"{row[0]:{name}}   {row[1]:{title}}   {row[2]}")
        status = status_of(piece)
        if status is not None and status.exported is not None and (exported_program or fx):
            mark, shown = "ep", status.exported
            if fx and hasattr(shown, "graph"):
                mark, shown = "fx", shown.graph
            lines += [f"{mark}:{line}" for line in str(shown).rstrip().splitlines()]
    return "\n".join(lines)


def pretty_lines(
    piece: Piece,
    *,
    shapes: Callable[[Piece], Any] | None = None,
    with_inputs: bool = True,
    **options: bool,
) -> Iterator[str]:
    """The tree with inputs (``>``) and outputs (``<``) of every call.

    Args:
        piece: where to begin.
        shapes: gives the dynamic shapes of a piece, to be shown too.
        with_inputs: show inputs and outputs.
        options: of `string_type`.
    """
    method = "" if piece.method_name == "forward" else f"::{piece.method_name}"
    yield f">>> {piece.name}{method}: {piece.title}"
    if shapes is not None and piece.calls:
        yield f"  DS={shapes(piece)}"
    calls = piece.calls if with_inputs else []
    for call in calls:
        yield f"  > {string_type((call.args, call.kwargs), **options)}"
    for child in piece.children:
        for line in pretty_lines(child, shapes=shapes, with_inputs=with_inputs, **options):
            yield f"    {line}"
    for call in calls:
        outputs = call.outputs if isinstance(call.outputs, tuple) else (call.outputs,)
        yield f"  < {string_type(outputs, **options)}"
    yield "<<<"
