"""Whether what two sides draw at random may come from one distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.values.difference import Discrepancy

__all__ = ["FREE", "UNIT", "Bounds", "may_be_drawn", "same_moments"]

Bounds = tuple[float, float]

FREE: Bounds = (-math.inf, math.inf)
UNIT: Bounds = (0.0, 1.0)
_APART = 6.0  # of a fair sum, in its own size: exceeded in less than 1 of 10,000,000 cases
_TOLD = 6.0  # the same of a few draws, whose spread is itself a guess
_LEAST = 1e-4  # of the mean: rounding of one kind is no other distribution


def may_be_drawn(
    expected: torch.Tensor,
    got: torch.Tensor,
    bounds: Bounds,
    allows: Callable[[torch.Tensor, Discrepancy], bool],
) -> bool:
    """Whether two tensors of one shape may be draws of the same.

    If they are, the difference of each element is as likely to be negative as positive, and so is
    that of the squares: sums of those exceed t times the root of the sum of their squares in at
    most ``2 * exp(-t * t / 2)`` of all cases (Efron, "Student's t-test under symmetry
    conditions", 1969), whatever the distributions. Less than 37 elements never do.

    Args:
        expected: the reference's draw.
        got: the other's.
        bounds: between what elements may be.
        allows: whether means pass, whatever the rest.

    >>> right = torch.zeros(40)
    >>> may_be_drawn(right, right + 1, (-math.inf, math.inf), lambda *_: False)
    False
    >>> may_be_drawn(right[:9], right[:9] + 1, (-math.inf, math.inf), lambda *_: False)
    True
    """
    if expected.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    one, other = (tensor.detach().cpu().double().flatten() for tensor in (expected, got))
    if bounds != FREE and not bool(((other >= bounds[0]) & (other <= bounds[1])).all()):
        return False
    finite = one.isfinite() & other.isfinite()
    return all(
        _fair(*pair, allows)
        for pair in ((one[finite], other[finite]), (one[finite] ** 2, other[finite] ** 2))
    )


def _fair(
    one: torch.Tensor,
    other: torch.Tensor,
    allows: Callable[[torch.Tensor, Discrepancy], bool],
) -> bool:
    apart = other - one
    if float(apart.sum().abs()) <= _APART * float(apart.norm()):
        return True
    means = Discrepancy(abs=float(apart.mean().abs()), scale=float(one.abs().mean()))
    return allows(one.float(), means)  # rounding of one kind is no other distribution


def same_moments(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    """Whether the means of several draws, and those of their squares, may be of one distribution.

    The draws are independent, whatever their elements are: each is one number of either kind, and
    the two sets of numbers are told apart by the size of their own spread (Student's t).

    Args:
        ours: tensors, several draws of one side.
        theirs: as many of the other.

    >>> draws = [torch.randn(50) for _ in range(12)]
    >>> same_moments(draws[:6], draws[6:]), same_moments(draws[:6], [d + 9 for d in draws[6:]])
    (True, False)
    """
    return all(_alike(*(_numbers(side, power) for side in (ours, theirs))) for power in (1, 2))


def _numbers(draws: Sequence[Any], power: int) -> torch.Tensor:
    tensors = [torch.as_tensor(draw).detach().cpu() for draw in draws]
    flat = [(t.abs() if t.is_complex() else t).double().nan_to_num() for t in tensors]
    return torch.stack([(t.pow(power)).mean() if t.numel() else t.sum() for t in flat])


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    apart = float((one.mean() - other.mean()).abs())
    size = float(((one.var() + other.var()) / len(one)).sqrt())
    return apart <= _TOLD * size + _LEAST * float(one.abs().mean())
