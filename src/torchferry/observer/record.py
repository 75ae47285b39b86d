"""Record every call of a module while a block runs."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchferry.observer.observation import Call, Observation
from torchferry.values.clone import clone

__all__ = ["observe"]


@contextmanager
def observe(model: torch.nn.Module, *, limit: int | None = None) -> Iterator[Observation]:
    """Record the calls of ``model`` made inside the block, also those made by ``generate()``.

    Inputs are kept as they were before the call (a cache grows in place), outputs as they were
    right after it. The model's results and its signature stay as they are, and nothing is recorded
    while torch.export or a compiler traces it. A call that raises, or returns None, is not
    recorded. Of nested calls the inner one comes first, as it ends first.

    Args:
        model: any module.
        limit: keep only the first calls; all when ``None``.

    Yields:
        The observation, which grows as the block runs.

    >>> model = torch.nn.Linear(2, 3)
    >>> with observe(model) as seen:
    ...     _ = model(torch.zeros(4, 2)), model(torch.zeros(5, 2))
    >>> seen.dynamic_names
    ('batch_size',)
    """
    seen = Observation(inspect.signature(model.forward), type(model).__name__)
    entered: list[tuple[tuple[Any, ...], dict[str, Any], float] | None] = []

    def before(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _is_traced():
            return
        start = None
        if limit is None or len(seen.calls) < limit:
            copied_args, copied_kwargs = clone((args, kwargs))
            start = copied_args, copied_kwargs, time.perf_counter()
        entered.append(start)

    def after(*hook: Any) -> None:
        if _is_traced():
            return
        outputs, start = hook[-1], entered.pop()
        if start is not None and outputs is not None:
            seconds = time.perf_counter() - start[2]
            seen.add(Call(start[0], start[1], clone(outputs), seconds))

    first = model.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
    # always_call: a forward that raises must not leave its start behind.
    last = model.register_forward_hook(after, with_kwargs=True, always_call=True)
    try:
        yield seen
    finally:
        first.remove()
        last.remove()


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.compiler.is_exporting()
