"""Switch off PyTorch's fused transformer path, which no exported program takes.

``nn.TransformerEncoder``, its layer and ``nn.MultiheadAttention`` call one fused kernel in
inference, if nothing stands against it. The kernel has no ONNX form, and nested tensors within the
encoder return zeros at padded places, where the modules themselves return numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import mha

__all__ = ["disable_fast_paths", "enable_fast_paths", "has_fast_path"]


class _Switch:
    """PyTorch's switch, and how many blocks have it off."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.blocks = 0
        self.before = True  # what the first of the open blocks saw


_SWITCH = _Switch()


@contextmanager
def disable_fast_paths() -> Iterator[None]:
    """Run every transformer module of PyTorch operator by operator within the block.

    The switch is one for all threads: it is as before when the last of the open blocks ends.

    >>> with disable_fast_paths():
    ...     torch.backends.mha.get_fastpath_enabled()
    False
    """
    with _SWITCH.lock:
        if not _SWITCH.blocks:
            _SWITCH.before = mha.get_fastpath_enabled()
        _SWITCH.blocks += 1
        mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _SWITCH.lock:
            _SWITCH.blocks -= 1
            if not _SWITCH.blocks:
                mha.set_fastpath_enabled(_SWITCH.before)


@contextmanager
def enable_fast_paths() -> Iterator[None]:
    """Run modules as outside of `disable_fast_paths`, to see whether that differs."""
    with _SWITCH.lock:
        inside = _SWITCH.blocks > 0
        if inside:
            mha.set_fastpath_enabled(_SWITCH.before)
    try:
        yield
    finally:
        with _SWITCH.lock:
            if inside and _SWITCH.blocks:
                mha.set_fastpath_enabled(False)


def has_fast_path(model: torch.nn.Module) -> bool:
    """Whether a model has modules that may take the fused path.

    >>> has_fast_path(torch.nn.Linear(2, 2)), has_fast_path(torch.nn.MultiheadAttention(4, 2))
    (False, True)
    """
    kinds = (
        torch.nn.TransformerEncoder,
        torch.nn.TransformerEncoderLayer,
        torch.nn.MultiheadAttention,
    )
    return any(isinstance(part, kinds) for part in model.modules())
