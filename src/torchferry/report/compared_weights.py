"""The weights that an ONNX file has otherwise than the model, as parts of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torchferry.report.model import Cell, Table
from torchferry.report.number import number_text
from torchferry.report.quantity import counted

if TYPE_CHECKING:
    from torchferry.comparer import WeightDifference

__all__ = ["ADVICE", "weight_problems", "weight_rows", "weight_table", "weight_verdict"]

ADVICE = "export the model again, or compare with the model that the file was made from"
"""What to do about a weight that differs."""

_SHOWN = 50  # rows of the table
_SAID = 3  # sentences


def weight_table(weights: Sequence[WeightDifference]) -> Table:
    """A row for each weight, in the order of the graph."""
    rows = [
        (
            Cell(weight.name, "bad"), weight.initializer, str(list(weight.index)),
            number_text(weight.expected), number_text(weight.got), number_text(weight.abs),
            f"{weight.wrong} of {weight.size}", weight.node,
        )
        for weight in weights[:_SHOWN]
    ]  # fmt: skip
    more = len(weights) - len(rows)
    columns = ("weight", "initializer", "at", "model", "file", "max abs", "elements", "read by")
    return Table(columns, tuple(rows), note=f"and {more} more; --json has all" if more else "")


def weight_verdict(weights: Sequence[WeightDifference]) -> str:
    """The first weight in a sentence, and how many more there are."""
    more = counted(len(weights) - 1, "more weight")
    return str(weights[0]) + (f", as {more} do" if len(weights) > 1 else "")


def weight_problems(weights: Sequence[WeightDifference]) -> list[str]:
    """A sentence for each of the first weights, and what to do."""
    said = [str(weight) for weight in weights[:_SAID]]
    if len(weights) > _SAID:
        said.append(f"{counted(len(weights) - _SAID, 'more weight')} differ; see Weights")
    return [*said[:-1], f"{said[-1]}: {ADVICE}"] if said else []


def weight_rows(weights: Sequence[WeightDifference]) -> list[dict[str, Any]]:
    """All of them, for JSON."""
    return [
        {
            "name": weight.name, "initializer": weight.initializer, "at": list(weight.index),
            "expected": weight.expected, "got": weight.got, "abs": weight.abs,
            "wrong": weight.wrong, "size": weight.size, "node": weight.node,
        }
        for weight in weights
    ]  # fmt: skip
