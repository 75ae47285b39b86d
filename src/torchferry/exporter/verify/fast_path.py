"""Whether PyTorch's fused transformer path gives other numbers than the module it stands for."""

from __future__ import annotations

import warnings
from itertools import islice
from typing import Any

import torch

from torchferry.capturer import accept_aliases
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import Observation
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.fast_path import disable_fast_paths, enable_fast_paths, has_fast_path
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["fast_path_note"]

_CALLS = 3  # that are run both ways


def fast_path_note(model: torch.nn.Module, seen: Observation, tolerance: Tolerance) -> str:
    """A sentence for the report, if the fused path shows in the recorded calls; else ``""``.

    The reference of every comparison is the path that an exported model computes. A user who
    calls the PyTorch model without torchferry sees the other one.
    """
    if not has_fast_path(model):
        return ""
    for call in islice(seen.calls, _CALLS):
        inputs = seen.normalized(call)
        with enable_fast_paths():
            fast = _outputs(model, inputs)
        with disable_fast_paths():
            slow = _outputs(model, inputs)
        found = max_diff(slow, fast)
        if found.reason is None and not tolerance.allows(found, slow):
            return (
                "PyTorch's own fast path for transformer encoders gives other numbers at padded "
                f"places (max abs {found.abs:.3g}); the reference here is PyTorch with it "
                "switched off (torch.backends.mha.set_fastpath_enabled(False))"
            )
    return ""


def _outputs(model: torch.nn.Module, inputs: tuple[Any, Any]) -> Any:
    args, kwargs = clone(inputs)
    with torch.no_grad(), random_kept(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return attempt(lambda: model(*args, **accept_aliases(model, kwargs)))[0]
