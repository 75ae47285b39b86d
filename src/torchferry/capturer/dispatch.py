"""What rewritten code calls: control flow of the graph where a tensor decides, else Python's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.seams.pytorch import scan_operator, while_loop_operator

__all__ = [
    "COPY_FORMAT", "check", "choose", "invert", "length", "repeat", "runs_over", "scan_over",
    "slices", "stacked",
]  # fmt: skip

COPY_FORMAT = torch.preserve_format
"""Said of the copies that are made here, so that a program shows which they are."""

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


def check(test: Any, failed: Callable[[], None]) -> None:
    """``if test: failed()``, where ``failed`` raises; of a tensor, a check when the graph runs."""
    if isinstance(test, torch.Tensor):
        holds = torch.logical_not(test.all()).item()
        torch._check(holds)  # type: ignore[no-untyped-call]  # of torch
    elif test:
        failed()


def length(sequence: Any) -> Any:
    """``len(sequence)``, of a tensor as it stands in its shape; 0 of what has none."""
    if isinstance(sequence, torch.Tensor):
        return sequence.shape[0] if sequence.ndim else 0
    return len(sequence) if hasattr(sequence, "__len__") else 0


def runs_over(count: Any, start: Any, *sequences: Any) -> bool:
    """Whether a loop runs over tensors and as often as a size says that is not known yet."""
    if not isinstance(count, torch.SymInt) or (isinstance(start, int) and start < 0):
        return False
    return all(isinstance(one, torch.Tensor) for one in sequences)


def slices(sequence: torch.Tensor, axis: int, count: Any, start: Any) -> torch.Tensor:
    """Those that a loop of ``count`` steps takes along an axis, which becomes the first."""
    steps = torch.sym_max(count, 0)  # type: ignore[no-untyped-call]  # of torch
    found = sequence.movedim(axis, 0)
    if isinstance(start, torch.SymInt) or start != 0:
        torch._check(start >= 0)  # type: ignore[no-untyped-call]  # of torch
        torch._check(start <= found.shape[0])  # type: ignore[no-untyped-call]  # of torch
        # A view that begins within its memory makes torch treat beginnings of 0 and 1 apart.
        found = found[start:].clone()
    torch._check(steps <= found.shape[0])  # type: ignore[no-untyped-call]  # of torch
    return found[:steps]


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

    carried, collected = scan_operator()(step, _tensors(names), sequences)
    return _through(tuple(carried), written), tuple(collected)


def stacked(items: Sequence[torch.Tensor]) -> torch.Tensor:
    """What a loop collected, along a first axis."""
    return torch.stack(list(items), 0)


def _copied(branch: Callable[[Own], Names]) -> Callable[[], Names]:
    # A branch may neither return what it was given as it is, nor change it in place.
    return lambda: _cloned(branch(_copy))


def _cloned(names: Names) -> Names:
    return tuple(_copy(one) for one in _tensors(names))


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
    for one in names:
        if not isinstance(one, torch.Tensor):
            raise TypeError(
                f"a tensor decides what a name is that holds a {type(one).__name__}: "
                "only tensors can come out of torch.cond and loops"
            )
    return names
