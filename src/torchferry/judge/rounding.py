"""How far rounding carries PyTorch's own results: what nothing can be held to.

Deep models with a few very large activations amplify rounding: two right orders of summation then
differ by far more than the tolerance at a token here and there. Such a difference is told from a
fault by a result in float64, and by results whose every operator rounds otherwise; a choice that
hangs on a rounding, as that of a router between two experts, shows in these too.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from torchferry.judge.tolerance import Limits, Tolerance
from torchferry.seams.huggingface import experts_in_float64
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.flatten import map_leaves

__all__ = ["ROUNDING", "apart", "doubled", "rounding_error", "settled", "spread", "to_double"]

ROUNDING = 10
"""How often the tolerance may be reached where a result in float64 is the evidence."""

_LARGEST = 8 << 30  # bytes of weights in float64: beyond, no copy is made
_ROW = 16  # numbers that say what is usual among them
_TIMES = 1.5  # what one number may differ, of what it moves by itself
_TYPICAL = 2.0  # the same, of what half of the numbers around it move by


def doubled(model: torch.nn.Module) -> torch.nn.Module | None:
    """A copy of the model in float64, or ``None`` when it is too large or cannot be copied."""
    tensors = [*model.parameters(), *model.buffers()]
    if sum(8 * tensor.numel() for tensor in tensors) > _LARGEST:
        return None
    try:
        twin = copy.deepcopy(model)
    except (RuntimeError, TypeError):  # it holds results of autograd, files, locks
        return None
    for module in twin.modules():
        experts_in_float64(getattr(module, "config", None))
    return twin.double()


def to_double(value: Any) -> Any:
    """A copy of a nested value in which floating-point tensors are float64."""
    return map_leaves(_double, value)


def _double(leaf: Any) -> Any:
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.double() if floating else clone(leaf)


def rounding_error(exact: Any, expected: Any, got: Any) -> float | None:
    """PyTorch's distance from float64, when the other side is as near to it; else ``None``.

    Args:
        exact: tensor, computed in float64.
        expected: the same of PyTorch.
        got: the same of the other side. It may be twice as far: two roundings of a kind are
            alike in size, not equal.
    """
    if not all(isinstance(t, torch.Tensor) and t.is_floating_point() for t in (exact, expected)):
        return None
    own, other = max_diff(exact, expected.double()), max_diff(exact, got.double())
    if own.reason or other.reason or own.dnan or other.dnan or other.abs > 2 * own.abs:
        return None
    return own.abs


def apart(expected: Any, got: Any) -> torch.Tensor | None:
    """The absolute difference of each element; infinite where one is NaN; None of other shapes."""
    if not isinstance(expected, torch.Tensor) or not isinstance(got, torch.Tensor):
        return None
    if expected.shape != got.shape or expected.is_complex() != got.is_complex():
        return None
    wide = torch.complex128 if expected.is_complex() else torch.float64
    one, other = expected.detach().to(wide), got.detach().to(expected.device, wide)
    same = (one == other) | (one.isnan() & other.isnan())
    return (one - other).abs().nan_to_num(nan=torch.inf, posinf=torch.inf).masked_fill(same, 0.0)


def spread(expected: Any, others: Sequence[Any]) -> torch.Tensor | None:
    """How far each element is from the same of other results at most; None without any."""
    found = [one for one in (apart(expected, other) for other in others) if one is not None]
    return torch.stack(found).amax(0) if found else None


def settled(
    expected: Any,
    got: Any,
    others: Sequence[Any],
    tolerance: Tolerance | Limits,
    *,
    typical: bool = True,
    times: float = _TIMES,
) -> float | None:
    """How far PyTorch itself moves, if that is where and as far as the other side differs.

    Args:
        expected: of PyTorch.
        got: the same of the other side.
        others: the same of PyTorch otherwise: what may be ``times`` as far off in the other side.
        tolerance: for elements that do not move.
        typical: whether an element may also differ as half of the others in its row move.
        times: how far an element may differ, of what it moves.
    """
    moves, off = spread(expected, others), apart(expected, got)
    if moves is None or off is None:
        return None
    if typical:  # rounding makes no number as good as an infinity; unset memory may hold any
        moves = moves.masked_fill(moves.isinf(), 0.0)
    if not bool(moves.any()):
        return None
    bound = times * moves
    if typical and moves.numel():
        rows = moves.ndim > 1 and moves.shape[-1] >= _ROW
        usual = moves.median(-1, keepdim=True).values if rows else moves.median()
        usual = usual.masked_fill(usual.isinf(), 0.0)
        bound = torch.maximum(bound, _TYPICAL * usual.expand_as(bound))
    rest = torch.where(off <= bound, expected, got.to(expected))
    return float(moves.max()) if tolerance.allows(max_diff(expected, rest), expected) else None
