"""The tensors that were frozen into a session, and whether they are still what they were."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torchferry.seams.pytorch import version_of

__all__ = ["FrozenWeights", "can_freeze"]

_WHOLE = 4096  # elements: a tensor of no more is compared whole at every call
_SAMPLES = 64  # elements of a larger one that are compared
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def can_freeze(tensor: Any) -> bool:
    """Whether PyTorch counts the changes of a tensor."""
    return (
        isinstance(tensor, torch.Tensor)
        and not tensor.is_inference()
        and tensor.layout is torch.strided
    )


class FrozenWeights:
    """What a call's tensors are compared with.

    A tensor is the same when it is the same object, at the same address, with PyTorch's count of
    in-place writes unchanged. Writes through ``.data`` are not counted: on the CPU small tensors
    are compared whole, and of large ones some elements, spread over the tensor. A write through
    ``.data`` to a part of a large tensor that leaves these as they were is not noticed.

    Attributes:
        tensors: the frozen ones, by position among the arguments.
    """

    def __init__(self, positions: Sequence[int], args: Sequence[Any]) -> None:
        self.tensors: dict[int, torch.Tensor] = {place: args[place] for place in positions}
        self._known = [
            (place, tensor, version_of(tensor), tensor.data_ptr(), *_sample(tensor))
            for place, tensor in self.tensors.items()
        ]

    def owned(self, args: Sequence[Any]) -> bool:
        """Whether the arguments are these tensors, whatever is in them by now."""
        return all(args[place] is tensor for place, tensor in self.tensors.items())

    def unchanged(self, args: Sequence[Any]) -> bool:
        """Whether the arguments are these tensors, with what was in them."""
        for place, tensor, version, address, sample, content in self._known:
            if (
                args[place] is not tensor
                or version_of(tensor) != version
                or tensor.data_ptr() != address
                or sample() != content
            ):
                return False
        return True


def _sample(tensor: torch.Tensor) -> tuple[Callable[[], bytes], bytes]:
    """A function that reads the bits of some elements, and what it reads now."""
    bits = _BITS.get(tensor.element_size())
    if tensor.device.type != "cpu" or tensor.numel() == 0 or bits is None:
        return bytes, b""
    plain = tensor.detach()
    if plain.numel() <= _WHOLE:
        pass
    elif plain.is_contiguous():
        # An odd step does not keep to one column.
        plain = plain.view(-1)[:: max(1, plain.numel() // _SAMPLES) | 1]
    else:
        plain = plain[tuple(slice(0, 2) for _ in range(plain.ndim))]
    read = plain.view(bits).numpy().tobytes
    return read, read()
