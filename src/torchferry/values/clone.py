"""Deep copies of nested values that keep what is shared, shared."""

from __future__ import annotations

import copy
import ctypes
import logging
import sys
import weakref
from collections import Counter
from collections.abc import Collection, Hashable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from torchferry.errors import UsageError
from torchferry.seams.pytorch import is_inside_functorch, make_subclass, storage_number
from torchferry.values.kinds import MAPPING, Kind, attempt, attributes_of, find_kind
from torchferry.values.layout import why_not_plain

__all__ = ["Again", "clone"]

_log = logging.getLogger("torchferry")

_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_IMMUTABLE = (type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device)


class Again:
    """Copies of tensors by their originals, as long as these live.

    >>> again, x = Again(), torch.zeros(3)
    >>> clone(x, again) is clone(x, again)
    True
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def find(self, value: torch.Tensor) -> torch.Tensor | None:
        """The last copy of a tensor, if it still is what copying would give now."""
        known, kept = self._copies.get(id(value), (None, None))
        if known is None or kept is None or known() is not value:
            return None
        return kept if _is_copy(kept, value) else None

    def keep(self, value: torch.Tensor, kept: torch.Tensor) -> None:
        """Take a copy."""
        self._copies[id(value)] = weakref.ref(value), kept


Tried = tuple[Any, Exception | None]


def clone(value: Any, again: Again | None = None) -> Any:
    """Copy a nested value so that changing the original in place does not change the copy.

    Tensors stay on their device and keep ``requires_grad`` (a result of a computation becomes a
    leaf), their class and their attributes. Two references to one object stay references to one
    copy; tensors that are views of one storage become views of one new storage. Lists,
    dictionaries, tuples and dataclasses of any class are made without their constructor, with
    their attributes. Modules and what cannot be changed are not copied. Other objects are copied
    with ``copy.deepcopy``; those it refuses stay the same objects, which is logged: as a warning
    when they have attributes, at level DEBUG when they have none, as a lock or a generator.

    Args:
        value: anything.
        again: copies of earlier calls by their originals, to which those of this call are added.
            A tensor on a CPU that still is its earlier copy bit for bit gets that one again: what
            the calls return must then not be written to.

    Raises:
        UsageError: the value contains itself in another way than through a list or a dictionary,
            or is too deep.

    >>> x = torch.zeros(3)
    >>> a, b = clone([x, x[1:]])
    >>> _ = a.fill_(1)
    >>> b, x
    (tensor([1., 1.]), tensor([0., 0., 0.]))
    """
    copier = _Copier(again)
    try:
        copier.count(value)
        with torch.no_grad():
            return copier.copy(value)
    except RecursionError as error:
        raise UsageError("the value contains itself, or is too deep to be copied") from error


class _Copier:
    """What was seen and copied so far.

    Attributes:
        memo: copies by the identity of the original, as ``copy.deepcopy`` has it.
        seen: the originals: an identity is only good as long as its object lives.
        places: the storage of each tensor that is nothing but a view of plain memory.
        users: how many tensors are on a storage.
        again: as `clone` has it; None where every tensor gets a copy of its own.
    """

    def __init__(self, again: Again | None) -> None:
        self.again = again
        self.memo: dict[int, Any] = {}
        self.seen: dict[int, Any] = {}
        self.places: dict[int, int] = {}
        self.users: Counter[int] = Counter()
        self.storages: dict[int, torch.UntypedStorage] = {}

    def count(self, value: Any) -> None:
        """Learn which storages have several tensors on them: only these are copied whole."""
        if id(value) in self.seen:
            return
        self.seen[id(value)] = value
        cls = type(value)
        kind = find_kind(cls)
        if cls in (tuple, list):
            for child in value:
                self.count(child)
        elif kind is not None:
            parts, _ = attempt(kind.flatten, value)
            for child in parts[0].values() if parts else ():
                self.count(child)
        elif _has_storage(value):
            place = storage_number(value.untyped_storage())
            self.places[id(value)] = place
            self.users[place] += 1

    def copy(self, value: Any) -> Any:
        if id(value) in self.memo:
            return self.memo[id(value)]
        self.seen[id(value)] = value
        kind = find_kind(type(value))
        result = self.leaf(value) if kind is None else self.container(value, kind)
        self.memo[id(value)] = result
        return result

    def container(self, value: Any, kind: Kind) -> Any:
        if type(value) in (list, dict):
            return self.builtin(value)
        if type(value) is tuple:
            return tuple(map(self.copy, value))
        result, error = self.twin(value, kind) if kind is MAPPING else self.rebuilt(value, kind)
        if error is not None:
            result, error = self.deep(value)
        if error is not None and kind is MAPPING:
            result, error = self.rebuilt(value, kind)
        return result if error is None else _kept(value, error)

    def builtin(self, value: Any) -> Any:
        """These are made before what they hold, which may be they themselves."""
        result: Any = type(value)()
        self.memo[id(value)] = result
        if isinstance(value, list):
            result.extend(map(self.copy, value))
        else:
            result.update((key, self.copy(child)) for key, child in value.items())
        return result

    def rebuilt(self, value: Any, kind: Kind) -> Tried:
        parts, error = attempt(kind.flatten, value)
        if error is not None:
            return None, error
        children, context = parts
        copied = {key: self.copy(child) for key, child in children.items()}
        result, error = attempt(kind.unflatten, type(value), copied, context)
        if error is None:
            self.memo[id(value)] = result
            self.attributes(value, result, kind, children)
        return result, error

    def twin(self, value: Any, kind: Kind) -> Tried:
        """A mapping written in Python keeps its items among its attributes.

        Neither its constructor nor what it does for pickle is asked: they lose some.
        """
        result, error = attempt(object.__new__, type(value))
        if error is None:
            self.attributes(value, result, kind, ())
            (keys, wrong), (others, _) = attempt(list, result), attempt(list, value)
            error = wrong or (None if keys == others else KeyError("other items"))
        return result, error

    def attributes(self, value: Any, result: Any, kind: Kind, told: Collection[Hashable]) -> None:
        for name, item in attributes_of(value, kind, told).items():
            object.__setattr__(result, name, self.copy(item))

    def deep(self, value: Any) -> Tried:
        with _TensorCopies(self):
            return attempt(copy.deepcopy, value, self.memo)

    def leaf(self, value: Any) -> Any:
        if isinstance(value, (*_IMMUTABLE, torch.nn.Module)):
            return value
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, np.ndarray) and value.dtype != object:
            return value.copy(order="K")
        result, error = self.deep(value)
        return result if error is None else _kept(value, error)

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        cls: Any = type(value)
        if cls not in _PLAIN_TENSORS and torch.nn.parameter.is_lazy(value):
            return value
        place = self.places.get(id(value))
        shared = place is not None and self.users[place] > 1
        again = self.again if place is not None and not shared else None
        earlier = again.find(value) if again is not None else None
        if earlier is not None:
            return earlier
        result = self.view(value) if shared else value.detach().clone()
        if torch.nn.Parameter in cls.__mro__:
            result = make_subclass(cls, result, value.requires_grad)
        elif isinstance(value, torch.nn.Parameter):  # of a class that is no subclass of it
            result = torch.nn.Parameter(result, value.requires_grad)
        elif value.requires_grad and not is_inside_functorch():
            result.requires_grad_()  # torch.func allows it to nobody but itself
        for name, item in vars(value).items():
            if name not in vars(result):
                vars(result)[name] = self.copy(item)
        if again is not None:
            again.keep(value, result)
        return result

    def view(self, value: torch.Tensor) -> torch.Tensor:
        original = value.untyped_storage()
        storage = self.storages.get(storage_number(original))
        if storage is None:
            # PyTorch has no annotations for storages.
            storage = original.clone()  # type: ignore[no-untyped-call]
            self.storages[storage_number(original)] = storage
        result = torch.empty(0, dtype=value.dtype, device=value.device)
        return result.set_(storage, value.storage_offset(), value.size(), value.stride())


_memcmp = (ctypes.cdll.msvcrt if sys.platform == "win32" else ctypes.CDLL(None)).memcmp
_memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t


def _is_copy(kept: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a copy that was made before is what copying would give now.

    The bytes are compared: writing through ``.data`` or numpy leaves a tensor's version as it
    was. On a CPU this takes a tenth of the time that a copy takes with the memory it needs.
    """
    return (
        value.device.type == "cpu"
        and not vars(value)
        and not vars(kept)
        and type(kept) is type(value)
        and kept.shape == value.shape
        and kept.stride() == value.stride()  # as dense, then, as every copy is
        and kept.dtype is value.dtype
        and kept.requires_grad == value.requires_grad
        and _memcmp(kept.data_ptr(), value.data_ptr(), value.nbytes) == 0
    )


class _TensorCopies(TorchFunctionMode):
    """Lets ``copy.deepcopy`` copy tensors as `clone` does: it refuses results of computations."""

    def __init__(self, copier: _Copier) -> None:
        self.copier = copier

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.__deepcopy__:
            return self.copier.copy(args[0])
        return func(*args, **(kwargs or {}))


def _kept(value: Any, error: Exception | None) -> Any:
    state: Any = object.__getstate__(value)
    level = logging.DEBUG if state is None else logging.WARNING
    _log.log(
        level, "a %s is kept, not copied, and may change later: %s", type(value).__name__, error
    )
    return value


def _has_storage(value: Any) -> bool:
    """Whether a value is a tensor that is nothing but a view of plain memory."""
    return (
        type(value) in _PLAIN_TENSORS
        and why_not_plain(value) is None
        and not (value.is_conj() or value.is_neg() or value.is_quantized)
    )
