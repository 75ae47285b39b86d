"""How many bytes a dump takes for a value, told from sizes and addresses alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchferry.dumper.region import extent
from torchferry.seams.pytorch import storage_number
from torchferry.values.flatten import flatten

__all__ = ["bytes_of"]


@dataclass
class _Span:
    """Memory from ``low`` to ``high`` that one tensor has, or several share."""

    device: str
    low: int
    high: int
    nbytes: int | None  # of the elements of the only tensor in it

    @property
    def taken(self) -> int:
        """A tensor alone is stored element by element, unless it repeats them; else the span."""
        whole = self.high - self.low
        return whole if self.nbytes is None else min(whole, self.nbytes)

    def add(self, other: _Span) -> None:
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.nbytes = None


def bytes_of(value: Any) -> int:
    """Bytes that storing a value takes.

    Tensors that share memory are stored with all that lies between the first and the last of
    their elements, so that they share it again.

    Args:
        value: nested tensors and arrays. What has no plain memory counts nothing: a dump refuses
            it.

    >>> x = torch.zeros(100)
    >>> bytes_of(x[:1]), bytes_of([x[:1], x[:1]]), bytes_of([x[:1], x[-1:]])
    (4, 4, 400)
    """
    leaves = {id(leaf): leaf for _, leaf in flatten(value)[0]}.values()
    spans: dict[Hashable, _Span] = {}
    for owner, span in _spans(leaves):
        known = spans.setdefault(owner, span)
        if known is not span:
            known.add(span)
    total, last = 0, None
    for span in sorted(spans.values(), key=lambda one: (one.device, one.low)):
        if last is not None and (last.device, last.high) > (span.device, span.low):
            last.add(span)  # an array over the memory of a tensor
            continue
        total += 0 if last is None else last.taken
        last = span
    return total + (0 if last is None else last.taken)


def _spans(leaves: Iterable[Any]) -> Iterator[tuple[Hashable, _Span]]:
    """The memory of each tensor and array, with what whole allocation it is part of."""
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            base: Any = leaf
            while isinstance(base.base, np.ndarray):
                base = base.base
            owner, device = ("array", id(base)), "cpu"
            address, strides, size = leaf.ctypes.data, leaf.strides, leaf.itemsize
        elif isinstance(leaf, torch.Tensor):
            try:
                storage, size = leaf.untyped_storage(), leaf.element_size()
                owner, device = ("storage", storage_number(storage)), str(storage.device)
                if storage.device.type == "meta":  # each in a place of its own
                    address, device = 0, f"meta {storage_number(storage)}"
                else:
                    address = storage.data_ptr()
                address += int(leaf.storage_offset()) * size
                strides = tuple(stride * size for stride in leaf.stride())
            except RuntimeError:  # sparse, nested, or wrapped by torch.func
                continue
        else:
            continue
        low, high = extent(tuple(leaf.shape), strides, size)
        if low < high:
            yield owner, _Span(device, address + low, address + high, leaf.nbytes)
