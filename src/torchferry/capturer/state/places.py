"""Where a model keeps tensors and numbers of its own: find, read and exchange them."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from torchferry.capturer.state.state import attributes_of_model
from torchferry.errors import UsageError
from torchferry.seams.pytorch import buffers_of
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt

__all__ = [
    "ABSENT", "Owner", "Place", "exchanged", "find_places", "owners_of", "read_place",
    "state_kept",
]  # fmt: skip

ABSENT = object()
"""Stands for a value that is not there."""

_LEAVES = torch.Tensor | bool | int | float | str | None
_OPAQUE = (type, FunctionType, MethodType, ModuleType)
_DEEPEST = 6  # containers within one another


@dataclass(frozen=True)
class Place:
    """A place for a value in a model.

    Attributes:
        module: path of the module.
        attribute: name of its buffer or attribute.
        path: keys, indices and names of attributes within that.
    """

    module: str
    attribute: str
    path: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return ".".join(map(str, filter(None, (self.module, self.attribute)))) + "".join(
            f".{key}" for key in self.path
        )


Owner = tuple[str, str]
"""Path of a module and name of its buffer or attribute."""


def owners_of(model: torch.nn.Module) -> dict[Owner, Any]:
    """The buffers and attributes of a model and its submodules; parameters are left out."""
    found: dict[Owner, Any] = {
        (path, name): value
        for path, module in model.named_modules()
        for name, value in buffers_of(module).items()
    }
    plain = vars(torch.nn.Module())
    for path, name, value in attributes_of_model(model):
        if name not in plain and not isinstance(value, torch.nn.Module | torch.nn.Parameter):
            found.setdefault((path, name), value)
    return found


def find_places(model: torch.nn.Module) -> dict[Place, Any]:
    """Every tensor, number, text and None in the buffers and attributes, containers included.

    An object that stands in two places is there twice.
    """
    return {
        Place(module, name, path): leaf
        for (module, name), value in owners_of(model).items()
        for path, leaf in _leaves(value)
        if isinstance(leaf, _LEAVES)
    }


def read_place(model: torch.nn.Module, place: Place) -> Any:
    """The value at a place; `ABSENT` if there is none."""
    value = _get(model.get_submodule(place.module), place.attribute)
    for key in place.path:
        try:
            value = vars(value)[key] if _is_object(value) else value[key]
        except (KeyError, IndexError, TypeError):
            return ABSENT
    return value


@contextmanager
def exchanged(
    model: torch.nn.Module, values: Mapping[Place, Any], *, traced: bool = False
) -> Iterator[None]:
    """Let a model have other values at some places while the block runs.

    Containers on the way are copied, so that the model's own stay as they are whatever the block
    does; an object that stands in several places stays one object.

    Args:
        model: any module.
        values: what it is to have.
        traced: make attributes of buffers, as torch.export returns what is assigned to a buffer.

    Raises:
        UsageError: a container cannot be copied.
    """
    owners = dict.fromkeys((place.module, place.attribute) for place in values)
    modules = {path: model.get_submodule(path) for path, _ in owners}
    before = {(path, name): _get(modules[path], name) for path, name in owners}
    kept = {id(leaf): leaf for value in before.values() for _, leaf in _leaves(value)}
    whole = {(place.module, place.attribute) for place in values if not place.path}
    now = {
        owner: value if owner in whole else _copied(owner, value, kept)
        for owner, value in before.items()
    }
    for place, value in values.items():
        owner = (place.module, place.attribute)
        now[owner] = _replaced(now[owner], place.path, value)
    own = {owner: vars(modules[owner[0]]).get(owner[1], ABSENT) for owner in owners}
    tables = {path: buffers_of(module) for path, module in modules.items()}
    buffers = {path: dict(table) for path, table in tables.items()}
    try:
        for (path, name), value in now.items():
            if name in tables[path] and not traced:
                tables[path][name] = value
            else:
                tables[path].pop(name, None)
                vars(modules[path])[name] = value
        yield
    finally:
        for (path, name), value in own.items():
            vars(modules[path]).pop(name, None)
            if value is not ABSENT:
                vars(modules[path])[name] = value
        for path, saved in buffers.items():
            others = {n: one for n, one in tables[path].items() if (path, n) not in own}
            tables[path].clear()  # as the order is that of the state_dict
            tables[path].update({**saved, **others})


@contextmanager
def state_kept(model: torch.nn.Module) -> Iterator[None]:
    """Let a model run with copies of all its buffers and attributes, and have its own again."""
    owners = owners_of(model).items()
    filled = {
        owner: value for owner, value in owners
        if any(_leaves(value)) or (isinstance(value, dict | list) and not value)
    }  # fmt: skip
    copies = clone(filled)
    with exchanged(model, {Place(*owner): value for owner, value in copies.items()}):
        yield


def _leaves(
    value: Any, path: tuple[Any, ...] = (), inside: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The leaves of a value by path; modules are leaves too."""
    if isinstance(value, _LEAVES | torch.nn.Module):
        yield path, value
    elif len(inside) < _DEEPEST and id(value) not in inside:
        for key, item in _items(value):
            yield from _leaves(item, (*path, key), (*inside, id(value)))


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple | deque):
        return list(enumerate(value))
    return list(vars(value).items()) if _is_object(value) else []


def _is_object(value: Any) -> bool:
    """Whether the parts of a value are its attributes."""
    return hasattr(value, "__dict__") and not isinstance(
        value, (Mapping, list, tuple, deque, *_OPAQUE)
    )


def _get(module: torch.nn.Module, name: str) -> Any:
    buffers = buffers_of(module)
    return buffers[name] if name in buffers else getattr(module, name, ABSENT)


def _copied(owner: Owner, value: Any, kept: dict[int, Any]) -> Any:
    copied, error = attempt(copy.deepcopy, value, kept)
    if error is not None:
        raise UsageError(
            f"self.{Place(*owner)} holds state and cannot be copied ({type(error).__name__}: "
            f"{str(error)[:200]}): keep its tensors in buffers or in lists"
        ) from error
    return copied


def _replaced(value: Any, path: tuple[Any, ...], leaf: Any) -> Any:
    """The value with another leaf at a path; written in place where its class allows it."""
    if not path:
        return leaf
    key, *rest = path
    inner = vars(value)[key] if _is_object(value) else value[key]
    new = _replaced(inner, tuple(rest), leaf)
    if isinstance(value, tuple):
        items = [*value[:key], new, *value[key + 1 :]]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    (vars(value) if _is_object(value) else value)[key] = new
    return value
