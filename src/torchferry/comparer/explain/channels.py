"""The difference of the channel that is furthest apart, where a few channels dwarf all others."""

from __future__ import annotations

from dataclasses import replace

import torch

from torchferry.judge.tolerance import Tolerance
from torchferry.judge.value import difference_of
from torchferry.values.difference import Discrepancy

__all__ = ["channel_difference"]


def channel_difference(expected: torch.Tensor, got: torch.Tensor | None) -> Discrepancy:
    """`difference_of` one channel: a place along the last axis, the one that is furthest apart.

    Its scale is its own or, if that is more, the one that half of the channels do not reach:
    what is near zero by chance has the rounding of its like. Of what has no channels, no floats,
    or no numbers to compare, it is the difference of the whole.

    >>> right = torch.tensor([[1000.0, 1.0, 2.0]])
    >>> found = channel_difference(right, right + torch.tensor([0.0, 0.1, 0.0]))
    >>> found.scale, found.argm
    (2.0, (0, 1))
    """
    whole = difference_of(expected, got)
    told = whole.reason is not None or whole.dnan or not expected.numel()
    if got is None or told or expected.ndim < 2 or not expected.is_floating_point():
        return whole
    right, other = expected.detach().double(), got.detach().double()
    apart = (right - other.to(right.device)).abs().nan_to_num(0.0).flatten(0, -2).amax(0)
    sizes = right.abs().nan_to_num(0.0).clamp(max=whole.scale).flatten(0, -2).amax(0)
    sizes = sizes.maximum(sizes.median())
    worst = int((apart / sizes.clamp(min=Tolerance.inside().least)).argmax())
    found = difference_of(expected[..., worst], got[..., worst])
    place = None if found.argm is None else (*found.argm, worst)
    return replace(found, argm=place, scale=float(sizes[worst]))
