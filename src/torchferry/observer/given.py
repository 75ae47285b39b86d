"""What users give of a model's inputs: what was observed, sets, or a function of sizes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from torchferry.dims import Legal
from torchferry.errors import UsageError
from torchferry.observer.keep import keep_set
from torchferry.observer.maker import Maker, Sizes, choose_sizes, other_values, size_parameters
from torchferry.observer.naming import input_name
from torchferry.observer.observation import Call, Observation
from torchferry.observer.sets import Arguments
from torchferry.observer.tree import leaves_of
from torchferry.observer.vary import infer_axes
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["Stated", "ask_maker", "sets_of", "state_legal", "to_observation"]

Stated = str | Mapping[str, int | str | Iterable[int]] | Legal | None
"""The forms of legal sizes: see `Legal.of`."""


def to_observation(
    model: torch.nn.Module, given: Any, sizes: Stated = None, *, run: bool = True
) -> Observation:
    """What is known of the inputs of a model.

    Args:
        model: any module.
        given: an `Observation`, sets of inputs as `Observation.from_inputs` takes them, or a
            function: of named sizes, which returns one set, or without parameters, which returns
            several.
        sizes: the legal sizes, as `Legal.of` takes them.
        run: whether the model may be run to see which sizes it takes.

    Raises:
        UsageError: it is something else, or a set or a stated size does not fit the others.
    """
    if callable(given) and not isinstance(given, Observation):
        title = getattr(given, "__name__", "the function of inputs")
        parameters = size_parameters(given)
        if parameters:
            return ask_maker(model, Maker(given, title, parameters, Legal.of(sizes)), run=run)
        given = given()
    seen = given if isinstance(given, Observation) else Observation.from_inputs(model, given)
    return state_legal(seen, Legal.of(sizes)) if sizes else seen


def sets_of(model: torch.nn.Module, given: Any) -> Any:
    """Sets of inputs: those given, or those of a function as `to_observation` takes it."""
    if not callable(given) or isinstance(given, Observation):
        return given
    return [(call.args, call.kwargs) for call in to_observation(model, given).calls]


def state_legal(seen: Observation, legal: Legal) -> Observation:
    """The observation with the sizes that may be tried.

    Raises:
        UsageError: a name is unknown, or a recorded call has an illegal size.
    """
    legal.check_names(seen.dynamic_names)
    for call in seen.calls:
        sizes = seen.sizes_of(call)
        if not legal.allows(sizes):
            name = next(n for n, size in sizes.items() if not legal.allows({n: size}))
            raise UsageError(
                f"sizes: {name} is {sizes[name]} in an input set, and {name}={legal.text(name)} "
                "is stated as legal. State it too, or give other inputs"
            )
    return replace(seen, legal=legal)


def ask_maker(model: torch.nn.Module, maker: Maker, *, run: bool = True) -> Observation:
    """Sets of inputs from a function of sizes, not run, and how their sizes depend on it.

    Args:
        model: that takes the inputs.
        maker: the function.
        run: whether the model may be run, to see which sizes it takes.

    Raises:
        UsageError: there are no inputs that suit the model, a parameter changes nothing, or the
            structure of the inputs depends on the sizes.
    """
    maker.legal.check_names([*maker.parameters])
    with random_kept():
        sets = choose_sizes(maker, partial(_refusal, model) if run else _nothing)
        first, _ = sets[0]
        bound = Observation(inspect.signature(model.forward), type(model).__name__)
        found = infer_axes(
            first,
            {name: _values(maker, sets, name) for name in maker.names},
            partial(_leaves, bound, maker),
            maker.title,
        )
    axes = {(input_name(path), axis): size for (path, axis), size in found.items()}
    calls = []
    for sizes, one in sets:
        args, kwargs = keep_set(one)
        calls.append(Call(args, kwargs, sizes={name: sizes[name] for name in maker.names}))
    return Observation(
        bound.signature, bound.title, calls, legal=maker.legal, maker=replace(maker, axes=axes)
    )


def _values(maker: Maker, sets: list[tuple[Sizes, Arguments]], name: str) -> list[int]:
    """Other sizes of a parameter, those that suit the model first."""
    first = sets[0][0][name]
    used = [sizes[name] for sizes, _ in sets if sizes[name] != first]
    return list(dict.fromkeys([*used, *other_values(maker, name, first)]))


def _leaves(bound: Observation, maker: Maker, sizes: Sizes) -> Mapping[Any, Any] | None:
    try:
        return leaves_of(*bound.normalized(Call(*maker(sizes))))
    except UsageError:
        return None


def _refusal(model: torch.nn.Module, arguments: Arguments) -> str | None:
    """What the model says of inputs that it does not take."""
    args, kwargs = clone(arguments)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, error = attempt(partial(model, *args, **kwargs))
    if error is None:
        return None
    given = string_type(arguments, with_shape=True)[:200]
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]} (on {given})"


def _nothing(_: Arguments) -> None:
    """A model that may not be run refuses nothing."""
