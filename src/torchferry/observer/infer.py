"""Which dimensions and integers vary, which always move together, and why it is said."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from torchferry.dims import Dim, Size, substitute
from torchferry.errors import UsageError
from torchferry.observer.naming import conventional_name, in_cache, input_name, pick_name
from torchferry.values.flatten import Path, flatten, path_text
from torchferry.values.kinds import find_kind
from torchferry.values.layout import why_not_ordinary

__all__ = ["Argument", "Axis", "infer_arguments", "same_constant"]

Sizes = tuple[int | None, ...]  # one a call; None where the call says nothing
Place = tuple[Path, int, int]  # path of a tensor, axis, rank

_CALLS_FOR_AN_ACCIDENT = 3  # two calls make too many sums, products and integers agree
_PARTS = {"past_sequence_length", "sequence_length"}  # a sum of these is expected


@dataclass(frozen=True)
class Axis:
    """One dimension of a tensor argument, or an integer argument that varies.

    Attributes:
        index: the axis; -1 for the integer itself.
        size: a constant, or a named size or sum of such when it varies.
        seen: the size in each call; ``None`` where the argument was absent.
        reason: why it is said to be dynamic or static.
    """

    index: int
    size: Size
    seen: Sizes
    reason: str


@dataclass(frozen=True)
class Argument:
    """A tensor, an integer that varies, or a constant the model is given.

    Attributes:
        path: where it stands: ``("past_key_values", "key_cache", 0)``.
        dtype: of a tensor; ``None`` for the others.
        axes: one a dimension; empty for the others.
        value: of a constant.
        optional: absent in some of the calls.
        integer: what an integer is in each call, if it varies; torch.export can have it dynamic.
        label: the parameter's name, where ``path`` starts with a position.
    """

    path: Path
    dtype: torch.dtype | None
    axes: tuple[Axis, ...] = ()
    value: Any = None
    optional: bool = False
    label: str = ""
    integer: Axis | None = None

    @property
    def name(self) -> str:
        """What the graph input is called: ``past_key_values.0.key``."""
        return input_name((self.label, *self.path[1:]) if self.label else self.path)

    @property
    def sizes(self) -> tuple[Axis, ...]:
        """All that may be dynamic: the dimensions of a tensor, or the integer."""
        return self.axes if self.integer is None else (self.integer,)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its sizes that are dynamic, but for expressions."""
        sizes = (axis.size for axis in self.sizes)
        return tuple(size.name for size in sizes if isinstance(size, Dim) and size.name)

    @property
    def reasons(self) -> str:
        """Why its sizes are dynamic or static, or the value of a constant, in one line."""
        if self.dtype is None and self.integer is None:
            return repr(self.value)
        return "; ".join(f"{axis.size}: {axis.reason}" for axis in self.sizes)

    @property
    def cached(self) -> bool:
        """Whether it is a key or value of a cache, which an empty cache leaves out."""
        return in_cache(self.path)


def infer_arguments(
    calls: Sequence[Mapping[Path, Any]], preallocated: Collection[Path] = ()
) -> list[Argument]:
    """Describe every argument over all calls.

    A dimension is dynamic when its size differs between calls, and so is an integer. Dimensions
    whose sizes agree in every call are one dimension; one that is always the sum or product of two
    others, or a multiple of another, is written so. Two calls are too few for that, but for the
    length of a past and a sequence. A call in which an argument is absent says nothing of it.

    Args:
        calls: for each call, its leaves by path.
        preallocated: where caches stand whose length does not say how much is in them.

    Raises:
        UsageError: an argument changes its rank, its dtype or, for a constant that is no integer,
            its value.
    """
    paths = dict.fromkeys(path for call in calls for path in call)
    columns = {path: [call.get(path) for call in calls] for path in paths}
    places: dict[Sizes, list[Place]] = {}
    lengths: set[int] = set()
    for path, column in columns.items():
        _check(path, column)
        vectors = _sizes(path, column, preallocated)
        rank = _example(column).ndim if _is_tensor(column) else 0
        for axis, sizes in enumerate(vectors):
            place = (path, axis, rank)
            known = {s for s in sizes if s is not None}
            if len(known) > 1 and (rank or len(calls) >= _CALLS_FOR_AN_ACCIDENT):
                places.setdefault(sizes, []).append(place)
            elif conventional_name(*place) == "sequence_length":
                lengths |= known
    named = _solve(places, [(length,) * len(calls) for length in lengths])
    found: list[Argument] = []
    taken = {str(size) for size, _ in named.values()}
    for path, column in columns.items():
        own = None
        if _varies(column) and len(calls) < _CALLS_FOR_AN_ACCIDENT:
            own = Dim.of(pick_name([(path, 0, 0)], taken))
            taken.add(str(own))
        vectors = _sizes(path, column, preallocated)
        found.append(_describe(path, column, vectors, named, own))
    return found


def _check(path: Path, column: Sequence[Any]) -> None:
    first, *others = [leaf for leaf in column if leaf is not None]
    where = path_text(path)
    if all(isinstance(leaf, torch.Tensor) for leaf in (first, *others)):
        for leaf in (first, *others):
            _refuse_own_rules(where, leaf)
        for attribute, word in (("ndim", "rank"), ("dtype", "dtype")):
            values = list(dict.fromkeys(getattr(leaf, attribute) for leaf in (first, *others)))
            if len(values) > 1:
                raise UsageError(
                    f"argument {where} changes its {word} between calls: "
                    f"{', '.join(map(str, values))}. One graph serves one {word}: "
                    "give input sets that agree"
                )
        return
    for leaf in (first, *others):
        _refuse_opaque(where, leaf)
        _refuse_unknown(where, leaf)
    different = next((leaf for leaf in others if not same_constant(first, leaf)), None)
    if different is not None and not _varies(column):
        raise UsageError(
            f"argument {where} is {_shown(first)} in one call and {_shown(different)} in another: "
            "a value that is no tensor, nor an integer in every call, becomes part of the graph. "
            "Give one value, or pass it as a tensor in every call"
        )


def _refuse_own_rules(where: str, leaf: torch.Tensor) -> None:
    """A program holds what plain tensors go through."""
    if reason := why_not_ordinary(leaf):
        raise UsageError(
            f"argument {where} is {reason}: a program would not. Give a plain tensor, "
            f"{where}.as_subclass(torch.Tensor), or make the change in the model's code"
        )


def _refuse_unknown(where: str, leaf: Any) -> None:
    """An object of a class that nobody knows, and that holds tensors."""
    inside = [*vars(leaf).values()] if hasattr(leaf, "__dict__") else []
    if not isinstance(leaf, torch.Tensor) and any(isinstance(one, torch.Tensor) for one in inside):
        name = type(leaf).__name__
        raise UsageError(
            f"argument {where} is a {name}, which holds tensors and is no container that anybody "
            f"knows: register {name} with torchferry.values.kinds.register, or make it a dataclass"
        )


def _refuse_opaque(where: str, leaf: Any) -> None:
    """A class that PyTorch does not look into must hold no tensors: they would be constants."""
    if isinstance(leaf, torch.Tensor) or find_kind(type(leaf)) is None:
        return
    if any(isinstance(inner, torch.Tensor) for _, inner in flatten(leaf)[0]):
        name = type(leaf).__name__
        raise UsageError(
            f"argument {where} is a {name}, which PyTorch does not look into, and holds tensors. "
            f"Call torchferry.values.register_pytrees({name}) before the model runs"
        )


def same_constant(left: Any, right: Any) -> bool:
    """Whether two constants are one: ``1`` is not ``True``, and NaN is NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return bool(alike and left.tobytes() == right.tobytes())
    return (left == right) is True or (
        isinstance(left, float) and math.isnan(left) and math.isnan(right)
    )


def _shown(leaf: Any) -> str:
    return "a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)[:60]


def _example(column: Sequence[Any]) -> Any:
    return next(leaf for leaf in column if leaf is not None)


def _is_tensor(column: Sequence[Any]) -> bool:
    return isinstance(_example(column), torch.Tensor)


def _varies(column: Sequence[Any]) -> bool:
    """Whether it is an integer, and not always the same."""
    known = [leaf for leaf in column if leaf is not None]
    return all(type(leaf) is int for leaf in known) and len(set(known)) > 1


def _sizes(path: Path, column: Sequence[Any], preallocated: Collection[Path]) -> list[Sizes]:
    """For each axis the size in each call; absent keys and values of a cache have length 0."""
    example = _example(column)
    if not isinstance(example, torch.Tensor):
        return [tuple(column)] if _varies(column) else []
    grows = in_cache(path) and not any(path[: len(place)] == place for place in preallocated)
    length = example.ndim - 2 if grows else None
    return [
        tuple(
            leaf.shape[axis] if leaf is not None else 0 if axis == length else None
            for leaf in column
        )
        for axis in range(example.ndim)
    ]


def _solve(
    places: Mapping[Sizes, Sequence[Place]], constants: Sequence[Sizes]
) -> dict[Sizes, tuple[Size, str]]:
    """Name each vector of sizes: ``vector → (size, how it was found)``.

    Args:
        places: where each vector of sizes stands, in the order of the arguments.
        constants: lengths that never change and may be a part of a sum: the one token of every
            step that is decoded.
    """
    solved: dict[Sizes, tuple[Size, str]] = {v: (v[0] or 0, "") for v in constants}
    usual: dict[Sizes, set[str | None]] = {v: {"sequence_length"} for v in constants}
    usual |= {v: {conventional_name(*place) for place in at} for v, at in places.items()}
    masks = {v for v, at in places.items() if any("mask" in path_text(path) for path, *_ in at)}
    independent: dict[Sizes, str] = {}
    # Sums and products are larger than what they are made of; what says least comes last.
    for sizes in sorted(places, key=lambda v: (None in v, sum(s or 0 for s in v))):
        found = _expressed(sizes, solved, usual, is_mask=sizes in masks)
        if found is None:
            independent[sizes] = f"#{len(independent)}"  # until all that need a name are known
            found = (Dim.of(independent[sizes]), "")
        solved[sizes] = found
    names: dict[str, Size] = {}
    for sizes in places:
        if sizes in independent:
            taken = set(map(str, names.values()))
            names[independent[sizes]] = Dim.of(pick_name(places[sizes], taken))
    return {v: (substitute(size, names), how) for v, (size, how) in solved.items() if v in places}


def _expressed(
    sizes: Sizes,
    solved: Mapping[Sizes, tuple[Size, str]],
    usual: Mapping[Sizes, set[str | None]],
    *,
    is_mask: bool,
) -> tuple[Size, str] | None:
    """The sizes in terms of those already named, or ``None``.

    A mask is as long as what it is for, be that in two parts.
    """
    said = [index for index, size in enumerate(sizes) if size is not None]
    wanted = [size for size in sizes if size is not None]
    known = [
        ([v[index] or 0 for index in said], size, usual[v])
        for v, (size, _) in solved.items()
        if None not in v
    ]
    alike = [size for vector, size, _ in known if vector == wanted]
    if alike:
        return (alike[0], "") if len(alike) == 1 else None
    enough = len(wanted) >= _CALLS_FOR_AN_ACCIDENT
    for index, (left, a, of_a) in enumerate(known):
        for right, b, of_b in known[index:]:
            parts = of_a | of_b >= _PARTS and not usual[sizes] & {"past_sequence_length"}
            likely = enough or parts or (is_mask and a != b)
            if likely and wanted == [x + y for x, y in zip(left, right, strict=True)]:
                return a + b, "sum"
            if enough and wanted == [x * y for x, y in zip(left, right, strict=True)]:
                return a * b, "product"
    for vector, size, _ in known:
        factor = max(wanted) // max(*vector, 1)
        if enough and factor > 1 and wanted == [x * factor for x in vector]:
            return size * factor, "multiple"
    return None


def _describe(
    path: Path,
    column: Sequence[Any],
    vectors: Sequence[Sizes],
    named: Mapping[Sizes, tuple[Size, str]],
    own: Size | None,
) -> Argument:
    optional = any(leaf is None for leaf in column)
    example = _example(column)
    axes = []
    for index, sizes in enumerate(vectors):
        seen = ", ".join("absent" if s is None else str(s) for s in sizes)
        if own is not None or sizes in named:
            size, how = named[sizes] if own is None else (own, "")
            relation = f" = {size} in every call" if how else ""
            axes.append(Axis(index, size, sizes, f"{seen} → dynamic{relation}"))
        else:
            constant = next(s for s in sizes if s is not None)
            having = sum(s is not None for s in sizes)
            calls = "the only call" if having == 1 else f"all {having} calls"
            calls += " that have it" if having < len(column) else ""
            axes.append(Axis(index, constant, sizes, f"{constant} in {calls} → static"))
    if isinstance(example, torch.Tensor):
        return Argument(path, example.dtype, tuple(axes), optional=optional)
    if axes:
        return Argument(path, None, optional=optional, integer=replace(axes[0], index=-1))
    return Argument(path, None, value=example, optional=optional)
