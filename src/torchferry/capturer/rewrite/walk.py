"""What a loop runs over where a size says how often, and the lists that it fills."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.seams.pytorch import pytree

__all__ = [
    "Deeper", "Growing", "Rows", "Walk", "at_least", "enumerated", "require", "reversed_",
    "sections", "unbound", "walk", "walk_range", "zipped",
]  # fmt: skip


@dataclass(frozen=True)
class Walk:
    """As many values as a size says.

    Attributes:
        count: how many; it may be below 0, which is none.
        item: index → value.
        start: the first value if they are numbers.
        step: from each number to the next.
        fills: whether there is one for each index of an axis, which has some.
    """

    count: Any
    item: Callable[[Any], Any]
    start: Any = None
    step: Any = 1
    fills: bool = True


def require(holds: Any) -> None:
    """Let the graph refuse to run where a condition does not hold."""
    torch._check(holds)  # type: ignore[no-untyped-call]  # torch states no types for it


def at_least(size: Any, least: int) -> Any:
    """A size, or a number if that is more."""
    return torch.sym_max(size, least)  # type: ignore[no-untyped-call]  # torch states no types


def walk_range(*bounds: Any) -> Any:
    """``range``, of sizes too."""
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if not isinstance(step, int) or step == 0:
        return range(*bounds)
    distance: Any = stop - start if step > 0 else start - stop
    count: Any = distance if abs(step) == 1 else (distance + abs(step) - 1) // abs(step)
    if not isinstance(count, torch.SymInt):
        return [start + step * n for n in range(count)]
    fills = str(count).isidentifier()  # a size alone; less than one may be none
    return Walk(count, lambda index: start + step * index, start, step, fills)


def walk(value: Any) -> Any:
    """The rows of a tensor, or of a list that a loop filled, if a size says how many."""
    if isinstance(value, Rows):
        value = value.data
    extent = _size_along(value, 0)
    return value if extent is None else Walk(extent, lambda index: value[index])


def _size_along(value: Any, dim: int) -> Any:
    """The size of a tensor's axis if it is a symbol, else ``None``."""
    size: Any = value.shape[dim] if isinstance(value, torch.Tensor) and value.ndim else None
    return size if isinstance(size, torch.SymInt) else None


def sections(tensor: Any, *given: Any, dim: int = 0) -> Any:
    """``tensor.split(size, dim)``."""
    size, dim = (*given, dim)[:2] if given else (None, dim)
    extent = _size_along(tensor, dim)
    if extent is None or not isinstance(size, int):
        return tensor.split(*given, **({"dim": dim} if len(given) == 1 and dim else {}))
    front = (slice(None),) * (dim % tensor.ndim)

    def section(index: Any) -> torch.Tensor:
        found: torch.Tensor = tensor[(*front, slice(index * size, (index + 1) * size))]
        return found

    return Walk(extent if size == 1 else (extent + size - 1) // size, section)


def unbound(tensor: Any, dim: int = 0) -> Any:
    """``tensor.unbind(dim)``."""
    extent = _size_along(tensor, dim)
    if extent is None:
        return tensor.unbind(dim)
    return Walk(extent, lambda index: tensor.select(dim, index))


def zipped(*values: Any, strict: bool = False) -> Any:
    """``zip``."""
    found = [walk(value) for value in values]
    if not any(isinstance(one, Walk) for one in found):
        return zip(*values, strict=strict)
    if not all(isinstance(one, Walk) for one in found):
        raise TypeError("a loop runs over a dynamic size and over a list at once")
    counts = [one.count for one in found]
    if strict:
        for count in counts:
            require(count == counts[0])
    least = functools.reduce(torch.sym_min, {str(count): count for count in counts}.values())
    return Walk(least, lambda index: tuple(one.item(index) for one in found))


def enumerated(value: Any, start: Any = 0) -> Any:
    """``enumerate``."""
    found = walk(value)
    if not isinstance(found, Walk):
        return enumerate(value, start)
    return Walk(found.count, lambda index: (start + index, found.item(index)), start)


def reversed_(value: Any) -> Any:
    """``reversed``."""
    found = walk(value)
    if not isinstance(found, Walk):
        return reversed(value)
    last = found.count - 1
    start = None if found.start is None else found.start + found.step * last
    return Walk(
        found.count, lambda index: found.item(last - index), start, -found.step, found.fills
    )


class _Entry(torch.Tensor):
    """Stands in a list of `Rows` for all of them, so that torch asks us what to do with it."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        rows, *more = args if args else (kwargs.pop("tensors"),)
        dim = more[0] if more else (kwargs or {}).get("dim", 0)
        if not isinstance(rows, Rows) or name not in ("stack", "cat", "concat", "concatenate"):
            raise TypeError(f"{name} takes a list that a loop over a dynamic size fills")
        return rows.stack(dim) if name == "stack" else rows.join(dim)


_ENTRY = torch.empty(0).as_subclass(_Entry)


class Rows(list[Any]):
    """A list that a loop over a size has filled.

    Attributes:
        data: its entries, along a first axis.
    """

    def __init__(self, data: torch.Tensor) -> None:
        super().__init__([_ENTRY])
        self.data = data

    @property
    def length(self) -> Any:
        """How many entries it has."""
        return self.data.shape[0]

    def stack(self, dim: int = 0) -> torch.Tensor:
        """``torch.stack`` of it."""
        return self.data.movedim(0, dim)

    def join(self, dim: int = 0) -> torch.Tensor:
        """``torch.cat`` of it."""
        axis = dim if dim >= 0 else dim + self.data.ndim - 1
        return self.data.movedim(0, axis).flatten(axis, axis + 1)

    def with_rows(self, before: Sequence[Any], after: Sequence[Any]) -> Rows:
        """The same with more entries in front and behind."""
        parts = [_stacked(side, self.data) for side in (before, after)]
        return Rows(torch.cat([*parts[0], self.data, *parts[1]])) if before or after else self

    def __getitem__(self, index: Any) -> Any:
        if not isinstance(index, slice):
            return self.data[index]
        if index.step == -1 and index.start is None and index.stop is None:
            return self.__reversed__()
        return Rows(self.data[index])

    def __bool__(self) -> bool:
        return bool(self.length > 0)

    def __reversed__(self) -> Any:
        return Rows(self.data.flip(0))

    def reverse(self) -> None:
        """``list.reverse``."""
        self.data = self.data.flip(0)

    def append(self, value: Any) -> None:
        """``list.append``."""
        self.data = self.with_rows((), (value,)).data

    def insert(self, place: Any, value: Any) -> None:
        """``list.insert``."""
        if place != 0:
            _refuse(self)
        self.data = self.with_rows((value,), ()).data

    def extend(self, values: Any) -> None:
        """``list.extend``."""
        self.data = (self + values).data

    def pop(self, place: Any = -1) -> Any:
        """``list.pop``."""
        if place not in (0, -1):
            _refuse(self)
        found = self.data[place]
        self.data = self.data[1:] if place == 0 else self.data[:-1]
        return found

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Rows):
            return Rows(torch.cat([self.data, other.data]))
        return self.with_rows((), list(other))

    def __radd__(self, other: Any) -> Any:
        return self.with_rows(list(other), ())

    __iadd__ = __add__


def _refuse(*_: Any, **__: Any) -> Any:
    raise TypeError(
        "a list that a loop over a dynamic size fills is used for more than torch.stack, "
        "torch.cat, sum, len, an item, a slice or a further entry"
    )


for _name in (
    "__contains__", "__delitem__", "__eq__", "__iter__", "__len__", "__mul__", "__rmul__",
    "__setitem__", "clear", "copy", "index", "remove", "sort",
):  # fmt: skip
    setattr(Rows, _name, _refuse)
pytree.register_pytree_node(
    Rows, lambda rows: ([rows.data], None), lambda values, _: Rows(next(iter(values)))
)


def _stacked(values: Sequence[Any], like: torch.Tensor) -> list[torch.Tensor]:
    if not values:
        return []
    rows = [torch.as_tensor(one, dtype=like.dtype, device=like.device)
            if isinstance(one, int | float) else one for one in values]  # fmt: skip
    if any(row.ndim != like.ndim - 1 for row in rows):
        raise TypeError("the entries of a list that a loop fills have several shapes")
    return [torch.stack(rows).to(like.dtype)]


class Deeper(Exception):  # noqa: N818  (no error: a step is run again)
    """An entry is read that lies further back than those that a step is given.

    Args:
        number: of the list.
        place: of the entry, from the end.
    """

    def __init__(self, number: int, place: int) -> None:
        super().__init__(number, place)
        self.number, self.place = number, place


class Growing(list[Any]):
    """A list within a step of a loop, which has had as many steps as nobody knows yet.

    Attributes:
        number: which of the lists it is.
        before: its entries before the loop.
        recent: the last ones, as the steps before have left them.
        begin: how many there are when the step begins.
        entries: those that the step appends, or puts in front.
        front: whether it puts them in front.
    """

    def __init__(
        self, number: int, before: Sequence[Any], recent: Sequence[Any], length: Any
    ) -> None:
        super().__init__()
        self.number, self.before, self.recent = number, before, recent
        self.begin = length
        self.entries: list[Any] = []
        self.front = False

    @property
    def length(self) -> Any:
        """How many entries it has now."""
        return self.begin + len(self.entries)

    def append(self, value: Any) -> None:
        """``list.append``."""
        self.entries.append(value)

    def insert(self, place: Any, value: Any) -> None:
        """``list.insert``."""
        if place != 0 or (self.entries and not self.front):
            _refuse()
        self.front = True
        self.entries.append(value)

    def extend(self, values: Any) -> None:
        """``list.extend``."""
        self.entries.extend(values)

    def __iadd__(self, values: Any) -> Any:  # type: ignore[misc]  # + is refused
        self.entries.extend(values)
        return self

    def __bool__(self) -> bool:
        return bool(self.before or self.entries)

    def __getitem__(self, index: Any) -> Any:
        if self.front:
            _refuse()
        if isinstance(index, slice):
            return self._last(index)
        if isinstance(index, torch.SymInt):
            back: Any = index - self.length
            back = back if isinstance(back, int) else back.node.maybe_as_int()
            if back is None:
                raise TypeError(
                    "a list is read at an index that is not a fixed number of steps ago"
                )
            index = back if back < 0 else _out_of_range()
        if index >= 0:
            return self.before[index]
        if -index <= len(self.entries):
            return self.entries[index]
        place = -index - len(self.entries)
        if place > len(self.before):
            _out_of_range()
        if place > len(self.recent):
            raise Deeper(self.number, place)
        return self.recent[-place]

    def last(self, depth: int) -> list[Any]:
        """The entries that the next step reads."""
        known = [*self.recent, *self.entries]
        return known[len(known) - depth :]

    def _last(self, index: slice) -> list[Any]:
        first = index.start
        if not isinstance(first, int) or first >= 0 or index.stop is not None or index.step:
            _refuse()
        return [self[place] for place in range(first, 0)]


for _name in (
    "__add__", "__contains__", "__delitem__", "__eq__", "__iter__", "__len__", "__mul__",
    "__radd__", "__reversed__", "__rmul__", "__setitem__", "clear", "copy", "index", "pop",
    "remove", "reverse", "sort",
):  # fmt: skip
    setattr(Growing, _name, _refuse)


def _out_of_range() -> Any:
    raise IndexError("list index out of range")
