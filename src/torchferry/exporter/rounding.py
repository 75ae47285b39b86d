"""How far PyTorch's own result is from the one of float64: what nothing can be held to.

Deep models with a few very large activations amplify rounding: two right orders of summation then
differ by far more than the tolerance at a token here and there. Such a difference is told from a
fault by a third result, computed in float64.
"""

from __future__ import annotations

import copy
from typing import Any

import torch

from torchferry.values.clone import clone
from torchferry.values.difference import Discrepancy, max_diff
from torchferry.values.flatten import map_leaves

__all__ = ["doubled", "rounding_error", "to_double"]

_LARGEST = 8 << 30  # bytes of weights in float64: beyond, no copy is made


def doubled(model: torch.nn.Module) -> torch.nn.Module | None:
    """A copy of the model in float64, or ``None`` when it is too large or cannot be copied."""
    tensors = [*model.parameters(), *model.buffers()]
    if sum(8 * tensor.numel() for tensor in tensors) > _LARGEST:
        return None
    try:
        return copy.deepcopy(model).double()
    except (RuntimeError, TypeError):  # it holds results of autograd, files, locks
        return None


def to_double(value: Any) -> Any:
    """A copy of a nested value in which floating-point tensors are float64."""
    return map_leaves(_double, value)


def _double(leaf: Any) -> Any:
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.double() if floating else clone(leaf)


def rounding_error(exact: Any, expected: Any, got: Any) -> Discrepancy | None:
    """PyTorch's distance from float64, when the exported model is as near to it; else ``None``.

    Args:
        exact: tensor, computed in float64.
        expected: the same of PyTorch.
        got: the same of the exported model. It may be twice as far: two roundings of a kind are
            alike in size, not equal.
    """
    if not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in (exact, expected)):
        return None
    own, other = max_diff(exact, expected.double()), max_diff(exact, got.double())
    bad = own.reason or other.reason or own.dnan or other.dnan
    return own if not bad and other.abs <= 2 * own.abs else None
