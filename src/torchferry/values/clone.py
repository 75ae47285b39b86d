"""Deep copies of nested values that keep what is shared, shared."""

from __future__ import annotations

import copy
import logging
from collections import Counter
from typing import Any

import numpy as np
import torch

from torchferry.values.kinds import find_kind

__all__ = ["clone"]

_log = logging.getLogger("torchferry")

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device)
_NOT_COPIED = (
    AttributeError, NotImplementedError, RecursionError, RuntimeError, TypeError, ValueError,
    copy.Error,
)  # fmt: skip


def clone(value: Any) -> Any:
    """Copy a nested value so that changing the original in place does not change the copy.

    Tensors stay on their device and keep ``requires_grad`` (a result of a computation becomes a
    leaf) and their class. Two references to one object stay references to one copy; tensors that
    are views of one storage become views of one new storage. Modules and what cannot be changed
    are not copied. Other unknown objects are copied with ``copy.deepcopy``; those it refuses, as
    a lock or a generator, stay the same objects, which is logged at level DEBUG.

    >>> x = torch.zeros(3)
    >>> a, b = clone([x, x[1:]])
    >>> _ = a.fill_(1)
    >>> b, x
    (tensor([1., 1.]), tensor([0., 0., 0.]))
    """
    copier = _Copier()
    copier.count(value)
    with torch.no_grad():
        return copier.copy(value)


class _Copier:
    """What was seen and copied so far, by identity.

    Originals are kept beside their copies: an identity is only good as long as its object lives.
    """

    def __init__(self) -> None:
        self.copies: dict[int, tuple[Any, Any]] = {}
        self.seen: dict[int, Any] = {}
        self.users: Counter[int] = Counter()  # tensors by storage
        self.storages: dict[int, torch.UntypedStorage] = {}

    def count(self, value: Any) -> None:
        """Learn which storages have several tensors on them: only these are copied whole."""
        if id(value) in self.seen:
            return
        self.seen[id(value)] = value
        kind = find_kind(type(value))
        if kind is not None:
            for child in kind.flatten(value)[0].values():
                self.count(child)
        elif _has_storage(value):
            self.users[value.untyped_storage()._cdata] += 1

    def copy(self, value: Any) -> Any:
        known = self.copies.get(id(value))
        if known is not None:
            return known[1]
        cls = type(value)
        kind = find_kind(cls)
        if kind is not None:
            children, context = kind.flatten(value)
            copied = {key: self.copy(child) for key, child in children.items()}
            result = kind.unflatten(cls, copied, context)
        else:
            result = self.leaf(value)
        self.copies[id(value)] = (value, result)
        return result

    def leaf(self, value: Any) -> Any:
        if isinstance(value, (*_IMMUTABLE, torch.nn.Module)):
            return value
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return value.copy(order="K")
        try:
            return copy.deepcopy(value, {key: made for key, (_, made) in self.copies.items()})
        except _NOT_COPIED as error:
            _log.debug("%s is kept, not copied: %s", type(value).__name__, error)
            return value

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        if _has_storage(value) and self.users[value.untyped_storage()._cdata] > 1:
            result = self.view(value)
        else:
            result = value.detach().clone()
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(result, value.requires_grad)
        return result.requires_grad_(value.requires_grad)

    def view(self, value: torch.Tensor) -> torch.Tensor:
        original = value.untyped_storage()
        storage = self.storages.get(original._cdata)
        if storage is None:
            # PyTorch has no annotations for storages.
            storage = original.clone()  # type: ignore[no-untyped-call]
            self.storages[original._cdata] = storage
        result = torch.empty(0, dtype=value.dtype, device=value.device)
        return result.set_(storage, value.storage_offset(), value.size(), value.stride())


def _has_storage(value: Any) -> bool:
    """Whether a value is a tensor that is nothing but a view of plain memory."""
    return (
        type(value) in _PLAIN_TENSORS
        and value.layout is torch.strided
        and not (value.is_meta or value.is_conj() or value.is_neg() or value.is_quantized)
    )
