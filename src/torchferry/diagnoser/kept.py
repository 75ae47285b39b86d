"""Run a module without keeping what its code makes of itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torchferry.values.buffers import buffers_kept

__all__ = ["state_kept"]


@contextmanager
def state_kept(model: torch.nn.Module) -> Iterator[None]:
    """Buffers have their values, and attributes are those that they were, after the block.

    What is in a list that the code appends to stays there.

    >>> class Counts(torch.nn.Module):
    ...     calls = 0
    ...     def forward(self, x):
    ...         self.calls += 1
    ...         return x
    >>> model = Counts()
    >>> with state_kept(model):
    ...     _ = model(torch.zeros(1))
    >>> model.calls
    0
    """
    before = [(module, type(module), dict(vars(module))) for module in model.modules()]
    try:
        with buffers_kept(model):
            yield
    finally:
        for module, cls, own in before:
            if type(module) is cls:  # a lazy module is another after its first call
                _restore(vars(module), own)


def _restore(now: dict[str, object], before: dict[str, object]) -> None:
    for name in [*now]:
        if name not in before:
            del now[name]
    now.update(before)
