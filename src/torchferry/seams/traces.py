"""What a trace of torch must not leave behind, and what it must not find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from torchferry.seams.table import probe

__all__ = ["functorch_ended", "parametrizations_anew"]


@contextmanager
def functorch_ended() -> Iterator[None]:
    """Transforms of torch.func that the block leaves under way, as a failed trace does, end."""
    depth = _depth()
    try:
        yield
    finally:
        end = probe("torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth")
        if end is not None and depth is not None:
            end(depth)


def _depth() -> int | None:
    depth = probe("torch._C._functorch.get_dynamic_layer_stack_depth")
    return None if depth is None else int(depth())


@contextmanager
def parametrizations_anew() -> Iterator[None]:
    """Parametrized weights are computed at each use in the block, within ``cached()`` too."""
    owner = torch.nn.utils.parametrize
    enabled = getattr(owner, "_cache_enabled", 0)
    if enabled:
        vars(owner)["_cache_enabled"] = 0
    try:
        yield
    finally:
        if enabled:
            vars(owner)["_cache_enabled"] = enabled
