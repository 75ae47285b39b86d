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
from torchferry.observer.keep import keep
from torchferry.observer.module import check_module
from torchferry.observer.observation import Call, Observation
from torchferry.observer.tap import tapped

__all__ = ["observe"]


@contextmanager
def observe(model: torch.nn.Module, *, limit: int | None = None) -> Iterator[Observation]:
    """Record the calls of ``model`` made inside the block, also those made by ``generate()``.

    Inputs are kept as they were before the call (a cache grows in place), outputs as they were
    right after it; what cannot be copied is kept as it is, and a warning is logged. They are those
    of ``forward``, within the module's hooks. The model's results and its signature stay as they
    are, and nothing is recorded while torch.export, a compiler or another tracer is at work. A
    call that raises, or returns None, is not recorded. Nested calls come as they end. Several
    threads may call.

    Args:
        model: any module.
        limit: keep only the calls that end first; all when ``None``.

    Yields:
        The observation, which grows.

    Raises:
        UsageError: no module, or one of ``torch.jit``; the limit is no number of calls.

    >>> model = torch.nn.Linear(2, 3)
    >>> with observe(model) as seen:
    ...     _ = model(torch.zeros(4, 2)), model(torch.zeros(5, 2))
    >>> seen.dynamic_names
    ('batch_size',)
    """
    _check(model, limit)
    recorder = _Recorder(model, limit)
    with tapped([recorder]):
        yield recorder.seen


class _Recorder:
    """The tap: adds calls to an observation until there are enough."""

    method = "forward"

    def __init__(self, module: torch.nn.Module, limit: int | None) -> None:
        self.module = module
        self.limit = limit
        self.seen = Observation(inspect.signature(module.forward), type(module).__name__)
        self.lock = threading.Lock()

    @property
    def full(self) -> bool:
        return self.limit is not None and len(self.seen.calls) >= self.limit

    def export(self) -> None:
        """Nothing is recorded while torch.export traces."""

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return None if self.full else (*keep((args, kwargs)), time.perf_counter())

    def leave(self, entered: Any, outputs: Any) -> None:
        if entered is None or outputs is None or self.full:
            return
        args, kwargs, start = entered
        seconds = time.perf_counter() - start
        call = Call(args, kwargs, keep(outputs), seconds)
        with self.lock:
            if not self.full:  # another thread, or a call within this one, may have been faster
                self.seen.add(call)


def _check(model: Any, limit: Any) -> None:
    check_module(model, "observe")
    if limit is not None and (type(limit) is not int or limit < 0):
        raise UsageError(f"observe: limit is a number of calls, or None for all, not {limit!r}")
