"""The state of a model: what its calls change and may read in a later call."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from torchferry.capturer.state.begin import run_call
from torchferry.capturer.state.places import (
    ABSENT,
    Place,
    find_places,
    owners_of,
    read_place,
    state_kept,
)
from torchferry.capturer.state.state import SET, UNSEEN, watch_attributes
from torchferry.errors import CaptureError, UsageError
from torchferry.observer import Call, Observation
from torchferry.seams.pytorch import storage_number, version_of
from torchferry.values.difference import max_diff
from torchferry.values.kinds import attempt
from torchferry.values.step import state_text

__all__ = ["PASSES", "Variable", "find_variables"]

PASSES = 2
"""How often the recorded calls are run: state that grows has other sizes than the inputs then."""


@dataclass(frozen=True)
class Variable:
    """A tensor or an integer that a model carries from call to call.

    Attributes:
        name: path of the module, the attribute, and the place within: ``encoder.cache.0``.
        places: all places in the model that hold it.
        initial: the value before the first call.
    """

    name: str
    places: tuple[Place, ...]
    initial: torch.Tensor | int


def find_variables(model: torch.nn.Module, seen: Observation) -> tuple[Variable, ...]:
    """What ``forward`` changes of a model and may read in a later call.

    The model runs its recorded calls in a row, with copies of all that it keeps.

    Args:
        model: any module; it is as before afterwards.
        seen: its calls.

    Raises:
        CaptureError: a piece of the state cannot be lifted; the message names it.
        UsageError: the model cannot run its first recorded call.
    """
    original = find_places(model)
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    with state_kept(model):
        history = _History(model, buffers)
        for call in itertools.chain(*[seen.calls] * PASSES):
            error = history.run(call)
            if error is not None and not history.steps:
                raise UsageError(
                    f"{seen.title} cannot run its first recorded call again: {error}"
                ) from error
            if error is not None:
                break
        groups = history.groups(original)
    order = {str(place): number for number, place in enumerate(original)}
    found = [_variable(places, original, buffers) for places in groups]
    return tuple(sorted(found, key=lambda one: order[one.name]))


def _variable(
    places: Sequence[Place], original: Mapping[Place, Any], buffers: set[str]
) -> Variable:
    first, *others = sorted(places, key=lambda one: (str(one) not in buffers, len(one.path)))
    value = original[first]
    initial = value.detach().clone() if isinstance(value, torch.Tensor) else value
    return Variable(str(first), (first, *others), initial)


class _History:
    """What the places of a model hold before the first call and after each.

    Attributes:
        steps: one entry a snapshot after the first.
    """

    def __init__(self, model: torch.nn.Module, buffers: set[str]) -> None:
        self.model = model
        self.buffers = buffers  # a program may write into no buffer, so that all are carried
        self.last = find_places(model)
        self.values = {place: [value] for place, value in self.last.items()}
        self.carried: dict[Place, None] = {}
        self.written: dict[Place, None] = {}  # in place
        self.steps = 0

    def run(self, call: Call) -> Exception | None:
        """Run a call and compare; return what it raises."""
        tensors = {p: v for p, v in self.last.items() if isinstance(v, torch.Tensor)}
        versions = {place: version_of(value) for place, value in tensors.items()}
        # Batch norm counts no version when it writes its statistics.
        contents = {place: value.clone() for place, value in tensors.items()}
        before = owners_of(self.model)
        with watch_attributes(self.model) as watch:
            _, error = attempt(run_call, self.model, call)
        if error is not None:
            return error
        now, after = find_places(self.model), owners_of(self.model)
        for place in {**self.last, **now}:
            owner = (place.module, place.attribute)
            rebound = before.get(owner, ABSENT) is not after.get(owner, ABSENT)
            first = watch.first_use(*owner)
            unread = first is SET or (first is UNSEEN and owner not in before)
            old, new = self.last.get(place, ABSENT), now.get(place, ABSENT)
            if old is new and isinstance(new, torch.Tensor):
                if versions[place] != version_of(new) or not _equal(contents[place], new):
                    self.written.setdefault(place)
                    self.carried.setdefault(place)
            elif str(place) in self.buffers:
                if _kind(old) != _kind(new) or not (old is new or _equal(old, new)):
                    self.carried.setdefault(place)
            elif _differ(old, new) and not (rebound and unread):
                self.carried.setdefault(place)
        for place in {**self.values, **now}:
            self.values.setdefault(place, [ABSENT] * (self.steps + 1)).append(
                now.get(place, ABSENT)
            )
        self.last, self.steps = now, self.steps + 1
        return None

    def groups(self, original: Mapping[Place, Any]) -> list[list[Place]]:
        """The places of each variable.

        Args:
            original: the values of the model itself, of which copies were changed here.

        Raises:
            CaptureError: see `find_variables`.
        """
        for place in self.carried:
            self._check(place, self.values[place])
        together: dict[Any, list[Place]] = {}
        for place, values in self.values.items():
            tensors = all(isinstance(value, torch.Tensor) for value in values)
            key = tuple(map(id, values)) if tensors else self._origin(place)
            together.setdefault(key, []).append(place)
        for place in self.written:
            _check_memory(place, self.last[place], self.last)
            if place in original:
                _check_memory(place, original[place], dict(self.model.named_parameters()))
        return [places for places in together.values() if {*places} & {*self.carried}]

    def _origin(self, place: Place) -> Any:
        """The object that holds a number, and where: it may stand in several places."""
        if not place.path:
            return place
        *path, key = place.path
        return id(read_place(self.model, replace(place, path=tuple(path)))), key

    @staticmethod
    def _check(place: Place, values: Sequence[Any]) -> None:
        kinds = {_kind(value): value for value in values}
        if len(kinds) == 1 and (type(values[0]) is int or isinstance(values[0], torch.Tensor)):
            return
        *_, other = kinds.values()
        raise CaptureError(
            f"self.{place} is state that cannot be lifted: forward changes it from "
            f"{_described(values[0])} to {_described(other)}. Let it be a tensor of one dtype and "
            "number of dimensions, or an integer, from before the first call on: run the model "
            "once before the export, or set it in __init__"
        )


def _check_memory(place: Place, tensor: torch.Tensor, others: Mapping[Any, Any]) -> None:
    """Refuse a tensor that is written in place and that others are views of."""
    memory = storage_number(tensor.untyped_storage())
    for other, value in others.items():
        if not isinstance(value, torch.Tensor) or value is tensor or not value.numel():
            continue
        if storage_number(value.untyped_storage()) == memory:
            raise CaptureError(
                f"self.{place} is state that cannot be lifted: forward writes into it, and "
                f"self.{other} shares its memory. Keep one of them, and take the view in forward"
            )


def _kind(value: Any) -> tuple[Any, ...]:
    """What has to stay the same of a value from call to call."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.ndim)
    return (type(value), value is ABSENT)


def _equal(old: Any, new: Any) -> bool:
    found = max_diff(old, new)
    return found.reason is None and found.abs == 0 and not found.dnan


def _described(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    return f"a tensor ({state_text(value)})" if isinstance(value, torch.Tensor) else repr(value)


def _differ(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return old is not new
    return type(old) is not type(new) or bool(old != new)
