"""The state of a model as an argument and a result of its calls.

The model runs on its recorded calls, with copies of everything it keeps. What a call changes there
and may read in a later one is its state. The lifted model is the same object under another class:
its ``forward`` takes the state by name, lets the model run with it, and returns the new one.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch

from torchferry.capturer.huggingface import accept_aliases
from torchferry.capturer.places import (
    ABSENT,
    Place,
    exchanged,
    find_places,
    owners_of,
    read_place,
    state_kept,
)
from torchferry.capturer.result import Captured
from torchferry.capturer.state import SET, UNSEEN, watch_attributes
from torchferry.errors import CaptureError, UsageError
from torchferry.observer import Call, Observation
from torchferry.observer.sets import Arguments
from torchferry.seams.pytorch import storage_number
from torchferry.values.clone import Again, clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept
from torchferry.values.step import LIFTED, Step, state_text

__all__ = ["Lifted", "State", "Variable", "check_state", "lift_state"]

State = Literal["refuse", "lift"]
"""What is done with state that ``forward`` keeps for later calls."""

_PASSES = 2  # over the recorded calls: sizes that grow differ from those of the inputs then


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


@dataclass(frozen=True)
class Lifted:
    """A model whose state is lifted.

    Attributes:
        model: the lifted model; ``forward`` has one more argument and returns a `Step`.
        original: the model itself.
        seen: the calls of the lifted model.
        variables: the state.
    """

    model: torch.nn.Module
    original: torch.nn.Module
    seen: Observation
    variables: tuple[Variable, ...]

    @property
    def initial(self) -> dict[str, Any]:
        """The value of each variable before the first call."""
        return {one.name: one.initial for one in self.variables}

    def complete(self, captured: Captured) -> Captured:
        """What was captured of the lifted model, with the initial state.

        Raises:
            CaptureError: an integer of the state is a constant in the program.
        """
        integers = {f"state.{one.name}" for one in self.variables if isinstance(one.initial, int)}
        for fixed in captured.fixed:
            if fixed.argument in integers:
                raise CaptureError(
                    f"self.{fixed.argument.removeprefix('state.')} is state that cannot be "
                    f"lifted: {fixed}. Keep it in a tensor (register_buffer), or do not let it "
                    "decide what the code does",
                    [(a.strategy, a.error or "") for a in captured.attempts],
                )
        return replace(captured, state=self.initial)

    def run_in_a_row(self, model: torch.nn.Module, calls: Any, state: Mapping[str, Any]) -> Step:
        """Call the original model several times; the model itself keeps its state.

        Args:
            model: the original, or a copy of it.
            calls: arguments of each call.
            state: before the first call.

        Returns:
            the outputs of all calls, in a list, and the state afterwards.
        """
        with exchanged(model, _placed(self.variables, state)):
            outputs = [model(*args, **accept_aliases(model, kwargs)) for args, kwargs in calls]
            return Step(outputs, _read(model, self.variables))


def check_state(state: State) -> State:
    """The argument, if it is one of `State`.

    Raises:
        UsageError: it is another word.
    """
    if state not in get_args(State):
        raise UsageError(f"unknown state {state!r}: choose one of {', '.join(get_args(State))}")
    return state


def lift_state(model: torch.nn.Module, seen: Observation) -> Lifted | None:
    """Lift what ``forward`` changes of a model and may read in a later call.

    Buffers, tensors and integers in attributes, and tensors and integers within lists, tuples,
    dictionaries and other objects there. The model is as before afterwards.

    Args:
        model: any module.
        seen: calls of it, which are run again, in a row, from the state that the model has.

    Returns:
        ``None`` if the model has no state.

    Raises:
        CaptureError: a piece of the state cannot be lifted; the message names it.
        UsageError: the model cannot run its recorded calls.
    """
    with torch.no_grad(), random_kept(), disable_fast_paths(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        variables = _find_variables(model, seen)
        if not variables:
            return None
        if "forward" in vars(model):
            raise UsageError(
                f"forward of {type(model).__name__} was replaced on the object itself (by hooks "
                "of accelerate, or by hand), so its state cannot be lifted: undo that first"
            )
        lifted = _as_function(model, variables)
        calls = list(_calls_with_state(lifted, seen, {v.name: v.initial for v in variables}))
    maker = seen.maker and replace(
        seen.maker, finish=functools.partial(_with_state, calls[0], seen.maker.finish)
    )
    changed = replace(seen, signature=inspect.signature(lifted.forward), calls=calls, maker=maker)
    return Lifted(lifted, model, changed, variables)


def _run(model: torch.nn.Module, call: Call) -> Any:
    args, kwargs = clone((call.args, call.kwargs))
    return model(*args, **accept_aliases(model, kwargs))


# What the state is ------------------------------------------------------------------------------


def _find_variables(model: torch.nn.Module, seen: Observation) -> tuple[Variable, ...]:
    original = find_places(model)
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    with state_kept(model):
        history = _History(model, buffers)
        for call in itertools.chain(*[seen.calls] * _PASSES):
            error = history.run(call)
            if error is not None and not history.steps:
                raise UsageError(
                    f"{seen.title} cannot run its first recorded call again: {error}"
                ) from error
            if error is not None:
                break
        groups = history.groups()
    return tuple(_variable(places, original, buffers) for places in groups)


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
        versions = {place: value._version for place, value in tensors.items()}
        again = Again()  # batch norm counts no version when it writes its statistics
        clone([*tensors.values()], again)
        before = owners_of(self.model)
        with watch_attributes(self.model) as watch:
            _, error = attempt(_run, self.model, call)
        if error is not None:
            return error
        now, after = find_places(self.model), owners_of(self.model)
        for place in {**self.last, **now}:
            owner = (place.module, place.attribute)
            rebound = before.get(owner, ABSENT) is not after.get(owner, ABSENT)
            first = watch.first_use(self.model, *owner)
            unread = first is SET or (first is UNSEEN and owner not in before)
            old, new = self.last.get(place, ABSENT), now.get(place, ABSENT)
            if old is new and isinstance(new, torch.Tensor):
                if versions[place] != new._version or again.find(new) is None:
                    self.written.setdefault(place)
                    self.carried.setdefault(place)
            elif _differ(old, new) and (str(place) in self.buffers or not (rebound and unread)):
                self.carried.setdefault(place)
        for place in {**self.values, **now}:
            self.values.setdefault(place, [ABSENT] * (self.steps + 1)).append(
                now.get(place, ABSENT)
            )
        self.last, self.steps = now, self.steps + 1
        return None

    def groups(self) -> list[list[Place]]:
        """The places of each variable.

        Raises:
            CaptureError: see `lift_state`.
        """
        for place in self.carried:
            self._check(place, self.values[place])
        together: dict[Any, list[Place]] = {}
        for place, values in self.values.items():
            tensors = all(isinstance(value, torch.Tensor) for value in values)
            together.setdefault(tuple(map(id, values)) if tensors else place, []).append(place)
        found = [places for places in together.values() if {*places} & {*self.carried}]
        for places in found:
            self._check_memory(places)
        return found

    @staticmethod
    def _check(place: Place, values: Sequence[Any]) -> None:
        kinds = {_kind(value): value for value in values}
        if len(kinds) == 1 and not isinstance([*kinds][0][0], str):
            return
        other = [*kinds.values()][-1]
        raise CaptureError(
            f"self.{place} is state that cannot be lifted: forward changes it from "
            f"{_described(values[0])} to {_described(other)}. Let it be a tensor of the same dtype "
            "and number of dimensions, or an integer, from before the first call on: run the model "
            "once before the export, or set it in __init__"
        )

    def _check_memory(self, places: Sequence[Place]) -> None:
        """Refuse a tensor that is written in place and that others are views of."""
        for place in places:
            if place not in self.written:
                continue
            tensor = self.last[place]
            memory = storage_number(tensor.untyped_storage())
            for other, value in self.last.items():
                if isinstance(value, torch.Tensor) and value is not tensor and value.numel():
                    if storage_number(value.untyped_storage()) == memory:
                        raise CaptureError(
                            f"self.{place} is state that cannot be lifted: forward writes into it, "
                            f"and self.{other} shares its memory. Keep one of them, and take the "
                            "view in forward"
                        )


def _kind(value: Any) -> tuple[Any, ...]:
    """What has to stay the same of a value from call to call."""
    if isinstance(value, torch.Tensor):
        return (value.dtype, value.ndim)
    return (int,) if type(value) is int else ("no state", type(value), value is ABSENT)


def _described(value: Any) -> str:
    if value is ABSENT:
        return "nothing"
    return f"a tensor ({state_text(value)})" if isinstance(value, torch.Tensor) else repr(value)


def _differ(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor) or isinstance(new, torch.Tensor):
        return old is not new
    return type(old) is not type(new) or bool(old != new)


# The lifted model -------------------------------------------------------------------------------


def _as_function(model: torch.nn.Module, variables: tuple[Variable, ...]) -> torch.nn.Module:
    """The same module, sharing everything, under a class whose ``forward`` has lifted state."""
    cls = type(model)
    if LIFTED in inspect.signature(model.forward).parameters:
        raise UsageError(f"forward of {cls.__name__} has an argument {LIFTED}: rename it")
    members = {
        "forward": _Forward(cls, variables),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    derived = types.new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(members))
    lifted: torch.nn.Module = derived.__new__(derived)
    object.__setattr__(lifted, "__dict__", vars(model))
    return lifted


class _Forward:
    """``forward`` of a class, with one more argument and a `Step` as the result.

    A descriptor, not a function, so that the signature of the method is one that wrappers of the
    method may copy: it has no ``self``.
    """

    def __init__(self, cls: type[Any], variables: tuple[Variable, ...]) -> None:
        self.cls = cls
        self.variables = variables

    def __get__(self, model: torch.nn.Module | None, owner: type[Any]) -> Callable[..., Any]:
        method = self.cls.forward.__get__(model, owner)
        if model is None:
            return method  # type: ignore[no-any-return]  # of any class

        @functools.wraps(method)
        def forward(*args: Any, **kwargs: Any) -> Step:
            state = kwargs.pop(LIFTED)
            with exchanged(model, _placed(self.variables, state)):
                outputs = method(*args, **kwargs)
                return Step(outputs, _read(model, self.variables))

        signature = inspect.signature(method)
        known = [*signature.parameters.values()]
        at = len(known) - (bool(known) and known[-1].kind is inspect.Parameter.VAR_KEYWORD)
        added = inspect.Parameter(LIFTED, inspect.Parameter.KEYWORD_ONLY)
        forward.__signature__ = signature.replace(  # type: ignore[attr-defined]  # inspect reads it
            parameters=[*known[:at], added, *known[at:]], return_annotation=Step
        )
        return forward


def _placed(variables: Sequence[Variable], state: Mapping[str, Any]) -> dict[Place, Any]:
    """The value of each place: copies, as the model may write into them."""
    values = {v.name: state[v.name] for v in variables}
    copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in values.items()}
    return {place: copies[one.name] for one in variables for place in one.places}


def _read(model: torch.nn.Module, variables: Sequence[Variable]) -> dict[str, Any]:
    found = {one.name: read_place(model, one.places[0]) for one in variables}
    return {
        name: value.detach() if isinstance(value, torch.Tensor) and value.requires_grad else value
        for name, value in found.items()
    }


def _calls_with_state(
    lifted: torch.nn.Module, seen: Observation, initial: dict[str, Any]
) -> Iterator[Call]:
    """The recorded calls in a row, several times over, as far as the model can run them.

    A call that the carried state does not allow begins anew.
    """
    state = initial
    for number, call in enumerate(itertools.chain(*[seen.calls] * _PASSES)):
        for begin in (state, initial):
            made = replace(call, kwargs={**call.kwargs, LIFTED: begin})
            step, error = attempt(_run, lifted, made)
            if error is None:
                break
        if error is not None and number < len(seen.calls):
            raise UsageError(
                f"{seen.title} cannot run its recorded calls again: {error}"
            ) from error
        if error is not None:
            return
        yield replace(made, outputs=clone(step))
        state = clone(step.state_next)


def _with_state(
    call: Call, finish: Callable[[Arguments], Arguments] | None, arguments: Arguments
) -> Arguments:
    """Arguments of the user's function with the state of a recorded call."""
    args, kwargs = arguments if finish is None else finish(arguments)
    return args, {**kwargs, LIFTED: clone(call.kwargs[LIFTED])}
