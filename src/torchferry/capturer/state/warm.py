"""Attributes that are None or empty until the first call of a model, and the same from then on.

A detector measures once how much smaller its feature maps are than the images, and keeps that; a
codec divides its code book once by what was used of it; attention keeps its bias in a dictionary,
by device. In a trace of the first call the numbers
are symbols, and the tensors values of the trace; a later call has them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchferry.capturer.state.places import Owner, find_places, is_empty, owners_of, state_kept
from torchferry.capturer.trial.reliance import run_model
from torchferry.observer import Observation
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt

__all__ = ["find_first_values", "set_values"]

_CALLS = 3  # recorded calls that have to agree


def find_first_values(model: torch.nn.Module, seen: Observation) -> dict[Owner, Any]:
    """Return what a first call sets of the attributes that are None or empty, by module and name.

    Only what is the same whichever recorded call is the first: it does not depend on the input.
    Numbers and texts, in containers and objects too, belong together: if one of them differs,
    nothing is returned. A tensor that differs is left out.

    Args:
        model: any module; it is as before afterwards.
        seen: its calls.
    """
    empty = {owner for owner, value in owners_of(model).items() if is_empty(value)}
    known: dict[Owner, Any] = {}
    leaves: list[dict[Owner, dict[Any, Any]]] = []
    for call in seen.calls[:_CALLS] if empty else ():
        with state_kept(model):
            _, error = attempt(run_model, model, clone(seen.normalized(call)))
            if error is not None:
                return {}
            known = {owner: value for owner, value in owners_of(model).items() if owner in empty}
            leaves.append(_leaves(model, empty))
    common = set[Owner]().union(*leaves)
    alike = {owner for owner in common if _are_alike([one.get(owner) for one in leaves])}
    apart = [one for one in leaves for owner in common - alike if not _holds_tensor(one, owner)]
    return {} if apart else {owner: value for owner, value in known.items() if owner in alike}


def _leaves(model: torch.nn.Module, owners: set[Owner]) -> dict[Owner, dict[Any, Any]]:
    """The leaves of what some attributes hold now, if that is not None."""
    found: dict[Owner, dict[Any, Any]] = {}
    for place, value in find_places(model).items():
        owner = (place.module, place.attribute)
        if owner in owners and not (value is None and not place.path):
            found.setdefault(owner, {})[place.path] = value
    return found


def _holds_tensor(leaves: dict[Owner, dict[Any, Any]], owner: Owner) -> bool:
    return any(isinstance(value, torch.Tensor) for value in leaves.get(owner, {}).values())


def _are_alike(calls: list[dict[Any, Any] | None]) -> bool:
    """Whether an attribute holds the same after each of several calls; of a tensor, of two."""
    first, *others = calls
    if first is None or (not others and any(isinstance(v, torch.Tensor) for v in first.values())):
        return False
    return all(
        one is not None
        and one.keys() == first.keys()
        and all(map(_equal, one.values(), first.values()))
        for one in others
    )


def _equal(value: Any, other: Any) -> bool:
    if isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(value, other)
    return type(value) is type(other) and bool(value == other)


def set_values(model: torch.nn.Module, values: Mapping[Owner, Any]) -> Callable[[], None]:
    """Give attributes of a model values; returns what gives them their own again."""
    modules = {owner: model.get_submodule(owner[0]) for owner in values}
    before = {owner: getattr(module, owner[1]) for owner, module in modules.items()}

    def give(chosen: Mapping[Owner, Any]) -> None:
        for owner, value in chosen.items():
            setattr(modules[owner], owner[1], value)

    def undo() -> None:
        give(before)

    give(values)

    return undo
