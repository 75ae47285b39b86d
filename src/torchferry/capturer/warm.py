"""Attributes that are None until the first call of a model, and numbers from then on.

A detector measures once how much smaller its feature maps are than the images, and keeps that. In
a trace of the first call the numbers are symbols; a later call has them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchferry.capturer.places import Owner, find_places, owners_of, state_kept
from torchferry.capturer.reliance import run_model
from torchferry.observer import Observation
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt

__all__ = ["find_first_values", "set_values"]

_CALLS = 3  # recorded calls that have to agree


def find_first_values(model: torch.nn.Module, seen: Observation) -> dict[Owner, Any]:
    """Return what a first call sets of the attributes that are None, by module and name.

    Only numbers and texts, in containers and objects too, that are the same whichever recorded
    call is the first: they do not depend on the input.

    Args:
        model: any module; it is as before afterwards.
        seen: its calls.
    """
    empty = {owner for owner, value in owners_of(model).items() if value is None}
    known: dict[Owner, Any] = {}
    leaves: list[dict[Owner, Any]] = []
    for call in seen.calls[:_CALLS] if empty else ():
        with state_kept(model):
            _, error = attempt(run_model, model, clone(seen.normalized(call)))
            if error is not None:
                return {}
            known = {owner: value for owner, value in owners_of(model).items() if owner in empty}
            leaves.append(_leaves(model, empty))
    if not leaves or any(one != leaves[0] for one in leaves):
        return {}  # they belong together: none is set without the others
    return {owner: known[owner] for owner in leaves[0]}


def _leaves(model: torch.nn.Module, owners: set[Owner]) -> dict[Owner, dict[Any, Any]]:
    """The leaves of what some attributes hold now, if there are any, and none is a tensor."""
    found: dict[Owner, dict[Any, Any]] = {}
    for place, value in find_places(model).items():
        if (place.module, place.attribute) in owners:
            found.setdefault((place.module, place.attribute), {})[place.path] = value
    return {owner: leaves for owner, leaves in found.items() if _is_plain([*leaves.values()])}


def _is_plain(values: list[Any]) -> bool:
    return values != [None] and not any(isinstance(value, torch.Tensor) for value in values)


def set_values(model: torch.nn.Module, values: Mapping[Owner, Any]) -> Callable[[], None]:
    """Give attributes of a model values; returns what makes them None again."""
    for (path, name), value in values.items():
        setattr(model.get_submodule(path), name, value)

    def undo() -> None:
        for path, name in values:
            setattr(model.get_submodule(path), name, None)

    return undo
