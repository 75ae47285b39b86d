"""Where tensors and arrays lie in memory, and how to store what they share once.

Tensors on one storage, arrays with one base, and whatever else overlaps, become one buffer. What
lies in it is a `Region` for each of them. A tensor alone becomes contiguous, unless it has
more elements than memory, as an expanded one.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from torchferry.dumper.element import dtype_name, item_size
from torchferry.dumper.region import Region, dense_strides, extent
from torchferry.errors import UsageError
from torchferry.seams.pytorch import storage_number
from torchferry.values.layout import why_not_plain

__all__ = ["BITS", "Buffer", "Memory", "memory_of", "pack"]

BITS = "|u1"
"""The dtype of a buffer of which no one dtype can be told."""

_ALIGNED = 16  # bytes; the largest element
_UNSIGNED = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


@dataclass(frozen=True)
class Memory:
    """The memory of one tensor or array: bytes throughout.

    Attributes:
        owner: what whole allocation it is part of.
        alive: keeps the memory while this lives.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    owner: Hashable
    alive: Any = field(repr=False)

    @property
    def extent(self) -> tuple[int, int]:
        """The addresses of the first byte and of the one after the last."""
        low, high = extent(self.shape, self.strides, item_size(self.dtype))
        return self.address + low, self.address + high

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return math.prod(self.shape) * item_size(self.dtype)


@dataclass(frozen=True)
class Buffer:
    """Bytes to store once.

    Attributes:
        data: bytes; the memory of the tensors themselves where it can be.
        dtype: of all tensors in it, or `BITS`.
        shape: of the only tensor in it, or its number of elements.
        first: index of the first tensor in it.
    """

    data: memoryview
    dtype: str
    shape: tuple[int, ...]
    first: int


def memory_of(
    value: torch.Tensor | np.ndarray[Any, Any], copies: dict[int, torch.UntypedStorage]
) -> Memory:
    """The memory of a tensor or an array; of one on another device, of its copy in main memory.

    Args:
        value: the tensor or the array.
        copies: the copies made so far; give the same to all calls.

    Raises:
        UsageError: its elements lie in no plain memory, or are of a dtype that has none.
    """
    name = dtype_name(value.dtype)
    if name is None:
        raise UsageError(f"of dtype {value.dtype}, which is not plain memory")
    if not isinstance(value, torch.Tensor):
        base: Any = value
        while isinstance(base.base, np.ndarray):
            base = base.base
        address = value.ctypes.data
        return Memory(address, name, value.shape, value.strides, ("array", id(base)), value)
    reason = why_not_plain(value)
    if reason is not None:
        raise UsageError(reason)
    value = value.detach().resolve_conj().resolve_neg()
    storage = value.untyped_storage()
    # Storages are one object in C++ and may be several in Python.
    number = storage_number(storage)
    if storage.device.type != "cpu":
        if number not in copies:
            # PyTorch has no annotations for storages.
            copies[number] = storage.cpu()  # type: ignore[no-untyped-call]
        storage = copies[number]
    size = value.element_size()
    strides = tuple(stride * size for stride in value.stride())
    low = int(value.storage_offset()) * size
    if value.numel() and extent(tuple(value.shape), strides, size)[1] + low > storage.nbytes():
        raise UsageError("larger than its storage, which was freed or resized")
    address, alive = storage.data_ptr() + low, (value, storage)
    return Memory(address, name, tuple(value.shape), strides, ("storage", number), alive)


def pack(memories: list[Memory]) -> tuple[list[Region], list[Buffer]]:
    """Give each memory its region; what is shared has one buffer.

    Raises:
        UsageError: tensors of several dtypes share memory in a way that cannot be restored.
    """
    regions: dict[int, Region] = {}
    buffers: list[Buffer] = []
    for group in _groups(memories):
        number = len(buffers)
        if len(group) == 1 and (alone := _alone(memories[group[0]], group[0])) is not None:
            buffers.append(alone)
            regions[group[0]] = Region(number, alone.dtype, alone.shape)
            continue
        members = [memories[index] for index in group]
        buffer, start = _shared(members, group[0])
        buffers.append(buffer)
        for index, memory in zip(group, members, strict=True):
            regions[index] = Region(
                number, memory.dtype, memory.shape, memory.address - start, memory.strides
            )
    return [regions[index] for index in range(len(memories))], buffers


def _groups(memories: list[Memory]) -> list[list[int]]:
    """Indices of memories with one owner or that overlap, in the order of the first of each."""
    blocks: dict[Hashable, tuple[int, int, list[int]]] = {}
    empty: list[list[int]] = []
    for index, memory in enumerate(memories):
        low, high = memory.extent
        if low == high:
            empty.append([index])
            continue
        known = blocks.setdefault(memory.owner, (low, high, []))
        known[2].append(index)
        blocks[memory.owner] = (min(low, known[0]), max(high, known[1]), known[2])
    groups: list[list[int]] = []
    end = -1
    for low, high, indices in sorted(blocks.values()):
        if low < end:
            groups[-1] += indices
        else:
            groups.append(indices)
        end = max(end, high)
    return sorted(sorted(group) for group in [*groups, *empty])


def _alone(memory: Memory, index: int) -> Buffer | None:
    """The elements of one memory in order; ``None`` for more elements than there is memory."""
    low, high = memory.extent
    if high - low < memory.nbytes:
        return None
    size = item_size(memory.dtype)
    if memory.nbytes == 0:
        data = memoryview(b"")
    elif memory.strides == dense_strides(memory.shape, size) or high - low == size:
        data = _bytes_at(low, high)
    else:
        kind = np.dtype(_UNSIGNED.get(size, f"V{size}"))
        raw = np.ndarray(
            memory.shape, kind, _bytes_at(low, high), memory.address - low, memory.strides
        )
        data = np.ascontiguousarray(raw).reshape(-1).view(np.uint8).data
    return Buffer(data, memory.dtype, memory.shape, index)


def _shared(members: list[Memory], first: int) -> tuple[Buffer, int]:
    """The memory that spans all members, and the address its first byte stands for."""
    low = min(memory.extent[0] for memory in members)
    high = max(memory.extent[1] for memory in members)
    dtypes = {memory.dtype for memory in members}
    data = _bytes_at(low, high)
    if len(dtypes) > 1 and low % _ALIGNED:
        # so that elements of every size start at a multiple of it
        data = memoryview(bytes(low % _ALIGNED) + data)
        low -= low % _ALIGNED
    dtype = dtypes.pop() if len(dtypes) == 1 else BITS
    for memory in members:
        size = item_size(memory.dtype)
        aligned = not any(offset % size for offset in (memory.address - low, *memory.strides))
        if not aligned and memory.dtype.startswith("torch."):
            raise UsageError("not aligned with others in the same memory; give a copy of it")
        if not aligned or len(data) % size:
            dtype = BITS
    return Buffer(data, dtype, (len(data) // item_size(dtype),), first), low


def _bytes_at(low: int, high: int) -> memoryview:
    kind = ctypes.c_uint8 * (high - low)
    return memoryview(kind.from_address(low)).cast("B")
