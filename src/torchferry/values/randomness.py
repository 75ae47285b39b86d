"""Run something without moving on torch's random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["random_kept"]


@contextmanager
def random_kept(state: torch.Tensor | None = None) -> Iterator[None]:
    """Torch's random numbers go on after the block as if it had not been.

    Args:
        state: where the CPU's begin within the block, as ``torch.get_rng_state`` gives it.

    >>> _ = torch.manual_seed(0)
    >>> with random_kept():
    ...     first = torch.rand(1)
    >>> bool(torch.rand(1) == first)
    True
    """
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        if state is not None:
            torch.set_rng_state(state)
        yield
