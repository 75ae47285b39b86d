"""Sets of inputs that users give by hand, brought into one arrangement."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from torchferry.errors import UsageError
from torchferry.values.describe import string_type

__all__ = [
    "Arguments",
    "Key",
    "arrange",
    "as_arguments",
    "fill_defaults",
    "name_positional",
    "positional_keys",
    "star_position",
]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of one call."""

Key = str | int
"""An argument's name or, when it can have none, its position."""


def as_arguments(one: Any) -> Arguments:
    """A set as ``(args, kwargs)``.

    Args:
        one: ``(args tuple)``, ``(kwargs dict)`` or ``(args, kwargs)``, where ``args`` is a tuple.

    Raises:
        UsageError: it is something else.

    >>> as_arguments((1, 2)), as_arguments({"x": 1}), as_arguments(((1,), {"y": 2}))
    (((1, 2), {}), ((), {'x': 1}), ((1,), {'y': 2}))
    """
    if isinstance(one, Mapping) and all(isinstance(name, str) for name in one):
        return (), dict(one)
    if isinstance(one, tuple):
        if len(one) == 2 and isinstance(one[0], tuple) and isinstance(one[1], dict):
            return one[0], dict(one[1])
        return one, {}
    raise UsageError(
        f"an input set is {string_type(one, with_shape=True)}; give a tuple of positional "
        "arguments, a dictionary of named ones, or (tuple, dictionary)"
    )


def arrange(
    signature: inspect.Signature, sets: Sequence[Arguments], place: str
) -> list[Arguments]:
    """The sets with each argument given in the same way in all.

    An argument stays positional when every set that has it, and all that stand before it, gives
    it so; what stands before ``*args`` always does, for it cannot be named. A constant that some
    set gives and others leave to the default is given in all.

    Args:
        signature: of the method that takes them.
        sets: one or more.
        place: the method, for messages: ``Net.forward``.

    Raises:
        UsageError: there is no set, or one does not fit the signature.
    """
    if not sets:
        raise UsageError(f"no input set of {place} was given: give two or more")
    bound = [_bind(signature, one, place) for one in sets]
    given = {name for one in bound for name in one.arguments}
    for one in bound:
        fill_defaults(one, given)
    if star_position(signature) is not None:
        return [(one.args, one.kwargs) for one in bound]
    kept: list[str] = []
    for position, name in enumerate(signature.parameters):
        counts = [len(a) for (a, _), b in zip(sets, bound, strict=True) if name in b.arguments]
        if not counts or min(counts) <= position:
            break
        kept.append(name)
    return [_split(one, kept) for one in bound]


def fill_defaults(bound: inspect.BoundArguments, given: Collection[str]) -> None:
    """Give forward's default for a constant that other calls give, in place.

    It is what a call without it means, and the graph must not have the constant of the others.

    Args:
        bound: of one call.
        given: the arguments that some call gives.
    """
    for name, parameter in bound.signature.parameters.items():
        if name in given and isinstance(parameter.default, bool | int | float | str):
            bound.arguments.setdefault(name, parameter.default)


def _bind(signature: inspect.Signature, one: Arguments, place: str) -> inspect.BoundArguments:
    args, kwargs = one
    try:
        return signature.bind(*args, **kwargs)
    except TypeError as error:
        given = string_type(one, with_shape=True)
        raise UsageError(
            f"an input set does not fit {place}{_plain(signature)}: {error}\n  given {given}"
        ) from error


def _plain(signature: inspect.Signature) -> inspect.Signature:
    """Without annotations, which fill the line."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return inspect.Signature(plain)


def _split(bound: inspect.BoundArguments, positional: Sequence[str]) -> Arguments:
    args = tuple(bound.arguments[name] for name in positional if name in bound.arguments)
    kwargs: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            kwargs |= value
        elif name not in positional:
            kwargs[name] = value
    return args, kwargs


def star_position(signature: inspect.Signature) -> int | None:
    """The position of ``*args``, when the signature has it."""
    for position, parameter in enumerate(signature.parameters.values()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return position
    return None


def positional_keys(signature: inspect.Signature, count: int) -> list[Key]:
    """What an observation calls the first ``count`` positional arguments."""
    if star_position(signature) is not None:
        return list(range(count))
    return [
        position if parameter.kind is parameter.POSITIONAL_ONLY else parameter.name
        for position, parameter in enumerate(list(signature.parameters.values())[:count])
    ]


def name_positional(
    signature: inspect.Signature, args: Sequence[Any], place: str
) -> dict[str, Any]:
    """Positional arguments by the names of their parameters.

    Args:
        signature: of the method that takes them.
        args: positional arguments.
        place: the method, for messages.

    Raises:
        UsageError: there is a parameter that has no name to be given by, or there are too many.
    """
    parameters = list(signature.parameters.values())[: len(args)]
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
            raise UsageError(
                f"{place}: {star}{parameter.name} can be given by position only, so it cannot "
                "move to kwargs. Export with positional arguments and their shapes"
            )
    takes = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    if len(takes) < len(args):
        raise UsageError(
            f"{place}{_plain(signature)} takes {len(takes)} positional arguments, and "
            f"{len(args)} were given"
        )
    return dict(zip(takes, args, strict=True))
