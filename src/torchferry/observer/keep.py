"""Copies of what a model is given or returns, whatever that is: watching must not stop it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from torchferry.errors import UsageError
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.flatten import flatten, unflatten

__all__ = ["UNREADABLE", "keep", "keep_set"]

_log = logging.getLogger("torchferry")

UNREADABLE = (
    UsageError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What a value raises that cannot be read: a list that holds itself, a dataclass with a field that
has no value yet, a tensor whose memory torch hides (nested ones, those within ``vmap``)."""


def keep(value: Any) -> Any:
    """The value as it is now; where it cannot be copied the value itself, with a warning.

    >>> keep({"x": 1})
    {'x': 1}
    """
    try:
        return clone(value)
    except UNREADABLE as error:
        _log.warning(
            "%s is kept, not copied, and may change: %s", string_type(value, True)[:200], error
        )
        return value


def keep_set(arguments: Any) -> Any:
    """As `keep`, of arguments given by hand: an object nobody can look into stays the same.

    It becomes a constant of the graph, and is so if it is the same object in all sets.
    """
    kept = keep(arguments)
    try:
        given, (copies, structure) = flatten(arguments)[0], flatten(kept)
    except UNREADABLE:
        return kept
    pairs = [(old, new) for (_, old), (_, new) in zip(given, copies, strict=True)]
    if all(old is new or isinstance(old, torch.Tensor | np.ndarray) for old, new in pairs):
        return kept
    leaves = [new if isinstance(new, torch.Tensor | np.ndarray) else old for old, new in pairs]
    return unflatten(leaves, structure)
