"""What rewritten code calls: control flow of the graph where a tensor decides, else Python's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.seams.pytorch import pytree, scan_operator, while_loop_operator

__all__ = [
    "APART_FORMAT",
    "COPY_FORMAT", "as_bool", "as_float", "as_int", "at", "both", "cat", "check", "choose",
    "decide", "either", "entry", "fill", "invert", "item", "length", "number", "numbers", "put",
    "repeat", "rows", "runs_over", "scan_over", "slices", "stack",
]  # fmt: skip

COPY_FORMAT = torch.preserve_format
"""Said of the copies that are made here, so that a program shows which they are."""

APART_FORMAT = torch.contiguous_format
"""The same of a copy of a tensor that has two names, of which a loop makes two tensors."""

Names = tuple[Any, ...]
Own = Callable[[Any], Any]
Written = dict[int, Any]
"""Position of a name → what it holds, for names that are changed in place and not set anew."""


def choose(
    test: Any,
    then: Callable[[Own], Names],
    other: Callable[[Own], Names],
    written: Written | None = None,
) -> Names:
    """What ``if test:`` leaves in the names it sets: ``torch.cond`` where ``test`` is a tensor.

    Args:
        test: what decides.
        then: gives the names; its argument is called on each tensor that it changes in place.
        other: the same for the other side.
        written: the names that are the same tensors after it, with other numbers.

    Raises:
        TypeError: a tensor decides what a name is that holds no tensor. Dynamo, which traces the
            sides, gives its message on.
    """
    if not isinstance(test, torch.Tensor):
        return (then if test else other)(_itself)
    result: Names = torch.cond(test.all(), _copied(then), _copied(other), ())
    return _through(result, written)


def decide(test: Any, then: Callable[[Own], Any], other: Callable[[Own], Any]) -> Any:
    """Return ``then()`` or ``other()``, through ``torch.cond`` where a tensor decides.

    Args:
        test: what decides.
        then: gives what is returned: a tensor, or some in containers.
        other: the same for the other side.

    Raises:
        TypeError: a tensor decides, and a side returns something other than tensors.
    """
    if not isinstance(test, torch.Tensor):
        return (then if test else other)(_itself)

    def copied(side: Callable[[Own], Any]) -> Callable[[], Any]:
        return lambda: pytree.tree_map(lambda leaf: _cloned((leaf,))[0], side(_copy))

    return torch.cond(test.all(), copied(then), copied(other), ())


def repeat(
    test: Callable[..., Any],
    body: Callable[..., Names],
    names: Names,
    written: Written | None = None,
) -> Names:
    """What ``while test(*names): names = body(*names)`` leaves: a loop where a tensor decides."""
    decided = test(*names)
    if not isinstance(decided, torch.Tensor):
        while decided:
            names = body(*names)
            decided = test(*names)
        return names

    def goes_on(*carried: Any) -> torch.Tensor:
        decided: torch.Tensor = test(*carried).all()
        return decided

    def step(*carried: Any) -> Names:
        # The body may change what it is given in place, which a graph's loop may not.
        return _tensors(body(*map(_copy, carried)))

    result: Names = while_loop_operator()(goes_on, step, _tensors(names))
    return _through(result, written)


def invert(test: Any) -> Any:
    """``not test``, of a tensor a tensor."""
    return torch.logical_not(test.all()) if isinstance(test, torch.Tensor) else not test


def both(test: Any, other: Callable[[], Any]) -> Any:
    """``test and other()``, of tensors a tensor."""
    return (
        _joined(torch.logical_and, test, other)
        if isinstance(test, torch.Tensor)
        else test and other()
    )


def either(test: Any, other: Callable[[], Any]) -> Any:
    """``test or other()``, of tensors a tensor."""
    return (
        _joined(torch.logical_or, test, other)
        if isinstance(test, torch.Tensor)
        else test or other()
    )


def item(value: Any) -> Any:
    """``value.item()`` of a tensor as one of rank 0, in the widest type of its kind."""
    if not isinstance(value, torch.Tensor):
        return value.item()
    value = value.reshape(())
    if value.is_floating_point():
        return value.double()
    return value if value.dtype == torch.bool else value.long()


def as_int(value: Any) -> Any:
    """``int(value)``, of a tensor as one of rank 0."""
    return item(value).trunc().long() if isinstance(value, torch.Tensor) else int(value)


def as_float(value: Any) -> Any:
    """``float(value)``, of a tensor as one of rank 0."""
    return item(value).double() if isinstance(value, torch.Tensor) else float(value)


def as_bool(value: Any) -> Any:
    """``bool(value)``, of a tensor as one of rank 0."""
    return item(value).bool() if isinstance(value, torch.Tensor) else bool(value)


def _joined(join: Callable[..., Any], test: torch.Tensor, other: Callable[[], Any]) -> Any:
    second = other()  # computed in any case: what decides is known when the graph runs
    if isinstance(second, torch.Tensor):
        second = second.all()
    return join(test.all(), torch.as_tensor(second, device=test.device))


def check(test: Any, failed: Callable[[], None]) -> None:
    """``if test: failed()``, where ``failed`` raises; of a tensor, a check when the graph runs."""
    if isinstance(test, torch.Tensor):
        holds = torch.logical_not(test.all()).item()
        _require(holds)
    elif test:
        failed()


def length(sequence: Any, axis: int = 0) -> Any:
    """``len(sequence)``, of a tensor as it stands in its shape; 0 of what has none."""
    if isinstance(sequence, torch.Tensor):
        return sequence.shape[axis] if sequence.ndim else 0
    return len(sequence) if hasattr(sequence, "__len__") else 0


def runs_over(count: Any, start: Any, *sequences: Any) -> bool:
    """Whether a loop runs over tensors and as often as a size says that is not known yet."""
    if not isinstance(count, torch.SymInt) or (isinstance(start, int) and start < 0):
        return False
    return all(isinstance(one, torch.Tensor) for one in sequences)


def slices(
    sequence: torch.Tensor, axis: int, count: Any, start: Any, backwards: bool = False
) -> torch.Tensor:
    """Those that a loop of ``count`` steps takes along an axis, which becomes the first."""
    steps = _steps(count)
    found = sequence.movedim(axis, 0)
    if isinstance(start, torch.SymInt) or start != 0:
        _require(start >= 0)
        _require(start <= found.shape[0])
        # A view that begins within its memory makes torch treat beginnings of 0 and 1 apart.
        found = found[start:].clone()
    _require(steps <= found.shape[0])
    return found[:steps].flip(0) if backwards else found[:steps]


def numbers(count: Any, start: Any, backwards: bool) -> torch.Tensor:
    """The values of the counter in a loop of ``count`` steps, int64 [count]."""
    counted: torch.Tensor = torch.arange(_steps(count)) + start
    return counted.flip(0) if backwards else counted


def _require(holds: Any) -> None:
    """Let the graph refuse to run where a condition does not hold."""
    torch._check(holds)  # type: ignore[no-untyped-call]  # torch states no types for it


def _steps(count: Any) -> Any:
    return torch.sym_max(count, 0)  # type: ignore[no-untyped-call]  # torch states no types


def at(tensor: torch.Tensor, index: Any) -> torch.Tensor:
    """``tensor[index]``, where numbers in the index are tensors of rank 0."""
    found, places = _placed(tensor, index)
    for place, axis in places:
        number = found[place]
        size = tensor.shape[axis]
        number = torch.where(number < 0, number + size, number)
        tensor = tensor.index_select(axis, number.reshape(1))
        found[place] = 0
    result: torch.Tensor = tensor[tuple(found)]
    return result


def put(tensor: torch.Tensor, index: Any, value: Any) -> torch.Tensor:
    """A tensor as ``tensor[index] = value`` leaves it; one number of the index is a tensor."""
    result = tensor.clone()
    found, places = _placed(tensor, index)
    if len(places) != 1:
        raise TypeError("an index with two numbers that a loop counts cannot be written to")
    ((place, _),) = places
    number, found[place] = found[place], slice(None)
    view = result[tuple(found)]
    behind = any(one is Ellipsis for one in found[:place])
    kept = [one for one in (found[place + 1 :] if behind else found[:place])
            if not isinstance(one, int)]  # fmt: skip
    axis = view.ndim - 1 - len(kept) if behind else len(kept)
    number = torch.where(number < 0, number + view.shape[axis], number)
    shape = [1 if n == axis else size for n, size in enumerate(view.shape)]
    value = torch.as_tensor(value, dtype=view.dtype, device=view.device)
    if value.ndim >= view.ndim - axis:
        value = value.unsqueeze(axis - view.ndim)
    view.index_copy_(axis, number.reshape(1), value.expand(shape))
    return result


def _placed(tensor: Any, index: Any) -> tuple[list[Any], list[tuple[int, int]]]:
    """An index as a list; which of its entries are tensors, and the axes they stand for."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"a loop counts through a {type(tensor).__name__}, not a tensor")
    found = list(index) if isinstance(index, tuple) else [index]
    places = []
    for place, entry in enumerate(found):
        if isinstance(entry, torch.Tensor):
            behind = any(one is Ellipsis for one in found[:place])
            taken = [one for one in (found[place + 1 :] if behind else found[:place])
                     if one is not None and one is not Ellipsis]  # fmt: skip
            places.append((place, tensor.ndim - 1 - len(taken) if behind else len(taken)))
        elif isinstance(entry, slice) and any(
            isinstance(bound, torch.Tensor) for bound in (entry.start, entry.stop, entry.step)
        ):
            raise TypeError("the bounds of a slice cannot be what a loop counts")
    return found, places


def entry(tensor: torch.Tensor, axis: int, value: Any) -> torch.Tensor:
    """The slice that ``tensor[:, t] = value`` writes, as a new tensor."""
    shape = [size for n, size in enumerate(tensor.shape) if n != axis]
    given: torch.Tensor = torch.as_tensor(value, dtype=tensor.dtype, device=tensor.device)
    return given.expand(shape).clone()


def fill(tensor: torch.Tensor, axis: int, start: Any, entries: Any, backwards: bool) -> None:
    """Write the entries of all steps of a loop, from an index on along an axis."""
    entries = entries.flip(0) if backwards else entries
    count = entries.shape[0]
    _require(start + count <= tensor.shape[axis])
    tensor.movedim(axis, 0).narrow(0, start, count).copy_(entries)


def rows(before: Sequence[torch.Tensor], entries: torch.Tensor) -> torch.Tensor:
    """A list, and what a loop appended to it, along a first axis."""
    return torch.cat([torch.stack(list(before)), entries]) if before else entries


def stack(items: Any, dim: int = 0) -> torch.Tensor:
    """``torch.stack``, also of what a loop appended: rows along a first axis."""
    if isinstance(items, torch.Tensor):
        return items.movedim(0, dim)
    return torch.stack(items, dim)


def cat(items: Any, dim: int = 0) -> torch.Tensor:
    """``torch.cat``, also of what a loop appended: rows along a first axis."""
    if not isinstance(items, torch.Tensor):
        return torch.cat(items, dim)
    axis = dim if dim >= 0 else dim + items.ndim - 1
    return items.movedim(0, axis).flatten(axis, axis + 1)


def scan_over(
    body: Callable[..., tuple[Names, Names]],
    names: Names,
    sequences: tuple[torch.Tensor, ...],
    written: Written | None = None,
) -> tuple[Names, Names]:
    """A loop over the first axis of some tensors.

    Args:
        body: takes the names and one slice of each tensor; gives the names and what is collected.
        names: what is carried from step to step.
        sequences: tensors of one length.
        written: the names that are the same tensors after it, with other numbers.

    Returns:
        the names after the last step, and what was collected, stacked along a first axis.
    """

    def step(carried: Names, now: Names) -> tuple[Names, Names]:
        following, collected = body(*map(_copy, carried), *now)
        # Neither may be a slice as it is.
        return _cloned(following), _cloned(collected)

    if not names:
        _, collected = scan_operator()(_beside(step), (torch.zeros(()),), sequences)
        return (), tuple(collected)
    carried, collected = scan_operator()(step, _apart(_tensors(names)), sequences)
    return _through(tuple(carried), written), tuple(collected)


def _beside(step: Callable[[Names, Names], tuple[Names, Names]]) -> Callable[..., Any]:
    """A step that carries nothing as one that carries a number along, which torch asks for."""
    return lambda idle, now: ((_copy(idle[0]),), step((), now)[1])


def _apart(names: Names) -> Names:
    """Tensors as a step gives them: each its own, contiguous."""
    return tuple(
        one.clone(memory_format=APART_FORMAT)
        if any(one is other for other in names[:n])
        else one.contiguous()
        for n, one in enumerate(names)
    )


def _copied(branch: Callable[[Own], Names]) -> Callable[[], Names]:
    # A branch may neither return what it was given as it is, nor change it in place.
    return lambda: _cloned(branch(_copy))


def _cloned(names: Names) -> Names:
    return tuple(_copy(one) for one in _tensors(names))


def number(value: Any, tensor: torch.Tensor) -> Any:
    """A number that is written to a tensor, as one: a constant within a branch stops torch."""
    if isinstance(value, bool | int | float):
        return torch.full((), value, dtype=tensor.dtype, device=tensor.device)
    return value


def _copy(value: Any) -> Any:
    tensor = isinstance(value, torch.Tensor)
    return value.clone(memory_format=COPY_FORMAT) if tensor else value


def _itself(value: Any) -> Any:
    return value


def _through(names: Names, written: Written | None) -> Names:
    """Names whose tensors of before have the new numbers, so that all their names see them."""
    found = list(names)
    for place, before in (written or {}).items():
        if isinstance(before, torch.Tensor):
            found[place] = before.copy_(found[place])
    return tuple(found)


def _tensors(names: Names) -> Names:
    tensors: list[Any] = [
        torch.full((), one, dtype=_dtype(one)) if isinstance(one, bool | int | float) else one
        for one in names
    ]
    others = [type(one).__name__ for one in tensors if not isinstance(one, torch.Tensor)]
    if others:
        raise TypeError(
            f"a tensor decides what a name is that holds a {others[0]}: "
            "only tensors can come out of torch.cond and loops"
        )
    return tuple(tensors)


def _dtype(value: Any) -> torch.dtype:
    """Of a tensor of rank 0 that behaves as a number does."""
    kinds = {bool: torch.bool, int: torch.int64}
    return kinds.get(type(value), torch.get_default_dtype())
