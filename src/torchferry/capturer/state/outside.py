"""State that a model's code keeps outside its modules: globals, attributes of classes, closures.

A counter in a global changes what later calls do as one in an attribute does, and Python's random
numbers are drawn once, while the model is traced.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from torchferry.capturer.trial.instructions import is_watched
from torchferry.values.attributes import attributes_kept, hold_containers, put_back

__all__ = ["DRAWN", "caches_of", "outside_state", "trace_kept"]

DRAWN = "Python's random numbers"
"""The name of the generators of ``random`` and NumPy among the state."""

_PLAIN = (bool, int, float, str)
_CACHED = type(functools.cache(len))
_ABSENT = object()
_MOST = 100  # entries of a dictionary that are looked at: what has more is no counter


def outside_state(model: torch.nn.Module) -> dict[str, Any]:
    """Numbers and texts that code of the model's classes may read and write, by their names.

    Args:
        model: whose own code counts, and that of packages that are not well known.

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


@contextmanager
def trace_kept(model: torch.nn.Module, inputs: Iterable[object] = ()) -> Iterator[None]:
    """Nothing of a trace in the block stays: what a model's code keeps there has no data.

    That goes for attributes and buffers of the modules, and for what is outside of them: globals,
    attributes of classes and objects, closures, defaults of arguments, and what is in their
    containers. Functions under ``functools.lru_cache`` forget all if the trace added something.

    Args:
        model: its code, and functions that it calls, counts as `outside_state` has it.
        inputs: whose tensors lose the marks that torch puts on them.
    """
    marked = [(one, dict(vars(one))) for one in inputs if isinstance(one, torch.Tensor)]
    try:
        with attributes_kept(model), _outside_kept(model):
            yield
    finally:
        for tensor, own in marked:
            vars(tensor).clear()
            vars(tensor).update(own)


@contextmanager
def _outside_kept(model: torch.nn.Module) -> Iterator[None]:
    functions = [*_functions(model)]
    values = [value for one in functions for _, value in _scope(one)]
    owners = {id(one): one for one in (*_classes(model), *values) if _is_own(one)}
    before = [(one, _attributes(one)) for one in owners.values()]
    named = [(one.__globals__, name, one.__globals__.get(name, _ABSENT))
             for one in functions for name in one.__code__.co_names]  # fmt: skip
    cells = [(cell, _content(cell, _ABSENT))
             for one in functions for cell in one.__closure__ or ()]  # fmt: skip
    defaults = [inner for one in functions for inner in (
        *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values())]  # fmt: skip
    inside = [inner for _, attributes in before for inner in attributes.values()]
    held = hold_containers([*values, *inside, *defaults])
    misses = [(cache, cache.cache_info().misses) for cache in caches_of(model)]
    try:
        yield
    finally:
        put_back(held)
        for owner, attributes in before:
            _restore(owner, attributes)
        for scope, name, value in named:
            if value is _ABSENT:
                scope.pop(name, None)
            else:
                scope[name] = value
        for cell, value in cells:
            if value is not _ABSENT:
                cell.cell_contents = value
            elif _content(cell, _ABSENT) is not _ABSENT:
                del cell.cell_contents
        for cache, count in misses:
            if cache.cache_info().misses != count:
                cache.cache_clear()


def _classes(model: torch.nn.Module) -> set[type]:
    return {cls for module in model.modules() for cls in type(module).__mro__}


def _is_own(value: Any) -> bool:
    """Whether it is a class, or an object of one, of the user's code, with attributes."""
    cls = value if isinstance(value, type) else type(value)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    own = cls.__module__ == "__main__" or (file is not None and is_watched(file))
    return own and isinstance(getattr(value, "__dict__", None), Mapping)


def _attributes(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if not name.startswith("__")}


def _restore(owner: Any, before: Mapping[str, Any]) -> None:
    now = _attributes(owner)
    for name in now.keys() | before.keys():
        if name not in before:
            delattr(owner, name)
        elif now.get(name, _ABSENT) is not before[name]:
            setattr(owner, name, before[name])


def _members(model: torch.nn.Module) -> Iterator[Any]:
    for cls in _classes(model):
        yield from vars(cls).values()


def _names(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Names that the code of a model's classes has from outside, and their values."""
    for function in _functions(model):
        yield from _scope(function)


def _functions(model: torch.nn.Module) -> Iterator[types.FunctionType]:
    """Methods of a model's classes, and functions that they call by name."""
    left = [*filter(None, map(_function, _members(model)))]
    seen = set(map(id, left))
    while left:
        function = left.pop()
        if not is_watched(function.__code__.co_filename):
            continue
        yield function
        for _, value in _scope(function):
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


def _content(cell: types.CellType, empty: Any = None) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return empty


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
