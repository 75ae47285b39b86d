"""State that no later call can see: tables built on demand, what hooks collect in every call."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from torchferry.capturer.state.places import find_places, state_kept
from torchferry.capturer.trial.reliance import are_same, run_model
from torchferry.observer import Observation
from torchferry.observer.tree import leaves_of
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt

__all__ = ["carries_nothing"]

_CALLS = 3  # recorded calls that are tried in pairs


def carries_nothing(model: torch.nn.Module, seen: Observation) -> bool:
    """Whether no recorded call changes what another one returns, in any order.

    Nor may the same call once more change any number or tensor that the model keeps, as a counter
    would. Two recorded calls that differ are needed.

    Args:
        model: any module; it is as before afterwards.
        seen: its calls.
    """
    calls = [seen.normalized(call) for call in seen.calls[:_CALLS]]
    if len(calls) < 2:
        return False

    def after(*order: Any) -> tuple[dict[Any, Any], dict[Any, Any]]:
        with state_kept(model):
            for inputs in order:
                result = run_model(model, clone(inputs))
            kept = {place: value for place, value in find_places(model).items()
                    if not isinstance(value, torch.nn.Module)}  # fmt: skip
            found: tuple[dict[Any, Any], dict[Any, Any]]
            found = clone((dict(leaves_of((result,), {})), kept))
            return found

    def answer() -> bool:
        alone = [after(one) for one in calls]
        for first, second in itertools.product(range(len(calls)), repeat=2):
            outputs, kept = after(calls[first], calls[second])
            if not are_same(outputs, alone[second][0]):
                return False
            if first == second and not are_same(kept, alone[second][1]):
                return False
        return True

    found, error = attempt(answer)
    return error is None and bool(found)
