"""State that a model's code keeps outside its modules: globals, attributes of classes, closures.

A counter in a global changes what later calls do as one in an attribute does, and Python's random
numbers are drawn once, while the model is traced.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from torchferry.capturer.trial.instructions import is_watched, packages_of

__all__ = ["DRAWN", "caches_of", "outside_state"]

DRAWN = "Python's random numbers"
"""The name of the generators of ``random`` and NumPy among the state."""

_PLAIN = (bool, int, float, str)
_CACHED = type(functools.cache(len))
_MOST = 100  # entries of a dictionary that are looked at: what has more is no counter


def outside_state(model: torch.nn.Module) -> dict[str, Any]:
    """Numbers and texts that code of the model's classes may read and write, by their names.

    Args:
        model: whose own code counts, and that of packages nobody tried; see `packages_of`.

    Returns:
        values by ``CALLS['n']``, ``Schedule.step`` and the like, and by `DRAWN`.
    """
    found: dict[str, Any] = {}
    for name, value in _names(model):
        found.update(_plain(name, value))
    numpy = sys.modules.get("numpy.random")
    drawn = numpy.get_state()[1:] if numpy is not None else (b"",)
    words, *place = drawn  # the words change when all of them are used
    return {**found, DRAWN: (random.getstate(), bytes(words), *place)}


def caches_of(model: torch.nn.Module) -> list[Any]:
    """Functions of a model's code under ``functools.lru_cache``, which run once for a size."""
    methods = {id(value): value for value in _members(model) if isinstance(value, _CACHED)}
    named = {id(value): value for _, value in _names(model) if isinstance(value, _CACHED)}
    return [*{**methods, **named}.values()]


def _members(model: torch.nn.Module) -> Iterator[Any]:
    for cls in {cls for module in model.modules() for cls in type(module).__mro__}:
        yield from vars(cls).values()


def _names(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Names that the code of a model's classes has from outside, and their values.

    Functions among them are followed.
    """
    packages = packages_of(model)
    left = [*filter(None, map(_function, _members(model)))]
    seen = set(map(id, left))
    while left:
        function = left.pop()
        if not is_watched(function.__code__.co_filename, packages):
            continue
        for name, value in _scope(function):
            yield name, value
            called = _function(value)
            if called is not None and id(called) not in seen:
                seen.add(id(called))
                left.append(called)


def _function(value: Any) -> types.FunctionType | None:
    inner = getattr(value, "__wrapped__", value) if isinstance(value, _CACHED) else value
    return inner if isinstance(inner, types.FunctionType) else None


def _scope(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Names that are not a function's own, and their values."""
    code = function.__code__
    yield from ((name, function.__globals__.get(name)) for name in code.co_names)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    yield from ((name, _content(cell)) for name, cell in cells)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None


def _plain(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _PLAIN):
        yield name, value
    elif isinstance(value, dict) and len(value) <= _MOST:
        yield from (
            (f"{name}[{key!r}]", one) for key, one in value.items() if isinstance(one, _PLAIN)
        )
    elif isinstance(value, type) and not issubclass(value, torch.nn.Module):
        inside: Mapping[str, Any] = vars(value)
        yield from ((f"{name}.{key}", one) for key, one in inside.items()
                    if isinstance(one, _PLAIN) and not key.startswith("__"))  # fmt: skip
