"""What a dump would lose without a word: attributes beside items, and shared containers.

A dump holds the items of containers, the fields of dataclasses and what a cache knows. It does
not hold other attributes: a value that has some is refused.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch

from torchferry.values import Path
from torchferry.values.kinds import attempt, attributes_of, find_kind

__all__ = ["lost_of_container", "lost_of_tensor", "shared_containers"]

_MISSING = object()


def lost_of_container(value: Any) -> list[str]:
    """Names of attributes that a container would not have after it was put together again.

    >>> class Named(dict):
    ...     def __init__(self, items, name):
    ...         super().__init__(items)
    ...         self.name = name
    >>> lost_of_container(Named({}, "a")), lost_of_container({})
    (['name'], [])
    """
    kind = find_kind(type(value))
    if kind is None or not kind.attributes:
        return []
    (children, context), error = attempt(kind.flatten, value)
    found = {} if error else attributes_of(value, kind, children)
    if not found:
        return []
    again, _ = attempt(kind.unflatten, type(value), children, context)
    return [name for name, item in found.items() if not _same(_get(again, name), item)]


def lost_of_tensor(value: torch.Tensor) -> list[str]:
    """Names of what a tensor has beside its elements; PyTorch's own begin with a line.

    >>> lost_of_tensor(torch.zeros(2))
    []
    """
    names = [name for name in vars(value) if not name.startswith("_")]
    return [*names, "names"] if any(getattr(value, "names", ())) else names


def shared_containers(containers: Iterable[tuple[Path, Any]]) -> list[tuple[int, int]]:
    """Which containers are one object with an earlier one, by their numbers.

    Tuples do not count: two that are equal cannot be told apart but by ``is``.

    >>> one = [1]
    >>> shared_containers([((), (one, one)), ((0,), one), ((1,), one)])
    [(2, 1)]
    """
    first: dict[int, int] = {}
    found = []
    for number, (_, value) in enumerate(containers):
        if not isinstance(value, tuple):
            earlier = first.setdefault(id(value), number)
            if earlier != number:
                found.append((number, earlier))
    return found


def _get(value: Any, name: str) -> Any:
    found, error = attempt(getattr, value, name)
    return _MISSING if error else found


def _same(one: Any, other: Any) -> bool:
    return one is other or attempt(operator.eq, one, other)[0] is True
