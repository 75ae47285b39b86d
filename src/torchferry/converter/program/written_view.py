"""Sizes at which a write in place goes to other memory than at those that were exported.

``x.t().contiguous()`` is a copy, but ``x`` itself if it has one row; ``x[:, ::2].reshape(-1)`` is
a view where ``x`` has an even number of columns. A functional program has decided for one of both.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from torchferry.converter.program.aliasing import hides, is_view, views_of_written
from torchferry.errors import ConversionError
from torchferry.values.source_line import user_line

__all__ = ["Relation", "WrittenView", "find_written_views"]

Sizes = Mapping[str, int]

_ALONE = range(1, 65)  # sizes that are tried of one symbol
_TOGETHER = (1, 2, 3, 4)  # of two
_MANY = 64  # sets of three symbols that are 1, of four and so on
_UNKNOWN = (1, 2, 3, 4, 6, 8)  # of one that data decides


@dataclass(frozen=True)
class Relation:
    """Two sizes in torch's symbols, and whether they are equal at the exported ones.

    Attributes:
        left: as text.
        right: as text.
        equal: whether they are.
    """

    left: str
    right: str
    equal: bool


@dataclass(frozen=True)
class WrittenView:
    """An operator that views or copies what is written to, by its sizes.

    Attributes:
        node: the call.
        views: whether it views at the exported sizes.
        relations: as long as one of them is as it was exported, it does; none if it always does.
    """

    node: fx.Node
    views: bool
    relations: tuple[Relation, ...]


def find_written_views(program: ExportedProgram) -> Iterator[WrittenView]:
    """Yield what must stay as it was exported.

    Whether it views depends on which sizes are 1, and which strides are products of a size and a
    stride. Sizes are tried, and the fewest relations are given that tell where it changes.
    """
    hints = _hints(program)
    known: set[Any] = set()
    for view, viewed in views_of_written(program):
        values = [node.meta.get("val") for node in (view, *view.all_input_nodes)]
        key = (view.target, str(view.args[1:]), *(_described(value) for value in values))
        if hides(view) and key not in known:
            known.add(key)
            yield from _of_operator(view, viewed, values, hints)


def _described(value: Any) -> str:
    tensor = isinstance(value, torch.Tensor)
    return f"{tuple(value.shape)} {value.stride()}" if tensor else str(value)


def _of_operator(
    view: fx.Node, viewed: fx.Node, values: Sequence[Any], hints: Sizes
) -> Iterator[WrittenView]:
    if unknown := _unknown(values, hints):
        _check_unknown(view, viewed, hints, unknown)
    pairs = list(dict.fromkeys(_pairs(values, hints)))
    symbols = sorted({str(one) for pair in pairs for side in pair for one in _symbols(side)})
    exported = [_equal(pair, hints) for pair in pairs]
    usual = is_view(view, viewed) if pairs else False
    same: list[set[int]] = []
    other: list[set[int]] = []
    for sizes in _samples(symbols, hints):
        try:
            now = [_equal(pair, sizes) for pair in pairs]
        except ZeroDivisionError:  # no such sizes
            continue
        changed = {i for i, (a, b) in enumerate(zip(now, exported, strict=True)) if a != b}
        if changed:  # nothing else decides
            (same if is_view(view, viewed, sizes) == usual else other).append(changed)
    if usual and not other and not _is_plain(viewed.meta.get("val")):
        yield WrittenView(view, usual, ())
    for clause in _clauses(other, same):
        relations = tuple(
            Relation(str(pairs[i][0]), str(pairs[i][1]), exported[i]) for i in clause
        )
        yield WrittenView(view, usual, relations)


def _is_plain(value: Any) -> bool:
    """Whether a tensor is contiguous by its strides; asking it would add a guard."""
    if not isinstance(value, torch.Tensor):
        return True
    expected: Any = 1
    for size, stride in zip(reversed(value.shape), reversed(value.stride()), strict=True):
        if _expression(stride) != expected:
            return False
        expected = expected * _expression(size)
    return True


def _unknown(values: Sequence[Any], hints: Sizes) -> list[str]:
    """Symbols of sizes that no input has: data decides, or torch could not tell."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    sizes = [_expression(size) for one in tensors for size in (*one.shape, *one.stride())]
    return sorted({str(one) for size in sizes for one in _symbols(size)} - hints.keys())


def _check_unknown(view: fx.Node, viewed: fx.Node, hints: Sizes, unknown: Sequence[str]) -> None:
    """Refuse a write that reaches the argument at some sizes, where nobody knows at which.

    Raises:
        ConversionError: it does.
    """
    ones: list[Sizes] = [hints, *({**hints, symbol: 1} for symbol in hints)]
    found = {
        is_view(view, viewed, {**known, **dict.fromkeys(unknown, size)})
        for known, size in itertools.product(ones, _UNKNOWN)
    }
    if len(found) > 1:
        raise ConversionError(
            f"{view.target} gives a view or a copy by a size that is known only where the model "
            "runs, and is written to in place: write to its argument instead, by index, or to "
            f"a clone() [{user_line(view.stack_trace) or 'no line is known'}]"
        )


def _pairs(values: Sequence[Any], hints: Sizes) -> Iterator[tuple[Any, Any]]:
    """Sizes of the result and the arguments that may or may not be equal."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    shapes = [[_expression(size) for size in tensor.shape] for tensor in tensors]
    found = [(size, 1) for shape in shapes for size in shape]
    for tensor, shape in zip(tensors, shapes, strict=True):
        strides = [_expression(stride) for stride in tensor.stride()]
        found += [
            (strides[i], shape[j] * strides[j])
            for i, j in itertools.combinations(range(len(shape)), 2)
        ]
        found += [(stride, 1) for stride in strides[-1:]]
        found += zip(shape[::-1], shapes[0][::-1], strict=False)
    for pair in found:
        named = {str(one) for side in pair for one in _symbols(side)}
        if pair[0] != pair[1] and named and named <= hints.keys():
            yield pair


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _symbols(size: Any) -> Any:
    return getattr(size, "free_symbols", ())


def _equal(pair: tuple[Any, Any], sizes: Sizes) -> bool:
    left, right = (
        side.subs({one: sizes[str(one)] for one in _symbols(side)}) if _symbols(side) else side
        for side in pair
    )
    return bool(left == right)


def _samples(symbols: Sequence[str], hints: Sizes) -> Iterator[Sizes]:
    for symbol, size in itertools.product(symbols, _ALONE):
        yield {**hints, symbol: size}
    for pair in itertools.combinations(symbols, 2):
        for sizes in itertools.product(_TOGETHER, repeat=2):
            yield {**hints, **dict(zip(pair, sizes, strict=True))}
    for count in range(3, len(symbols) + 1):  # with ones in all but one axis all layouts are one
        for some in itertools.islice(itertools.combinations(symbols, count), _MANY):
            yield {**hints, **dict.fromkeys(some, 1)}


def _clauses(other: Sequence[set[int]], same: Sequence[set[int]]) -> list[tuple[int, ...]]:
    """Pairs that never all change where nothing else does, some of each set of ``other``."""
    found: dict[tuple[int, ...], None] = {}
    for changed in sorted(other, key=len):
        if any(changed.issuperset(clause) for clause in found):
            continue
        clause = set(changed)
        for pair in sorted(changed, reverse=True):
            fewer = clause - {pair}
            if fewer and not any(fewer <= one for one in same):
                clause = fewer
        found[tuple(sorted(clause))] = None
    return [*found]


def _hints(program: ExportedProgram) -> dict[str, int]:
    """Of each symbol of the inputs' sizes what it was when they were exported."""
    values = [node.meta.get("val") for node in program.graph.find_nodes(op="placeholder")]
    sizes: list[Any] = [n for one in values if isinstance(one, torch.Tensor) for n in one.shape]
    sizes += [one for one in values if isinstance(one, torch.SymInt)]
    return {
        str(size.node.expr): size.node.hint
        for size in sizes
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
    }
