"""The shape of every output of a piece as expressions of the sizes of its inputs.

A custom operator that stands for a module has to tell torch.export what it returns. The sizes of
recorded calls leave that open more often than not (from 2 → 4 and 5 → 10 follow ``2*n``, from one
more call it could not be ``n + 2``), so the module is run at sizes of our choice too: with fake
tensors where its code allows, which costs no memory, else with real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

import torch

from torchferry.diagnoser.record.probe import probe
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.record.variant import Variant
from torchferry.dims import Dim, Size

__all__ = ["Slot", "Unsolved", "measure", "size_at", "solve_row", "solve_shapes"]

Slot = tuple[int, int]
"""An input's number among the leaves, and its axis; -1 for the value of an integer."""

Column = tuple[int, ...]

_ENOUGH = 4  # rows that differ; with fewer, only one expression may fit
_STRIDES = range(2, 33)


class Unsolved(Exception):  # noqa: N818  (it is caught where the module is named)
    """A size that no expression was found for.

    Attributes:
        axis: of the output.
        seen: its sizes.
        why: in half a sentence.
    """

    def __init__(self, axis: int, seen: tuple[int, ...], why: str) -> None:
        super().__init__(why)
        self.axis = axis
        self.seen = seen
        self.why = why


def measure(leaves: Sequence[Any]) -> dict[Slot, Any]:
    """The sizes of tensors, and the values of integers, by where they stand.

    >>> measure([torch.zeros(2, 3), 7, None])
    {(0, 0): 2, (0, 1): 3, (1, -1): 7}
    """
    found: dict[Slot, Any] = {}
    for number, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            found |= {(number, axis): size for axis, size in enumerate(leaf.shape)}
        elif isinstance(leaf, int | torch.SymInt) and not isinstance(leaf, bool):
            found[number, -1] = leaf
    return found


def solve_shapes(piece: Piece, variant: Variant) -> list[tuple[Size, ...] | Unsolved]:
    """The shape of every tensor that a piece returns, over names that `size_at` reads.

    Args:
        piece: as it was recorded.
        variant: those of its calls that one operator serves.

    Returns:
        for each output tensor, its sizes, or what could not be solved.
    """
    rows = probe(piece, variant)
    columns = _columns([measure(row.inputs) for row in rows])
    solved: list[tuple[Size, ...] | Unsolved] = []
    for number in range(len(rows[0].outputs)):
        shapes = [row.outputs[number] for row in rows]
        if len({len(shape) for shape in shapes}) > 1:
            solved.append(Unsolved(0, (), "its rank changes"))
            continue
        try:
            solved.append(tuple(
                solve_row(tuple(shape[axis] for shape in shapes), columns, axis)
                for axis in range(len(shapes[0]))
            ))  # fmt: skip
        except Unsolved as error:
            solved.append(error)
    return solved


def _columns(rows: Sequence[Mapping[Slot, int]]) -> dict[Column, str]:
    """The sizes that vary, each once, and the name of the first place that has them."""
    found: dict[Column, str] = {}
    for slot in rows[0]:
        if all(slot in row for row in rows):
            column = tuple(row[slot] for row in rows)
            if len(set(column)) > 1:
                found.setdefault(column, _name(slot))
    return found


def _name(slot: Slot) -> str:
    number, axis = slot
    return f"x{number}" if axis < 0 else f"x{number}_{axis}"


def solve_row(wanted: Column, columns: Mapping[Column, str], axis: int = 0) -> Size:
    """One size as an expression of others.

    Args:
        wanted: the size in each run.
        columns: the others' sizes in the same runs, with their names.
        axis: for the message.

    Raises:
        Unsolved: nothing fits, or several expressions do and there are too few runs to choose.

    >>> str(solve_row((5, 7, 11, 13), {(2, 3, 5, 6): "n"}))
    '2*n + 1'
    """
    if len(set(wanted)) == 1:
        return wanted[0]
    if wanted in columns:
        return Dim.of(columns[wanted])
    runs: dict[tuple[int, ...], int] = {}
    for row in zip(wanted, *columns, strict=True):
        if runs.setdefault(row[1:], row[0]) != row[0]:
            raise Unsolved(axis, wanted, "inputs of one size give several")
    found: list[Size] = []
    for fit in (_affine, _two, _strided):
        found += [size for size in fit(wanted, columns) if size not in found]
        if found and len(runs) >= _ENOUGH:
            return found[0]
    if len(found) == 1:
        return found[0]
    why = "several expressions fit" if found else "no expression of the input sizes fits"
    raise Unsolved(axis, wanted, why)


def _affine(wanted: Column, columns: Mapping[Column, str]) -> list[Size]:
    """``a*n + b``: with ``a`` or ``b`` left out first."""
    found: list[Size] = []
    for column, name in columns.items():
        n = Dim.of(name)
        shift = wanted[0] - column[0]
        if all(w == c + shift for w, c in zip(wanted, column, strict=True)):
            found.append(n + shift)
        i, j = column.index(min(column)), column.index(max(column))
        factor, left = divmod(wanted[j] - wanted[i], column[j] - column[i])
        rest = wanted[i] - factor * column[i]
        fits = not left and factor not in (0, 1)
        if fits and all(w == factor * c + rest for w, c in zip(wanted, column, strict=True)):
            found.append(n * factor + rest)
    return sorted(found, key=lambda size: len(str(size)))


def _two(wanted: Column, columns: Mapping[Column, str]) -> list[Size]:
    """Sums, differences and multiples of products of two, with a constant."""
    found: list[Size] = []
    for (a, left), (b, right) in combinations_with_replacement(columns.items(), 2):
        x, y = Dim.of(left), Dim.of(right)
        pairs = list(zip(wanted, a, b, strict=True))
        if left != right:
            for sign, size in ((1, x + y), (-1, x - y)):
                rests = {w - p - sign * q for w, p, q in pairs}
                if len(rests) == 1:
                    found.append(size + rests.pop())
            rests = {w + p - q for w, p, q in pairs}
            if len(rests) == 1:
                found.append(y - x + rests.pop())
        ratios = {divmod(w, p * q) if p * q else (-1, 0) for w, p, q in pairs}
        if len(ratios) == 1:
            factor, left_over = ratios.pop()
            if factor > 0 and not left_over:
                found.append(x * y * factor)
    return found


def _strided(wanted: Column, columns: Mapping[Column, str]) -> list[Size]:
    """``(n + a)//b``: what convolutions and pooling with a stride give."""
    found: list[Size] = []
    for column, name in columns.items():
        for by in _STRIDES:
            pairs = list(zip(wanted, column, strict=True))
            low = max(w * by - c for w, c in pairs)
            high = min((w + 1) * by - c - 1 for w, c in pairs)
            if low == high or (low < high and low <= 0 <= high):
                found.append((Dim.of(name) + (low if low == high else 0)) // by)
    return found


def size_at(size: Size, leaves: Sequence[Any]) -> Any:
    """A solved size for the leaves of a call: an int, or a SymInt where they are symbolic.

    >>> size_at(Dim.of("x0_1") * 2 + 1, [torch.zeros(2, 3)])
    7
    """
    return _evaluate(size, {_name(slot): value for slot, value in measure(leaves).items()})


def _evaluate(size: Size, values: Mapping[str, Any]) -> Any:
    if isinstance(size, int):
        return size
    total: Any = 0
    for monomial, coefficient in size.terms.items():
        product: Any = coefficient
        for atom in monomial:
            if not atom.op:
                product = product * values[str(atom.args[0])]
            else:  # `_strided` makes no other
                left, right = (_evaluate(a, values) for a in atom.args if not isinstance(a, str))
                product = product * (left // right)
        total = total + product
    return total
