"""The seam to transformers: argument names that differ between its releases."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch

__all__ = ["accept_aliases"]

# transformers 5.24 renamed forward's ``past_key_values`` to ``cache``; both stay in use.
_ALIASES = (("past_key_values", "cache"),)


def accept_aliases(model: torch.nn.Module, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the names ``model.forward`` has for them.

    Only a name that ``forward`` does not have, and whose alias it does have, is changed.

    Args:
        model: any module.
        kwargs: named arguments as the user gave them.

    Returns:
        A new dict in the same order.
    """
    parameters = inspect.signature(model.forward).parameters
    swaps = [pair for names in _ALIASES for pair in (names, names[::-1])]
    renamed = {
        name: other
        for name, other in swaps
        if name in kwargs
        and other not in kwargs
        and name not in parameters
        and other in parameters
    }
    return {renamed.get(name, name): value for name, value in kwargs.items()}
