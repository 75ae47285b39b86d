"""A tensor of another size that is still a likely input."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["resize"]

_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def resize(tensor: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Stretch or shrink a tensor to ``shape``.

    Each axis is sampled at evenly spaced indices, in order: a mask keeps its padding at the same
    side, positions and offsets stay sorted, and every integer is one that was seen. Floating
    values that got repeated are told apart by noise of at most 5%, kept inside the range seen, so
    that swapping two rows changes the result; zeros and infinities stay what they are.

    Args:
        tensor: any dtype; an empty axis can only be filled with zeros.
        shape: as many sizes as the tensor has dimensions.
        generator: for the noise.

    Returns:
        A new contiguous tensor of the same dtype and device, without gradient.
    """
    # PyTorch does not index its newer unsigned types: go through their bits.
    signed = _SIGNED.get(tensor.dtype, tensor.dtype)
    result = tensor.detach().view(signed)
    grown = False
    for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        if old == 0 < new:
            return tensor.new_zeros(tuple(shape))
        if old != new:
            index = torch.arange(new, device=tensor.device) * old // max(new, 1)
            result = result.index_select(axis, index)
        grown = grown or new > old
    if grown and result.is_floating_point():
        result = _told_apart(result, tensor.detach(), generator)
    return result.clone(memory_format=torch.contiguous_format).view(tensor.dtype)


def _told_apart(
    values: torch.Tensor, seen: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """The values with noise, within the range of those seen."""
    known = seen.to(torch.float64)  # there is no minimum of a float8
    known = known[~known.isnan()]
    if not known.numel():
        return values
    noise = torch.rand(values.shape, generator=generator, dtype=torch.float64) * 0.1 - 0.05
    noisy = values.to(torch.float64) * (1 + noise.to(values.device))
    return noisy.clamp(known.min(), known.max()).to(values.dtype)
