"""Run a module without keeping what it writes into its buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.parameter import is_lazy

from torchferry.seams.pytorch import buffers_of, set_buffer

__all__ = ["buffers_kept"]


@contextmanager
def buffers_kept(module: torch.nn.Module) -> Iterator[None]:
    """The buffers of a module have their values again after the block.

    An exported program shares them with the module it was made of, so running it counts batches
    and moves averages of a module that is trained.

    >>> norm = torch.nn.BatchNorm1d(4)
    >>> with buffers_kept(norm):
    ...     _ = norm(torch.rand(2, 4))
    >>> norm.num_batches_tracked.item()
    0
    """
    state = [
        (owner, dict(vars(owner)), name, buffer, buffer.clone())
        for owner in module.modules()
        for name, buffer in buffers_of(owner).items()
        if buffer is not None and not is_lazy(buffer)
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for owner, attributes, name, buffer, value in state:
                if buffers_of(owner).get(name) is not buffer:
                    # The forward has put another in its place, and noted of what size it is.
                    vars(owner).update(attributes)
                    set_buffer(owner, name, buffer)
                buffer.copy_(value)
