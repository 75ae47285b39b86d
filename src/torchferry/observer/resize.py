"""A tensor of another size that is still a likely input."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["resize"]


def resize(tensor: torch.Tensor, shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Stretch or shrink a tensor to ``shape``.

    Each axis is sampled at evenly spaced indices, in order: a mask keeps its padding at the same
    side, positions and offsets stay sorted, and every integer is one that was seen. Floating
    values that got repeated are told apart by noise of at most 5%, kept inside the range seen, so
    that swapping two rows changes the result.

    Args:
        tensor: any dtype; an empty axis can only be filled with zeros.
        shape: as many sizes as the tensor has dimensions.
        generator: for the noise.

    Returns:
        A new contiguous tensor of the same dtype and device.
    """
    result = tensor
    for axis, (old, new) in enumerate(zip(tensor.shape, shape, strict=True)):
        if old == new:
            continue
        if old == 0:
            return tensor.new_zeros(tuple(shape))
        index = torch.arange(new, device=tensor.device) * old // max(new, 1)
        result = result.index_select(axis, index)
    grown = result.numel() > tensor.numel()
    if grown and result.is_floating_point():
        noise = torch.rand(result.shape, generator=generator).to(result.device) * 0.1 - 0.05
        noisy = (result.to(torch.float32) * (1 + noise)).to(result.dtype)
        result = torch.clamp(noisy, tensor.min(), tensor.max())
    return result.clone(memory_format=torch.contiguous_format)
