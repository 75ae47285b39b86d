"""Items that an integer chooses which only the call tells, in a tensor or as an argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]

_SLICES = slice | int | type(None) | type(...)


def _is_scalar(index: Any) -> bool:
    if isinstance(index, torch.SymInt):
        return True
    plain = isinstance(index, torch.Tensor) and index.ndim == 0 and index.dtype != torch.bool
    return plain and not index.is_floating_point()


def _position(index: Any) -> int | None:
    """Where the only tensor stands among slices and integers; ``None`` if there are others."""
    if isinstance(index, torch.SymInt):
        return None  # alone it stays a symbol
    items = index if isinstance(index, tuple) else (index,)
    found = [position for position, item in enumerate(items) if _is_scalar(item)]
    others = [item for item in items if not _is_scalar(item) and not isinstance(item, _SLICES)]
    return found[0] if len(found) == 1 and not others else None


def _set_item(original: Callable[..., Any]) -> Callable[..., Any]:
    def set_item(self: torch.Tensor, index: Any, value: Any) -> None:
        """The same with a tensor of one index, or with one symbol alone."""
        items = index if isinstance(index, tuple) else (index,)
        at = _position(index) or 0
        before, chosen, after = items[:at], items[at], items[at + 1 :]
        view = self[(*before, slice(None), *after)]
        if ... in before:
            dim = view.ndim - 1 - sum(not isinstance(item, int) for item in after)
        else:
            dim = sum(not isinstance(item, int) for item in before)
        first = chosen.reshape(1) if isinstance(chosen, torch.Tensor) else chosen
        original(view.movedim(dim, 0), first, value)

    return set_item


PATCHES = (
    Patch(
        subject="torch.Tensor.__setitem__",
        why="x[i] = y asks for the number that a tensor i holds, and x[:, i] = y for that of i",
        link="https://docs.pytorch.org/docs/2.13/export.html#limitations-of-torch-export",
        replace=_set_item,
        silent=True,
        acts=lambda _self, index, _value: _position(index) is not None,
    ),
)
"""All of them."""
