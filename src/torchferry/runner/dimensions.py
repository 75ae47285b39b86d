"""Sizes of a call's tensors against the names and conditions they were exported under."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from torchferry.dims import Condition, Dim, Size, evaluate, names_in, parse_size
from torchferry.errors import UsageError
from torchferry.values.signature import Signature

__all__ = ["NamedAxis", "check_conditions", "check_sizes", "named_axes"]

_log = logging.getLogger("torchferry")


class NamedAxis(NamedTuple):
    """An axis of an input whose size is a name or an expression of names.

    Attributes:
        place: the input's name.
        axis: from 0 on.
        size: the name or the expression.
        names: those in it.
        name: where the size is one name and no more, that.
    """

    place: str
    axis: int
    size: Size
    names: frozenset[str]
    name: str | None

    def told(self, got: int) -> str:
        """What size there is, for a message."""
        return f"input {self.place} has {got} at axis {self.axis}"


def named_axes(
    shapes: Mapping[str, Sequence[int | str | None]], given: tuple[str, ...]
) -> list[NamedAxis]:
    """The axes whose sizes have names.

    Args:
        shapes: of every input, as sizes and names of dimensions.
        given: names of the inputs of a call, in its order.

    Returns:
        Theirs, names first, then the expressions of them.
    """
    found = []
    for place in given:
        for axis, text in enumerate(shapes[place]):
            if text and isinstance(text, str):
                size = parse_size(text)
                name = size.name if isinstance(size, Dim) else None
                found.append(NamedAxis(place, axis, size, names_in(size), name))
    return sorted(found, key=lambda one: one.name is None)


def check_sizes(shapes: Mapping[str, Sequence[int]], axes: Sequence[NamedAxis]) -> dict[str, int]:
    """The size of each name.

    Args:
        shapes: of the inputs given.
        axes: `named_axes` of them.

    Raises:
        UsageError: sizes of a name differ, or one is not the expression it was exported as: what
            the graph computes from the name would be wrong.
    """
    known: dict[str, int] = {}
    where: dict[str, NamedAxis] = {}
    for one in axes:
        got = shapes[one.place][one.axis]
        if one.name is not None:
            wanted = known.setdefault(one.name, got)
            where.setdefault(one.name, one)
        elif one.names <= known.keys():
            wanted = evaluate(one.size, known)
        else:
            continue
        if wanted != got:
            names = sorted(one.names)
            others = dict.fromkeys(where[name].told(known[name]) for name in names)
            values = ", ".join(f"{name} = {known[name]}" for name in names)
            raise UsageError(
                f"{one.told(got)}, which is {one.size} ({values}: {'; '.join(others)}). The model "
                "was exported for sizes that agree: export it again with inputs in which they do "
                "not"
            )
    return known


def check_conditions(signature: Signature, known: Mapping[str, int]) -> None:
    """Refuse sizes for which the program was not captured.

    Args:
        signature: of the exported model.
        known: the size of each name.

    Raises:
        UsageError: the program holds for other sizes only.
    """
    for test, sizes in signature.conditions:
        condition = _condition(test, sizes)
        if condition.names <= known.keys() and not condition.holds(known):
            _complain(condition, known)


def _complain(condition: Condition, known: Mapping[str, int]) -> None:
    if not condition.matters:  # nearly always without consequence: a decoder's step of one token
        _warn(str(condition))
        return
    values = ", ".join(f"{name} is {known[name]}" for name in sorted(condition.names))
    raise UsageError(
        f"the model was exported for sizes with {condition}, and {values}: its code does "
        "something else there. Export it again with inputs of such sizes"
    )


@cache
def _warn(condition: str) -> None:
    """Once for each condition."""
    _log.warning(
        "the program was captured for sizes with %s; torchferry.export compares the others too",
        condition,
    )


@cache
def _condition(test: str, sizes: tuple[str, ...]) -> Condition:
    try:
        return Condition(test, sizes)
    except ValueError as error:
        raise UsageError(
            f"the model's signature cannot be read: {error}; export it again"
        ) from error
