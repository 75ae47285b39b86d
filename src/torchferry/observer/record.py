"""Record every call of a module while a block runs."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.observer.observation import Call, Observation
from torchferry.values.clone import clone
from torchferry.values.describe import string_type

__all__ = ["observe"]


@contextmanager
def observe(model: torch.nn.Module, *, limit: int | None = None) -> Iterator[Observation]:
    """Record the calls of ``model`` made inside the block, also those made by ``generate()``.

    Inputs are kept as they were before the call (a cache grows in place), outputs as they were
    right after it. The model's results and its signature stay as they are, and nothing is recorded
    while torch.export or a compiler traces it. A call that raises, or returns None, is not
    recorded. Nested calls come as they end. Several threads may call.

    Args:
        model: any module.
        limit: keep only the first calls; all when ``None``.

    Yields:
        The observation, which grows.

    Raises:
        UsageError: no module, or one of ``torch.jit``.

    >>> model = torch.nn.Linear(2, 3)
    >>> with observe(model) as seen:
    ...     _ = model(torch.zeros(4, 2)), model(torch.zeros(5, 2))
    >>> seen.dynamic_names
    ('batch_size',)
    """
    _check(model)
    seen = Observation(inspect.signature(model.forward), type(model).__name__)
    running = threading.local()  # the calls that have begun, innermost last

    def before(_: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if _is_traced():
            return
        more = limit is None or len(seen.calls) < limit
        start = (clone((args, kwargs)), time.perf_counter()) if more else None
        running.calls = [*getattr(running, "calls", ()), start]

    def after(*hook: Any) -> None:
        if _is_traced():
            return
        outputs, start = hook[-1], running.calls.pop()
        if start is not None and outputs is not None:
            seconds = time.perf_counter() - start[1]
            seen.add(Call(start[0][0], start[0][1], clone(outputs), seconds))

    first = model.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
    last = model.register_forward_hook(after, with_kwargs=True, always_call=True)  # if it raises
    try:
        yield seen
    finally:
        first.remove()
        last.remove()


def _check(model: Any) -> None:
    if not isinstance(model, torch.nn.Module):
        raise UsageError(f"observe takes a module, not {string_type(model)}")
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError("observe cannot watch a module of torch.jit: give the one it was made of")


def _is_traced() -> bool:
    return torch.compiler.is_compiling() or torch.compiler.is_exporting()
