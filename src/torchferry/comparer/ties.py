"""Orders among equal numbers: sort and topk may give their places in any order."""

from __future__ import annotations

import torch

__all__ = ["equal_up_to_ties"]


def equal_up_to_ties(
    values: torch.Tensor, expected: torch.Tensor, got: torch.Tensor, dim: int
) -> bool:
    """Whether places of sorted numbers are the same but for the order among equal numbers.

    Args:
        values: the sorted numbers, of any shape.
        expected: their places before, of that shape.
        got: the same, of the other side.
        dim: along which they are sorted. The numbers equal to the last one may be cut off, so that
            nothing can be said of their places.

    >>> values = torch.tensor([5.0, 5.0, 3.0, 1.0])
    >>> places = torch.tensor([0, 2, 1, 3])
    >>> equal_up_to_ties(values, places, torch.tensor([2, 0, 1, 3]), 0)
    True
    >>> equal_up_to_ties(values, places, torch.tensor([0, 1, 2, 3]), 0)
    False
    """
    if not values.shape == expected.shape == got.shape or values.numel() == 0:
        return False
    values, expected, got = (tensor.movedim(dim, -1) for tensor in (values, expected, got))
    begins = torch.ones_like(values, dtype=torch.int64)
    begins[..., 1:] = values[..., 1:] != values[..., :-1]
    run = begins.cumsum(-1)
    least = min(int(expected.min()), int(got.min()))
    width = max(int(expected.max()), int(got.max())) - least + 1
    # Within each run the places in order; runs stay apart.
    one, other = ((run * width + place - least).sort(-1).values for place in (expected, got))
    return bool(((one == other) | (run == run[..., -1:])).all())
