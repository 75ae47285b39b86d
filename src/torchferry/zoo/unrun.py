"""Inputs that fit a transformers model, made without running it."""

from __future__ import annotations

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
from torchferry.zoo.inputs.text import Inputs
from torchferry.zoo.tasks import input_sets

__all__ = ["unrun_input_sets"]

_DEPENDS_ON_NUMBERS = (DataDependentOutputException, DynamicOutputShapeException)


def unrun_input_sets(model: nn.Module) -> list[Inputs]:
    """The sets of `input_sets` in structure, sizes and dtypes; every value is zero.

    Where `input_sets` runs the model to fill a cache, only the shapes are computed, so that no
    weight is read: it takes no more time and memory for a model that does not fit in memory.

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
    made: list[Inputs] = map_leaves(_zeros, sets)
    return made


def _zeros(leaf: Any) -> Any:
    return torch.zeros(leaf.shape, dtype=leaf.dtype) if isinstance(leaf, FakeTensor) else leaf
