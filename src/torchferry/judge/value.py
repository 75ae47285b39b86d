"""The difference of two tensors, where masks do not count for the scale."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from torchferry.values.difference import Discrepancy, max_diff

__all__ = ["difference_of"]

_MASK = 1e4  # how far above all others a number is that is there to mask


def difference_of(expected: torch.Tensor, got: torch.Tensor | None) -> Discrepancy:
    """`max_diff` of a value; infinite when one side has none.

    Where the largest number stands in several places, is far above all others, and is the same on
    both sides there, it is a mask: the scale is that of the others.

    >>> masked = torch.tensor([1.0, 2.0, -1e9, -1e9])
    >>> difference_of(masked, masked).scale
    2.0
    """
    if got is None:
        return Discrepancy(math.inf, math.inf, math.inf, reason="it could not be computed")
    if expected.is_complex() and not got.is_complex():
        expected = torch.view_as_real(expected.resolve_conj())
    found = max_diff(expected, got)
    if found.scale < _MASK or found.reason is not None or not expected.is_floating_point():
        return found
    size = expected.detach().abs()
    mask = size == found.scale
    scale = float(size.where(size < found.scale, 0).max())
    if scale == 0 or scale * _MASK > found.scale or int(mask.sum()) < 2:
        return found
    same = bool((expected[mask] == got.to(expected.device)[mask]).all())
    return replace(found, scale=scale) if same else found
