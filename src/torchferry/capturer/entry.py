"""What happens where ``forward`` is entered and left while torch.export traces it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["around_forward"]


@contextmanager
def around_forward(
    model: torch.nn.Module, wrap: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace ``model.forward`` by ``wrap(model.forward)`` while the block runs.

    The signature stays the one it has: torch.export and dynamic shapes go by it.

    Args:
        model: the module; it is as it was afterwards.
        wrap: makes the function that is traced.
    """
    own = vars(model).get("forward")
    forward = model.forward
    wrapped = functools.wraps(forward)(wrap(forward))
    # A decorator may have stated the signature of the function, which has `self`.
    vars(wrapped)["__signature__"] = inspect.signature(forward)
    model.forward = wrapped
    try:
        yield
    finally:
        del model.forward
        if own is not None:
            model.forward = own
