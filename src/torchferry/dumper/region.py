"""Where the elements of one tensor lie in a buffer of a dump; tensors and arrays made of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchferry.dumper.element import find_dtype, item_size
from torchferry.errors import UsageError

__all__ = ["Region", "array_in", "dense_strides", "extent", "tensor_in"]


@dataclass(frozen=True)
class Region:
    """Where the elements of one tensor lie in a buffer; offset and strides in bytes.

    ``strides`` is ``None`` for the elements one after the other.
    """

    buffer: int
    dtype: str
    shape: tuple[int, ...]
    offset: int = 0
    strides: tuple[int, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON types, what is usual left out."""
        found: dict[str, Any] = {"buffer": self.buffer, "dtype": self.dtype, "shape": self.shape}
        if self.offset:
            found["offset"] = self.offset
        if self.strides is not None:
            found["strides"] = self.strides
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any], sizes: list[int]) -> Region:
        """What `to_json` wrote.

        Args:
            data: from a file.
            sizes: bytes of each buffer.

        Raises:
            UsageError: it is no region, or reaches out of its buffer.
        """
        offset, strides = data.get("offset", 0), data.get("strides")
        match data:
            case {"buffer": buffer, "dtype": str(dtype), "shape": list(shape)} if (
                _are_sizes([buffer, offset, *shape], least=0)
                and buffer < len(sizes)
                and (strides is None or _are_strides(strides, len(shape)))
            ):
                layout = None if strides is None else tuple(strides)
                region = cls(buffer, dtype, tuple(shape), offset, layout)
            case _:
                raise UsageError(f"this is no place of a tensor: {str(data)[:80]}")
        low, high = extent(region.shape, region.byte_strides, item_size(region.dtype))
        if low + offset < 0 or high + offset > sizes[buffer]:
            raise UsageError(f"a tensor of this dump reaches out of its bytes: {str(data)[:80]}")
        return region

    @property
    def byte_strides(self) -> tuple[int, ...]:
        """The strides, also of elements one after the other."""
        if self.strides is not None:
            return self.strides
        return dense_strides(self.shape, item_size(self.dtype))


def tensor_in(raw: torch.Tensor, region: Region) -> torch.Tensor:
    """The tensor at a region of a buffer.

    Args:
        raw: uint8, the whole buffer.
        region: checked by `Region.from_json`.

    Raises:
        UsageError: it is not a tensor's.
    """
    dtype = find_dtype(region.dtype)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"this is no dtype of a tensor: {region.dtype}")
    size = dtype.itemsize
    strides = region.byte_strides
    if region.offset % size or any(stride % size or stride < 0 for stride in strides):
        raise UsageError(f"a tensor at byte {region.offset} is not aligned")
    empty = torch.empty(0, dtype=dtype)
    element_strides = [stride // size for stride in strides]
    return empty.set_(
        raw.untyped_storage(), region.offset // size, list(region.shape), element_strides
    )


def array_in(raw: torch.Tensor, region: Region) -> np.ndarray[Any, Any]:
    """The array at a region of a buffer; as `tensor_in`."""
    dtype = find_dtype(region.dtype)
    if isinstance(dtype, torch.dtype):
        raise UsageError(f"this is no dtype of an array: {region.dtype}")
    if 0 in region.shape:
        return np.empty(region.shape, dtype)
    return np.ndarray(region.shape, dtype, raw.numpy(), region.offset, region.byte_strides)


def extent(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> tuple[int, int]:
    """First byte and end of the elements, seen from the first element.

    Args:
        shape: of a tensor.
        strides: bytes from one element to the next of each axis; may be negative.
        size: bytes of an element.

    >>> extent((2, 3), (12, 4), 4), extent((3,), (-4,), 4)
    ((0, 24), (-8, 4))
    """
    if 0 in shape or size == 0:
        return 0, 0
    low, high = 0, size
    for count, stride in zip(shape, strides, strict=True):
        step = (count - 1) * stride
        if step < 0:
            low += step
        else:
            high += step
    return low, high


def dense_strides(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The strides of elements one after the other.

    >>> dense_strides((2, 3), 4)
    (12, 4)
    """
    strides = []
    for count in reversed(shape):
        strides.append(size)
        size *= count
    return tuple(reversed(strides))


def _are_sizes(values: Iterable[Any], least: int = -(2**62)) -> bool:
    return all(type(value) is int and least <= value < 2**62 for value in values)


def _are_strides(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == count and _are_sizes(value)
