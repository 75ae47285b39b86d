"""How far PyTorch's own result is from the one of float64: what nothing can be held to.

Deep models with a few very large activations amplify rounding: two right orders of summation then
differ by far more than the tolerance at a token here and there. Such a difference is told from a
fault by a third result, computed in float64. In half precision a choice may hang on a rounding
too, as that of a router between two experts: PyTorch with its weights rounded otherwise chooses
otherwise as well.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.flatten import map_leaves

__all__ = ["doubled", "nudged", "rounding_error", "settled", "to_double"]

_FEW = 16  # numbers that say nothing of how far others are
_LARGEST = 8 << 30  # bytes of weights in float64: beyond, no copy is made


def doubled(model: torch.nn.Module) -> torch.nn.Module | None:
    """A copy of the model in float64, or ``None`` when it is too large or cannot be copied."""
    tensors = [*model.parameters(), *model.buffers()]
    if sum(8 * tensor.numel() for tensor in tensors) > _LARGEST:
        return None
    return _copied(model, torch.nn.Module.double)


def nudged(model: torch.nn.Module, seed: int) -> torch.nn.Module | None:
    """A copy in half precision whose weights are one rounding away, or not, at random.

    ``None`` when the model is in another precision, is too large or cannot be copied.
    """
    half = [p for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    if not half or sum(p.nbytes for p in model.parameters()) > _LARGEST:
        return None
    generator = torch.Generator().manual_seed(seed)

    def nudge(made: torch.nn.Module) -> torch.nn.Module:
        for p in made.parameters():
            steps = torch.randint(-1, 2, p.shape, generator=generator).to(p.device)
            if p.is_floating_point():
                p.data.mul_(1 + steps * torch.finfo(p.dtype).eps)
        return made

    return _copied(model, nudge)


def _copied(
    model: torch.nn.Module, change: Callable[[torch.nn.Module], torch.nn.Module]
) -> torch.nn.Module | None:
    try:
        made = copy.deepcopy(model)
    except (RuntimeError, TypeError):  # it holds results of autograd, files, locks
        return None
    for module in made.modules():
        config: Any = getattr(module, "config", None)
        if getattr(config, "_experts_implementation", None) == "grouped_mm":
            config._experts_implementation = "batched_mm"  # the other has no float64
    return change(made)


def to_double(value: Any) -> Any:
    """A copy of a nested value in which floating-point tensors are float64."""
    return map_leaves(_double, value)


def _double(leaf: Any) -> Any:
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.double() if floating else clone(leaf)


def rounding_error(
    exact: Any, expected: Any, got: Any, usual: Callable[[], float] = lambda: 0.0
) -> float | None:
    """PyTorch's distance from float64, when the exported model is as near to it; else ``None``.

    Args:
        exact: tensor, computed in float64.
        expected: the same of PyTorch.
        got: the same of the exported model. It may be twice as far: two roundings of a kind are
            alike in size, not equal.
        usual: PyTorch's largest distance at other sizes; asked where the tensor has so few numbers
            that all of them may be near float64 by chance.
    """
    if not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in (exact, expected)):
        return None
    own, other = max_diff(exact, expected.double()), max_diff(exact, got.double())
    if own.reason or other.reason or own.dnan or other.dnan:
        return None
    distance = own.abs
    if other.abs > 2 * distance and exact.numel() < _FEW:
        distance = max(distance, usual())
    return distance if other.abs <= 2 * distance else None


def settled(expected: torch.Tensor, got: torch.Tensor, others: Sequence[Any]) -> torch.Tensor:
    """``got``, with what is expected where PyTorch itself does not stay at it.

    Args:
        expected: of PyTorch.
        got: the same of the exported model.
        others: the same of PyTorch with `nudged` weights. What one of them changes by at least
            half of what ``got`` differs hangs on a rounding.
    """
    same = [one for one in others if getattr(one, "shape", None) == expected.shape]
    if not same or got.shape != expected.shape or not expected.is_floating_point():
        return got
    spread = torch.stack([(one.double() - expected.double()).abs() for one in same]).amax(0)
    moves = (got.double() - expected.double()).abs() <= 2 * spread
    return torch.where(moves, expected, got.to(expected.dtype))
