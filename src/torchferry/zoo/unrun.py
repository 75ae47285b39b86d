"""Inputs that fit a transformers model, made without running it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.seams.pytorch import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torchferry.values.flatten import map_leaves
from torchferry.values.randomness import random_kept
from torchferry.zoo.inputs.text import Inputs
from torchferry.zoo.tasks import input_sets

__all__ = ["unrun_input_sets"]

_DEPENDS_ON_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException)


def unrun_input_sets(model: nn.Module) -> list[Inputs]:
    """The sets of `input_sets` in structure, sizes and dtypes, with other values.

    Where `input_sets` runs the model to fill a cache, only the shapes are computed, so that no
    weight is read: it takes no more time and memory for a model that does not fit in memory. The
    values are such as the model may be given: drawn tokens and normal numbers, positions that
    count on from the cache, a mask of ones.

    Args:
        model: as for `input_sets`.

    Raises:
        UsageError: the model is of another kind, or the shapes hang on what it computes.
    """
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            sets = input_sets(model)
    except UsageError as error:
        if not isinstance(error.__cause__, _DEPENDS_ON_NUMBERS):
            raise
        raise UsageError(
            f"what {type(model).__name__} does hangs on its numbers, so inputs for it cannot be "
            "made without running it: give them with --inputs FILE.py:function"
        ) from error
    words = int(getattr(getattr(model, "config", None), "vocab_size", None) or 2)
    with random_kept():
        torch.manual_seed(0)
        return [
            {name: map_leaves(partial(_drawn, name, one, words), one[name]) for name in one}
            for one in sets
        ]


def _drawn(name: str, inputs: Inputs, words: int, leaf: Any) -> Any:
    """A value for a tensor of which only the shape is known, by the name of its argument."""
    if not isinstance(leaf, FakeTensor):
        return leaf
    if leaf.is_floating_point():
        return torch.randn(leaf.shape, dtype=torch.float32).to(leaf.dtype)
    if "mask" in name:
        return torch.ones(leaf.shape, dtype=leaf.dtype)
    if "position" in name and leaf.ndim:
        mask = inputs.get("attention_mask")
        past = 0 if mask is None else mask.shape[-1] - leaf.shape[-1]
        return (
            torch.arange(past, past + leaf.shape[-1], dtype=leaf.dtype).expand(leaf.shape).clone()
        )
    return torch.randint(0, words if "ids" in name else 2, leaf.shape).to(leaf.dtype)
