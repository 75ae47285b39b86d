"""Calls of one piece that one graph can serve: the same nesting, dtypes, ranks and constants."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.diagnoser.record.tree import Piece, Record
from torchferry.observer.sets import Arguments
from torchferry.values.flatten import Structure, flatten

__all__ = ["NUMBERS", "Variant", "kind_of", "variants"]

NUMBERS = (bool, int, float)
"""Leaves that an operator can take as attributes; ``bool`` is looked for before ``int``."""

_CONSTANTS = (str, bool, int, float, complex, type(None), torch.dtype, torch.device)


@dataclass(frozen=True)
class Variant:
    """Some of a piece's calls.

    Attributes:
        structure: of ``(args, kwargs)``, each argument under its name where it has one.
        kinds: what each leaf is; see `kind_of`.
        calls: the calls, in order.
        example: the arguments of the first, as ``structure`` has them.
    """

    structure: Structure
    kinds: tuple[Hashable, ...]
    calls: tuple[Record, ...]
    example: Arguments


def kind_of(leaf: Any, *, numbers: bool = False) -> Hashable:
    """What has to be equal for two leaves to be served by one graph.

    Args:
        leaf: an argument.
        numbers: whether numbers may differ; then only their type counts.

    >>> kind_of(torch.zeros(2, 3)), kind_of(3), kind_of(3, numbers=True)
    (('tensor', torch.float32, 2), ('constant', 'int', 3), ('number', 'int'))
    """
    if isinstance(leaf, torch.Tensor):
        return "tensor", leaf.dtype, leaf.ndim
    name = type(leaf).__name__
    if isinstance(leaf, torch.SymBool | torch.SymInt | torch.SymFloat):
        name = name.removeprefix("Sym").lower()
    elif not numbers or type(leaf) not in NUMBERS:
        # Numbers by their text: NaN is NaN.
        return "constant", name, _comparable(leaf)
    return "number", name


def _comparable(leaf: Any) -> Hashable:
    if isinstance(leaf, float):
        return leaf if leaf == leaf else "nan"  # noqa: PLR0124  (NaN differs from itself)
    return leaf if isinstance(leaf, _CONSTANTS) else id(leaf)


def variants(piece: Piece, *, numbers: bool = False) -> list[Variant]:
    """The calls of a piece by kind, those that have most calls first.

    Args:
        piece: as it was recorded.
        numbers: whether calls that differ in a number belong together.
    """
    found: dict[tuple[Structure, tuple[Hashable, ...]], list[Record]] = {}
    for call in piece.calls:
        leaves, structure = flatten(piece.normalized(call.args, call.kwargs))
        kinds = tuple(kind_of(leaf, numbers=numbers) for _, leaf in leaves)
        found.setdefault((structure, kinds), []).append(call)
    made = [
        Variant(*key, tuple(calls), piece.normalized(calls[0].args, calls[0].kwargs))
        for key, calls in found.items()
    ]
    return sorted(made, key=lambda variant: -len(variant.calls))
