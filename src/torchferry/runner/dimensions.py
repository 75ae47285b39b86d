"""Sizes of a call's tensors against the names they were exported under."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torchferry.dims import Dim, Size, evaluate, names_in, parse_size, solve
from torchferry.errors import UsageError

if TYPE_CHECKING:
    import torch

__all__ = ["NamedAxis", "check_sizes", "feed_sizes", "named_axes"]


class NamedAxis(NamedTuple):
    """An axis of an input, or an integer, whose size is a name or an expression of names.

    Attributes:
        place: the input's name.
        axis: from 0 on; -1 of an integer.
        size: the name or the expression.
        names: those in it.
        name: where the size is one name and no more, that.
    """

    place: str
    axis: int
    size: Size
    names: frozenset[str]
    name: str | None

    def describe(self, got: int) -> str:
        """The size or integer of a call, for a message."""
        if self.axis < 0:
            return f"input {self.place} is {got}"
        return f"input {self.place} has {got} at axis {self.axis}"


def named_axes(
    shapes: Mapping[str, Sequence[int | str | None]],
    given: tuple[str, ...],
    integers: Mapping[str, str] | None = None,
) -> list[NamedAxis]:
    """The axes and integers whose sizes have names.

    Args:
        shapes: of every input, as sizes and names of dimensions.
        given: names of the inputs of a call, in its order.
        integers: what inputs that are integers are called, by input.

    Returns:
        Theirs, names first, then the expressions of them.
    """
    found = []
    for place in given:
        for axis, text in [*enumerate(shapes[place]), (-1, (integers or {}).get(place))]:
            if text and isinstance(text, str):
                size = parse_size(text)
                name = size.name if isinstance(size, Dim) else None
                found.append(NamedAxis(place, axis, size, names_in(size), name))
    return sorted(found, key=lambda axis: axis.name is None)


def feed_sizes(
    feeds: Mapping[str, torch.Tensor], integers: Collection[str]
) -> dict[str, Sequence[int]]:
    """Shapes of the inputs of a call; of an integer, its value alone."""
    sizes: dict[str, Sequence[int]] = {name: tensor.shape for name, tensor in feeds.items()}
    return sizes | {name: [int(feeds[name])] for name in integers}


def check_sizes(shapes: Mapping[str, Sequence[int]], axes: Sequence[NamedAxis]) -> dict[str, int]:
    """The size of each name, and of each expression that names do not determine.

    Args:
        shapes: what `feed_sizes` gives.
        axes: `named_axes` of them.

    Raises:
        UsageError: sizes of a name differ, or one is not the expression it was exported as: what
            the graph computes from the name would be wrong.
    """
    known: dict[str, int] = {}
    where: dict[str, NamedAxis] = {}  # which axis told a name
    waiting = list(axes)
    while waiting:
        later = [axis for axis in waiting if not _read(axis, shapes, known, where)]
        if len(later) == len(waiting):
            break
        waiting = later
    for axis in waiting:
        got = shapes[axis.place][axis.axis]
        if known.setdefault(str(axis.size), got) != got:
            raise _contradiction(axis, shapes, {str(axis.size): known[str(axis.size)]}, {})
    return known


def _read(
    axis: NamedAxis,
    shapes: Mapping[str, Sequence[int]],
    known: dict[str, int],
    where: dict[str, NamedAxis],
) -> bool:
    """Check a size whose names are known, or learn its one name; False when it has several."""
    got = shapes[axis.place][axis.axis]
    unknown = [name for name in axis.names if name not in known]
    if unknown:
        value = solve(axis.size, unknown[0], got, known) if len(unknown) == 1 else None
        if value is None:
            return False
        known[unknown[0]], where[unknown[0]] = value, axis
    if evaluate(axis.size, known) != got:
        raise _contradiction(axis, shapes, {name: known[name] for name in axis.names}, where)
    return True


def _contradiction(
    axis: NamedAxis,
    shapes: Mapping[str, Sequence[int]],
    known: Mapping[str, int],
    where: Mapping[str, NamedAxis],
) -> UsageError:
    tell = [where[name] for name in sorted(known) if where.get(name, axis) is not axis]
    others = dict.fromkeys(one.describe(shapes[one.place][one.axis]) for one in tell)
    values = ", ".join(f"{name} = {known[name]}" for name in sorted(known))
    values += f": {'; '.join(others)}" if others else ""
    return UsageError(
        f"{axis.describe(shapes[axis.place][axis.axis])}, which is {axis.size} ({values}). The "
        "model was exported for sizes that agree: export it again with inputs in which they do not"
    )
