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

_LOCK = threading.Lock()
_open_blocks = 0
_before = True  # the switch as the first open block found it


@contextmanager
def disable_fast_paths() -> Iterator[None]:
    """Run every transformer module of PyTorch operator by operator within the block.

    The switch is one for all threads: it is as before when the last of the open blocks ends.

    >>> with disable_fast_paths():
    ...     torch.backends.mha.get_fastpath_enabled()
    False
    """
    global _open_blocks, _before
    with _LOCK:
        if not _open_blocks:
            _before = mha.get_fastpath_enabled()
        _open_blocks += 1
        mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        with _LOCK:
            _open_blocks -= 1
            if not _open_blocks:
                mha.set_fastpath_enabled(_before)


@contextmanager
def enable_fast_paths() -> Iterator[None]:
    """Run modules as they run outside of `disable_fast_paths`, to see whether that differs."""
    with _LOCK:
        inside = _open_blocks > 0
        if inside:
            mha.set_fastpath_enabled(_before)
    try:
        yield
    finally:
        with _LOCK:
            if inside and _open_blocks:
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
