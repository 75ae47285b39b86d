"""Other values for the tensors of a call: what the recorded ones have in common, they have not.

Code that treats one row or one token in another way often gives the same by chance: nothing is
masked in a mask of ones, and ``relu`` changes no positive number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from torchferry.observer.sets import Arguments
from torchferry.observer.tree import replace_leaves
from torchferry.values.flatten import Path

__all__ = ["unlike"]

_SPREAD = (-3.0, 7.0)  # magnitudes, as powers of two, that numbers are multiplied by
_ZEROS = 0.1  # the share of numbers that become 0, and of a mask's that change


def unlike(inputs: Arguments) -> Iterator[Arguments]:
    """The same arguments with numbers of both signs and changed masks; then of one sign.

    The second time other integers change too, lengths and indices, to such as are no larger; those
    in rising order stay, as positions and offsets do.

    Args:
        inputs: positional and named arguments.
    """
    for signs in (True, False):
        change = partial(_changed, signs=signs, generator=torch.Generator().manual_seed(0))
        yield replace_leaves(*inputs, change=change)


def _changed(_: Path, leaf: Any, *, signs: bool, generator: torch.Generator) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf.numel() or leaf.is_complex():
        return leaf
    if leaf.is_floating_point():
        return _spread(leaf, generator, signs=signs)
    if _is_mask(leaf):
        return _flipped(leaf, generator)
    return leaf if signs or _rises(leaf) else _lowered(leaf, generator)


def _spread(tensor: torch.Tensor, generator: torch.Generator, *, signs: bool) -> torch.Tensor:
    low, high = _SPREAD
    powers = torch.rand(tensor.shape, generator=generator) * (high - low) + low
    factors = powers.exp2() * (torch.rand(tensor.shape, generator=generator) >= _ZEROS)
    if signs:
        factors *= torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    numbers = tensor.detach().to(torch.float64)
    numbers = torch.where(numbers == 0, torch.ones_like(numbers), numbers)  # a mask of floats
    spread = numbers * factors.to(numbers.device)
    return torch.where(numbers.isfinite(), spread, numbers).to(tensor.dtype)


def _is_mask(tensor: torch.Tensor) -> bool:
    if tensor.dtype is torch.bool:
        return True
    return bool(((tensor == 0) | (tensor == 1)).all())


def _rises(tensor: torch.Tensor) -> bool:
    return tensor.ndim > 0 and tensor.shape[-1] > 1 and bool((tensor.diff() > 0).all())


def _lowered(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    least, most = min(int(tensor.min()), 1), int(tensor.max())
    drawn = torch.randint(least, most + 1, tensor.shape, generator=generator)
    return drawn.to(tensor.dtype).to(tensor.device)


def _flipped(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A mask where some entries are the other; one at least."""
    where = torch.rand(tensor.shape, generator=generator) < _ZEROS
    where.view(-1)[int(torch.randint(0, tensor.numel(), (), generator=generator))] = True
    other = tensor.logical_not().to(tensor.dtype)
    return torch.where(where.to(tensor.device), other, tensor.detach())
