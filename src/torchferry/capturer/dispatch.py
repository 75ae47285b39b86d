"""What rewritten code calls: control flow of the graph where a tensor decides, else Python's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = [
    "check", "choose", "invert", "length", "repeat", "runs_over", "scan_over", "slices", "stacked",
]  # fmt: skip

Names = tuple[Any, ...]


def choose(test: Any, then: Callable[[], Names], other: Callable[[], Names]) -> Names:
    """What ``if test:`` leaves in the names it sets: ``torch.cond`` where ``test`` is a tensor.

    Raises:
        TypeError: a tensor decides what a name is that holds no tensor. Dynamo, which traces the
            sides, gives its message on.
    """
    if not isinstance(test, torch.Tensor):
        return then() if test else other()
    result: Names = torch.cond(test.all(), _copied(then), _copied(other), ())
    return result


def repeat(test: Callable[..., Any], body: Callable[..., Names], names: Names) -> Names:
    """What ``while test(*names): names = body(*names)`` leaves: a loop where a tensor decides."""
    if not isinstance(test(*names), torch.Tensor):
        while test(*names):
            names = body(*names)
        return names
    from torch._higher_order_ops.while_loop import while_loop

    def goes_on(*carried: Any) -> torch.Tensor:
        decided: torch.Tensor = test(*carried).all()
        return decided

    def step(*carried: Any) -> Names:
        # The body may change what it is given in place, which a graph's loop may not.
        return _tensors(body(*(one.clone() for one in carried)))

    result: Names = while_loop(  # type: ignore[no-untyped-call]  # of torch
        goes_on, step, _tensors(names)
    )
    return result


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
    body: Callable[..., tuple[Names, Names]], names: Names, sequences: tuple[torch.Tensor, ...]
) -> tuple[Names, Names]:
    """A loop over the first axis of some tensors.

    Args:
        body: takes the names and one slice of each tensor; gives the names and what is collected.
        names: what is carried from step to step.
        sequences: tensors of one length.

    Returns:
        the names after the last step, and what was collected, stacked along a first axis.
    """
    from torch._higher_order_ops.scan import scan

    def step(carried: Names, now: Names) -> tuple[Names, Names]:
        following, collected = body(*(one.clone() for one in carried), *now)
        # Neither may be a slice as it is.
        return _cloned(following), _cloned(collected)

    carried, collected = scan(step, _tensors(names), sequences)
    return tuple(carried), tuple(collected)


def stacked(items: Sequence[torch.Tensor]) -> torch.Tensor:
    """What a loop collected, along a first axis."""
    return torch.stack(list(items), 0)


def _copied(branch: Callable[[], Names]) -> Callable[[], Names]:
    # A branch may not return what it was given as it is.
    return lambda: _cloned(branch())


def _cloned(names: Names) -> Names:
    return tuple(one.clone() for one in _tensors(names))


def _tensors(names: Names) -> Names:
    for one in names:
        if not isinstance(one, torch.Tensor):
            raise TypeError(
                f"a tensor decides what a name is that holds a {type(one).__name__}: "
                "only tensors can come out of torch.cond and loops"
            )
    return names
