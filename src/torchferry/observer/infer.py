"""Which dimensions vary, which always move together, and why it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.dims import Dim, Size
from torchferry.errors import UsageError
from torchferry.observer.naming import conventional_name, input_name
from torchferry.values.flatten import Path, path_text

__all__ = ["Argument", "Axis", "infer_arguments"]

Sizes = tuple[int | None, ...]  # one a call; None where the call says nothing


@dataclass(frozen=True)
class Axis:
    """One dimension of a tensor argument.

    Attributes:
        index: the axis.
        size: a constant, or a named size or sum of such when it varies.
        seen: the size in each call; ``None`` where the tensor was absent.
        reason: why it is said to be dynamic or static.
    """

    index: int
    size: Size
    seen: Sizes
    reason: str


@dataclass(frozen=True)
class Argument:
    """A tensor or constant the model is given.

    Attributes:
        path: where it stands: ``("past_key_values", "key_cache", 0)``.
        dtype: of a tensor; ``None`` for a constant.
        axes: one a dimension; empty for a constant.
        value: of a constant.
        optional: absent in some of the calls.
        label: the parameter's name, where ``path`` starts with a position.
    """

    path: Path
    dtype: torch.dtype | None
    axes: tuple[Axis, ...] = ()
    value: Any = None
    optional: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """What the graph input is called: ``past_key_values.0.key``."""
        return input_name((self.label, *self.path[1:]) if self.label else self.path)

    @property
    def cached(self) -> bool:
        """Whether it is a key or value of a cache, which an empty cache leaves out."""
        return _in_cache(self.path)


def infer_arguments(calls: Sequence[Mapping[Path, Any]]) -> list[Argument]:
    """Describe every argument over all calls.

    A dimension is dynamic when its size differs between calls. Dimensions whose sizes agree in
    every call are one dimension; one that is always the sum or product of two others, or a
    multiple of another, is written so.

    Args:
        calls: for each call, its leaves by path.

    Raises:
        UsageError: an argument changes its rank, its dtype or, for a constant, its value.
    """
    paths = dict.fromkeys(path for call in calls for path in call)
    columns = {path: [call.get(path) for call in calls] for path in paths}
    vectors: dict[tuple[Path, int], Sizes] = {}
    for path, column in columns.items():
        _check(path, column)
        for axis, sizes in enumerate(_sizes(path, column)):
            if len({s for s in sizes if s is not None}) > 1:
                vectors[path, axis] = sizes
    ranks = {path: len(_sizes(path, column)) for path, column in columns.items()}
    named = _solve(vectors, ranks)
    return [_describe(path, column, named) for path, column in columns.items()]


def _in_cache(path: Path) -> bool:
    return "key_cache" in path or "value_cache" in path


def _check(path: Path, column: Sequence[Any]) -> None:
    present = [leaf for leaf in column if leaf is not None]
    where = path_text(path)
    if all(isinstance(leaf, torch.Tensor) for leaf in present):
        for what in ("ndim", "dtype"):
            values = list(dict.fromkeys(getattr(leaf, what) for leaf in present))
            if len(values) > 1:
                word = {"ndim": "rank", "dtype": "dtype"}[what]
                raise UsageError(
                    f"argument {where} changes its {word} between calls: "
                    f"{', '.join(map(str, values))}. One graph serves one {word}: "
                    "give input sets that agree"
                )
    elif any(type(leaf) is not type(present[0]) or leaf != present[0] for leaf in present[1:]):
        raise UsageError(
            f"argument {where} is {present[0]!r} in one call and "
            f"{next(p for p in present if p != present[0])!r} in another: a value that is no "
            "tensor becomes part of the graph. Give one value, or pass it as a tensor"
        )


def _sizes(path: Path, column: Sequence[Any]) -> list[Sizes]:
    """For each axis the size in each call; absent keys and values of a cache have length 0."""
    example = next(leaf for leaf in column if leaf is not None)
    if not isinstance(example, torch.Tensor):
        return []
    length = example.ndim - 2 if _in_cache(path) else None
    return [
        tuple(
            leaf.shape[axis] if leaf is not None else 0 if axis == length else None
            for leaf in column
        )
        for axis in range(example.ndim)
    ]


def _solve(
    vectors: Mapping[tuple[Path, int], Sizes], ranks: Mapping[Path, int]
) -> dict[Sizes, tuple[Size, str]]:
    """Name each vector of sizes: ``vector → (size, how it was found)``."""
    solved: dict[Sizes, tuple[Size, str]] = {}
    taken: set[str] = set()
    # Small sizes first: sums and products are larger than what they are made of.
    for sizes in sorted(set(vectors.values()), key=lambda v: sum(s or 0 for s in v)):
        found = _expressed(sizes, solved)
        if found is None:
            places = [place for place, v in vectors.items() if v == sizes]
            name = _pick_name(places, ranks, taken)
            taken.add(name)
            found = (Dim.of(name), "")
        solved[sizes] = found
    return solved


def _pick_name(
    places: Sequence[tuple[Path, int]], ranks: Mapping[Path, int], taken: set[str]
) -> str:
    candidates = [conventional_name(path, axis, ranks[path]) for path, axis in places]
    path, axis = places[0]
    fallback = f"{'_'.join(map(str, path))}_dim_{axis}"
    return next((n for n in candidates if n is not None and n not in taken), fallback)


def _expressed(sizes: Sizes, solved: Mapping[Sizes, tuple[Size, str]]) -> tuple[Size, str] | None:
    """The sizes in terms of those already named, or ``None``."""
    if None in sizes:
        match = [v for v in solved if _agree(sizes, v)]
        return solved[match[0]] if len(match) == 1 else None
    known = [(v, size) for v, (size, _) in solved.items() if None not in v]
    for index, (left, a) in enumerate(known):
        for right, b in known[index:]:
            pairs = list(zip(sizes, left, right, strict=True))
            if all(s == (x or 0) + (y or 0) for s, x, y in pairs):
                return a + b, "sum"
            if all(s == (x or 0) * (y or 0) for s, x, y in pairs):
                return a * b, "product"
    for vector, size in known:
        factors = {(s or 0) / v if v else None for s, v in zip(sizes, vector, strict=True)}
        factor = next(iter(factors))
        if len(factors) == 1 and factor is not None and factor.is_integer() and factor > 1:
            return size * int(factor), "multiple"
    return None


def _agree(left: Sizes, right: Sizes) -> bool:
    pairs = [p for p in zip(left, right, strict=True) if None not in p]
    return bool(pairs) and all(a == b for a, b in pairs)


def _describe(
    path: Path, column: Sequence[Any], named: Mapping[Sizes, tuple[Size, str]]
) -> Argument:
    optional = any(leaf is None for leaf in column)
    example = next(leaf for leaf in column if leaf is not None)
    if not isinstance(example, torch.Tensor):
        return Argument(path, None, value=example, optional=optional)
    axes = []
    for index, sizes in enumerate(_sizes(path, column)):
        seen = ", ".join("absent" if s is None else str(s) for s in sizes)
        if sizes in named:
            size, how = named[sizes]
            relation = f" = {size} in every call" if how else ""
            axes.append(Axis(index, size, sizes, f"{seen} → dynamic{relation}"))
        else:
            constant = next(s for s in sizes if s is not None)
            calls = "the only call" if len(column) == 1 else f"all {len(column)} calls"
            axes.append(Axis(index, constant, sizes, f"{constant} in {calls} → static"))
    return Argument(path, example.dtype, tuple(axes), optional=optional)
