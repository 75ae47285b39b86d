"""What a trace of torch must not leave behind, and what it must not find."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from torchferry.seams.table import probe

__all__ = ["traced"]


@contextmanager
def traced() -> Iterator[None]:
    """A block in which torch traces a model.

    Transforms of torch.func that it leaves under way end, parametrized weights are computed at
    each use, and ``round(size, -1)`` rounds to tens, as Python has it.
    """
    with _functorch_ended(), _parametrizations_anew(), _sizes_rounded():
        yield


@contextmanager
def _sizes_rounded() -> Iterator[None]:
    before = torch.SymInt.__round__
    # torch's own drops the digits. There is no other place to change it: round() asks the class.
    torch.SymInt.__round__ = _rounded  # type: ignore[method-assign]  # for the block alone
    try:
        yield
    finally:
        torch.SymInt.__round__ = before  # type: ignore[method-assign]  # torch's again


def _rounded(size: Any, ndigits: int | None = None) -> Any:
    """``round`` of a size, half to even, without asking anything of it."""
    if ndigits is None or ndigits >= 0:
        return size
    power = 10**-ndigits
    shifted = size + power // 2
    rest: Any = torch.sym_min(shifted % power, 1)  # type: ignore[no-untyped-call]  # of torch
    up, is_tie = shifted // power, 1 - rest
    return (up - is_tie * (up % 2)) * power


@contextmanager
def _functorch_ended() -> Iterator[None]:
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
def _parametrizations_anew() -> Iterator[None]:
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
