"""Every line whose tensors' values torch.export would have to know, not only the first."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from torchferry.capturer.watch import watch_shapes
from torchferry.seams.pytorch import patch_functorch
from torchferry.values.kinds import attempt

__all__ = ["undecided_lines"]


def undecided_lines(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any
) -> tuple[str, ...]:
    """The user's lines that depend on values, as ``file:line: code``.

    The trace goes on with the values of the example, as ``torch.export.draft_export`` has it
    (which leaves log files behind). Its program is right for that example only, so it is dropped.

    Args:
        model: the module.
        args: its positional arguments.
        kwargs: its named arguments.
        shapes: dynamic shapes, as torch.export takes them.
    """
    with (
        watch_shapes() as events,
        patch_functorch(fake_tensor_propagate_real_tensors=True),
    ):
        # The user's code fails in more ways than can be listed; what was heard until then is
        # told all the same.
        attempt(partial(torch.export.export, dynamic_shapes=shapes), model, args, kwargs)
    return tuple(events.undecided)
