"""Run a module without keeping what its code makes of itself."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import torch

from torchferry.values.buffers import buffers_kept
from torchferry.values.source_line import is_library, package_of

__all__ = ["attributes_kept", "hold_containers", "put_back"]

_CONTAINERS = (list, dict, set, deque)
_OF_TORCH = frozenset(vars(torch.nn.Module()))  # parameters, buffers, hooks

Held = tuple[Any, list[Any]]


@contextmanager
def attributes_kept(model: torch.nn.Module) -> Iterator[None]:
    """Buffers have their values, and attributes are those that they were, after the block.

    So are the contents of lists, dictionaries, sets and deques, and the attributes of objects of
    the user's classes, however deep.

    >>> class Counts(torch.nn.Module):
    ...     calls = 0
    ...     def forward(self, x):
    ...         self.calls += 1
    ...         return x
    >>> model = Counts()
    >>> with attributes_kept(model):
    ...     _ = model(torch.zeros(1))
    >>> model.calls
    0
    """
    before = [(module, type(module), dict(vars(module))) for module in model.modules()]
    held = hold_containers([model])
    try:
        with buffers_kept(model):
            yield
    finally:
        for module, cls, own in before:
            if type(module) is cls:  # a lazy module is another after its first call
                _restore(vars(module), own)
        put_back(held)


def hold_containers(values: Iterable[object]) -> dict[int, Held]:
    """Note what is in lists, dictionaries, sets and deques, however deep, and in modules' own."""
    held: dict[int, Held] = {}
    for value in values:
        if isinstance(value, torch.nn.Module):
            for module in value.modules():
                for name, own in vars(module).items():
                    if name not in _OF_TORCH:
                        _hold(own, held)
        else:
            _hold(value, held)
    return held


def put_back(held: Mapping[int, Held]) -> bool:
    """Give containers back what was in them; whether any had something else.

    >>> several = [1]
    >>> held = hold_containers([several])
    >>> several.append(2)
    >>> put_back(held), several, put_back(held)
    (True, [1], False)
    """
    changed = [_refill(container, contents) for container, contents in held.values()]
    return any(changed)


def _restore(now: dict[str, object], before: dict[str, object]) -> None:
    for name in [*now]:
        if name not in before:
            del now[name]
    now.update(before)


def _hold(value: Any, held: dict[int, Held]) -> None:
    """Note what is in a container or an object of the user's, and in those in it."""
    if _is_users(cast("Any", type(value))):
        value = vars(value)
    if isinstance(value, _CONTAINERS) and id(value) not in held:
        contents = _contents(value)
        held[id(value)] = value, contents
        for one in contents:
            _hold(one, held)


@cache
def _is_users(cls: Any) -> bool:
    """Whether objects of a class are the user's and have attributes; modules are looked at alone.

    Of libraries each object leads to many others, as a logger does.
    """
    if cls is SimpleNamespace:
        return True
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
    own = bool(file) and not package_of(file) and not is_library(file)
    other = issubclass(cls, (type, torch.nn.Module, torch.Tensor, *_CONTAINERS))
    return (own or cls.__module__ == "__main__") and not other and cls.__dictoffset__ != 0


def _contents(container: Any) -> list[Any]:
    """What is in a container; of a dictionary the keys, then the values."""
    values = [*container.values()] if isinstance(container, dict) else []
    return [*container, *values]


def _refill(container: Any, contents: list[Any]) -> bool:
    """Put back what was in a container, unless it is there; whether it was not."""
    now = _contents(container)
    if len(now) == len(contents) and all(a is b for a, b in zip(now, contents, strict=True)):
        return False
    container.clear()
    if isinstance(container, dict):
        half = len(contents) // 2
        container.update(zip(contents[:half], contents[half:], strict=True))
    elif isinstance(container, set):
        container.update(contents)
    else:
        container.extend(contents)
    return True
