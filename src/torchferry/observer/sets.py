"""Sets of inputs that users give by hand, brought into one arrangement."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.values.describe import string_type

__all__ = [
    "Arguments",
    "Key",
    "arrange",
    "as_arguments",
    "as_sets",
    "fill_defaults",
    "given_values",
    "name_positional",
    "positional_keys",
    "refuse_mixed",
    "star_position",
]

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and named arguments of one call."""

_CONSTANTS = (bool, int, float, str)

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


def as_sets(inputs: Any, taker: str) -> list[Arguments]:
    """Each of several sets as `as_arguments` gives it.

    Args:
        inputs: a list of sets, or anything else that gives them one by one.
        taker: what takes them, for messages.

    Raises:
        UsageError: it is no such thing, or a set is none.

    >>> as_sets([(1,), {"x": 2}], "export")
    [((1,), {}), ((), {'x': 2})]
    """
    if not isinstance(inputs, Iterable) or isinstance(inputs, Mapping | torch.Tensor | str):
        raise UsageError(
            f"{taker} takes a list of input sets, not {string_type(inputs)}: give two or more, "
            "each a tuple of positional arguments, a dictionary of named ones, or both"
        )
    return [as_arguments(one) for one in inputs]


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
    given = given_values(bound)
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
        if name in given and isinstance(parameter.default, _CONSTANTS):
            bound.arguments.setdefault(name, parameter.default)


def given_values(calls: Sequence[inspect.BoundArguments]) -> dict[str, list[Any]]:
    """What every call gives for each parameter that some call gives; the default when it does not.

    None where there is no default.
    """
    found: dict[str, list[Any]] = {}
    for name in dict.fromkeys(name for call in calls for name in call.arguments):
        default = calls[0].signature.parameters[name].default
        absent = None if default is inspect.Parameter.empty else default
        found[name] = [call.arguments.get(name, absent) for call in calls]
    return found


def refuse_mixed(values: Mapping[str, Sequence[Any]], title: str) -> None:
    """Refuse a constant that other calls leave at None: the graph would have it for all.

    A tensor that is absent from a call has an empty one to stand for it; a flag has none.

    Args:
        values: what every call gives, by parameter, as `given_values` has it.
        title: the model, for messages.

    Raises:
        UsageError: there is one.
    """
    for name, column in values.items():
        constant = next((one for one in column if isinstance(one, _CONSTANTS)), None)
        if constant is not None and any(one is None for one in column):
            raise UsageError(
                f"argument {name} of {title} is {constant!r:.60} in one call and None in another: "
                "a value that is no tensor becomes part of the graph, which is then that of one "
                "call. Give the same value in every call"
            )


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
