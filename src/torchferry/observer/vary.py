"""How sizes of inputs depend on a function's parameters: vary each and see which axes move."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torchferry.dims import Dim, Size, evaluate
from torchferry.errors import UsageError
from torchferry.observer.maker import Sizes
from torchferry.values.flatten import Path, path_text

__all__ = ["infer_axes", "sizes_in"]

_DIVISORS = range(2, 65)
_MOST_NAMES = 4  # that one size may depend on

Vector = dict[tuple[Path, int], int]


def sizes_in(leaves: Mapping[Path, Any]) -> Vector:
    """The sizes of tensors by path and axis, and integers at axis -1."""
    found: Vector = {}
    for path, leaf in leaves.items():
        if isinstance(leaf, torch.Tensor):
            found.update({(path, axis): size for axis, size in enumerate(leaf.shape)})
        elif type(leaf) is int:
            found[path, -1] = leaf
    return found


def infer_axes(
    first: Sizes,
    values: Mapping[str, Sequence[int]],
    leaves_at: Callable[[Sizes], Mapping[Path, Any] | None],
    title: str,
) -> dict[tuple[Path, int], Size]:
    """The sizes that move with parameters, as expressions of these.

    ``batch``, ``2*height``, ``offset + 1``, ``batch*heads``, ``length//2``. A size that moves in
    another way is left out.

    Args:
        first: sizes at which there are inputs.
        values: other sizes of each parameter that varies, the likely ones first.
        leaves_at: the inputs by path, or ``None`` if there are none of these sizes.
        title: what gives the inputs, for messages.

    Raises:
        UsageError: a parameter moves nothing, or the inputs have other tensors at other sizes.
    """
    table = _Table(first, values, leaves_at, title)
    axes: dict[tuple[Path, int], Size] = {}
    moving: set[str] = set()
    for place in table.base:
        names = [name for name in values if table.moves(place, name)]
        moving.update(names)
        size = _expression(place, names, table) if names else None
        if size is not None:
            axes[place] = size
    for name in values:
        if name not in moving:
            raise UsageError(
                f"{title}: its parameter {name} changes no size and no integer of the inputs "
                f"({name}={first[name]} and {table.shown(name)} give the same). Leave it out"
            )
    return axes


class _Table:
    """Sizes of the inputs at sizes of the parameters, each asked for once."""

    def __init__(
        self,
        first: Sizes,
        values: Mapping[str, Sequence[int]],
        leaves_at: Callable[[Sizes], Mapping[Path, Any] | None],
        title: str,
    ) -> None:
        self.first = first
        self.title = title
        self._leaves_at = leaves_at
        self._known: dict[tuple[tuple[str, int], ...], Vector | None] = {}
        base = self.at({})
        if base is None:
            raise AssertionError(first)  # the caller has seen inputs of these sizes
        self.base = base
        # Two other sizes of each parameter at which there are inputs, or one.
        self.values = {
            name: [n for n in possible if self.at({name: n}) is not None][:3]
            for name, possible in values.items()
        }

    def at(self, changed: Sizes) -> Vector | None:
        sizes = {**self.first, **changed}
        key = tuple(sorted(sizes.items()))
        if key not in self._known:
            leaves = self._leaves_at(sizes)
            self._known[key] = None if leaves is None else sizes_in(leaves)
            self._check(changed, self._known[key])
        return self._known[key]

    def _check(self, changed: Sizes, vector: Vector | None) -> None:
        if vector is None or not changed:
            return
        other = vector.keys() ^ self.base.keys()
        if other:
            path, _ = min(other, key=str)
            sizes = ", ".join(f"{name}={size}" for name, size in changed.items())
            raise UsageError(
                f"{self.title}: with {sizes} the inputs have other tensors, or tensors of another "
                f"rank, at {path_text(path)}. One graph serves one structure: return the same "
                "for all sizes"
            )

    def moves(self, place: tuple[Path, int], name: str) -> bool:
        vectors = (self.at({name: n}) for n in self.values[name])
        return any(v is not None and v[place] != self.base[place] for v in vectors)

    def shown(self, name: str) -> str:
        return " and ".join(f"{name}={n}" for n in self.values[name])

    def observed(
        self, place: tuple[Path, int], names: Sequence[str]
    ) -> Iterator[tuple[Sizes, int]]:
        """All that is known of a size when these parameters change."""
        choices = [[self.first[name], *self.values[name]] for name in names]
        for chosen in itertools.product(*choices):
            changed = dict(zip(names, chosen, strict=True))
            vector = self.at(changed)
            if vector is not None:
                yield changed, vector[place]


def _expression(place: tuple[Path, int], names: Sequence[str], table: _Table) -> Size | None:
    if len(names) > _MOST_NAMES:
        return None
    seen = list(table.observed(place, names))
    for size in _candidates(place, names, table):
        if all(evaluate(size, sizes) == value for sizes, value in seen):
            return size
    return None


def _candidates(place: tuple[Path, int], names: Sequence[str], table: _Table) -> Iterator[Size]:
    linear = _multilinear(place, names, table)
    if linear is not None:
        yield linear
    if len(names) == 1:
        name = Dim.of(names[0])
        yield name * name
        for divisor in _DIVISORS:
            for rounded in (name // divisor, (name + divisor - 1) // divisor):
                yield rounded
                yield rounded + 1
                yield rounded * divisor


def _multilinear(place: tuple[Path, int], names: Sequence[str], table: _Table) -> Size | None:
    """The sum of products of names, each at most once in a product, that fits the corners.

    The factor of a product is the difference over the corners of the box from the first sizes to
    the others, divided by the lengths of its sides.
    """
    if any(not table.values[name] for name in names):
        return None
    steps = {name: table.values[name][0] - table.first[name] for name in names}
    found: Size = 0
    for chosen in _subsets(names):
        total = 0
        for corner in _subsets(chosen):
            vector = table.at({name: table.values[name][0] for name in corner})
            if vector is None:
                return None
            total += (-1) ** (len(chosen) - len(corner)) * vector[place]
        volume = math.prod(steps[name] for name in chosen)
        if total % volume:
            return None
        product: Size = total // volume
        for name in chosen:
            product = product * (Dim.of(name) - table.first[name])
        found = found + product
    return found


def _subsets(names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for count in range(len(names) + 1):
        yield from itertools.combinations(names, count)
