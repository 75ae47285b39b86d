"""Arguments of ``forward``: in the forms users give them, checked before the model runs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import GeneratorType
from typing import Any

from torch import nn

from torchferry.errors import UsageError
from torchferry.values.describe import string_type

__all__ = ["AS_GIVEN", "Arguments", "as_input_sets", "check_inputs"]

AS_GIVEN = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)
"""Of a program, which takes its arguments as they were exported, by position or by name."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of one call."""


def as_input_sets(value: Any, origin: str) -> list[Arguments]:
    """Bring input sets into one form.

    Args:
        value: a list, or what a generator yields, of sets: a tuple of positional arguments, a
            dictionary of keyword arguments, or ``(tuple, dictionary)``.
        origin: where they come from, for the message.

    Raises:
        UsageError: it is something else; says what.

    >>> as_input_sets([(1, 2), {"x": 1}, ((1,), {"y": 2})], "inputs.py:make")
    [((1, 2), {}), ((), {'x': 1}), ((1,), {'y': 2})]
    """
    sets = list(value) if isinstance(value, GeneratorType) else value
    if not isinstance(sets, list):
        raise _not_input_sets(value, origin)
    return [_as_arguments(one, origin) for one in sets]


def check_inputs(model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Check that arguments fit the signature of ``forward``, without running it.

    Raises:
        UsageError: they do not; shows the signature and what was given.
    """
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        given = string_type((args, dict(kwargs)), with_shape=True)
        raise UsageError(
            f"the inputs do not fit {type(model).__name__}.forward: {error}\n"
            f"  forward{inspect.Signature(plain)}\n"
            f"  given {given}"
        ) from error


def _as_arguments(value: Any, origin: str) -> Arguments:
    if isinstance(value, dict) and all(isinstance(name, str) for name in value):
        return (), dict(value)
    if isinstance(value, tuple):
        if len(value) == 2 and isinstance(value[0], tuple) and isinstance(value[1], dict):
            return value[0], dict(value[1])
        return value, {}
    raise _not_input_sets(value, origin)


def _not_input_sets(value: Any, origin: str) -> UsageError:
    return UsageError(
        f"{origin} gave {string_type(value, with_shape=True)}; expected a list of input sets, "
        "each a tuple of positional arguments, a dictionary of keyword arguments, or "
        "(tuple, dictionary)"
    )
