"""State that is None until a first call: zeros in its place, if they are the same to the model."""

from __future__ import annotations

from typing import Any

import torch

from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.state.places import Place, exchanged, find_places, read_place, state_kept
from torchferry.observer import Call, Observation
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.flatten import flatten, unflatten
from torchferry.values.kinds import attempt

__all__ = ["find_beginnings", "run_call"]

_EXACT = 1e-6


def run_call(model: torch.nn.Module, call: Call) -> Any:
    """Run a model on a copy of the arguments of a call."""
    args, kwargs = clone((call.args, call.kwargs))
    return model(*args, **accept_aliases(model, kwargs))


def find_beginnings(model: torch.nn.Module, seen: Observation) -> dict[Place, Any]:
    """Zeros with which a model may begin in the place of None.

    Each recorded call is run as a first one, from None and from zeros; the two return the same and
    leave the same. Sizes that differ between the calls, as that of the batch, are 1: the model
    has to broadcast them.

    Args:
        model: any module; it is as before afterwards.
        seen: its calls.

    Returns:
        tensors, or containers of them, by place; empty if nothing begins so.
    """
    empty = [place for place, value in find_places(model).items() if value is None]
    runs = [attempt(_run, model, call, {}, empty) for call in seen.calls] if empty else []
    if not runs or any(error is not None for _, error in runs):
        return {}
    lefts = [left for (_, left), _ in runs]
    zeros = {place: _zeros([left[place] for left in lefts]) for place in empty}
    begun = {place: value for place, value in zeros.items() if value is not None}
    for call, (expected, _) in zip(seen.calls, runs, strict=True):
        found, error = attempt(_run, model, call, begun, empty)
        if error is not None or not _agree(found, expected):
            return {}
    return begun


def _run(
    model: torch.nn.Module, call: Call, begun: dict[Place, Any], places: list[Place]
) -> tuple[Any, dict[Place, Any]]:
    with state_kept(model), exchanged(model, clone(begun)):
        outputs = run_call(model, call)
        left = {place: read_place(model, place) for place in places}
        return clone(outputs), clone(left)


def _zeros(values: list[Any]) -> Any:
    """Zeros like what the calls left at a place; ``None`` if that is not tensors throughout."""
    flat = [flatten(value) for value in values]
    rows = [[leaf for _, leaf in leaves] for leaves, _ in flat]
    ranks = [[leaf.ndim for leaf in row if isinstance(leaf, torch.Tensor)] for row in rows]
    if not rows[0] or any(one != ranks[0] or len(one) != len(rows[0]) for one in ranks):
        return None
    zeros = []
    for tensors in zip(*rows, strict=True):
        sizes = [{*each} for each in zip(*(one.shape for one in tensors), strict=True)]
        zeros.append(tensors[0].new_zeros([min(s) if len(s) == 1 else 1 for s in sizes]))
    return unflatten(zeros, flat[0][1])


def _agree(found: Any, expected: Any) -> bool:
    apart = max_diff(found, expected)
    return apart.reason is None and apart.abs <= _EXACT and not apart.dnan
