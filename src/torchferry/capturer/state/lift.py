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

from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.result import Captured
from torchferry.capturer.state.begin import find_beginnings, run_call
from torchferry.capturer.state.places import Place, exchanged, read_place
from torchferry.capturer.state.variables import PASSES, Variable, find_variables
from torchferry.errors import CaptureError, UsageError
from torchferry.observer import Call, Observation
from torchferry.observer.sets import Arguments
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept
from torchferry.values.step import LIFTED, Step

__all__ = ["Lifted", "State", "check_state", "lift_state"]

State = Literal["refuse", "lift"]
"""What is done with state that ``forward`` keeps for later calls."""


@dataclass(frozen=True)
class Lifted:
    """A model whose state is lifted.

    Attributes:
        model: the lifted model; ``forward`` has one more argument and returns a `Step`.
        original: the model itself.
        seen: the calls of the lifted model.
        variables: the state.
        begun: what stands in the place of None before a first call, by place.
    """

    model: torch.nn.Module
    original: torch.nn.Module
    seen: Observation
    variables: tuple[Variable, ...]
    begun: Mapping[Place, Any]

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
        with exchanged(model, _placed(self.variables, state, self.begun)):
            # A result may be the state itself, which the next call writes to.
            outputs = [
                clone(model(*args, **accept_aliases(model, kwargs))) for args, kwargs in calls
            ]
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
        begun = find_beginnings(model, seen)
        with exchanged(model, clone(begun)):
            variables = find_variables(model, seen)
        if not variables:
            return None
        if "forward" in vars(model):
            raise UsageError(
                f"forward of {type(model).__name__} was replaced on the object itself (by hooks "
                "of accelerate, or by hand), so its state cannot be lifted: undo that first"
            )
        lifted = _as_function(model, variables, begun)
        calls = list(_calls_with_state(lifted, seen, {v.name: v.initial for v in variables}))
    maker = seen.maker and replace(
        seen.maker, finish=functools.partial(_with_state, calls[0], seen.maker.finish)
    )
    changed = replace(seen, signature=inspect.signature(lifted.forward), calls=calls, maker=maker)
    return Lifted(lifted, model, changed, variables, begun)


def _as_function(
    model: torch.nn.Module, variables: tuple[Variable, ...], begun: Mapping[Place, Any]
) -> torch.nn.Module:
    """The same module, sharing everything, under a class whose ``forward`` has lifted state."""
    cls = type(model)
    if LIFTED in inspect.signature(model.forward).parameters:
        raise UsageError(f"forward of {cls.__name__} has an argument {LIFTED}: rename it")
    members = {
        "forward": _Forward(cls, variables, begun),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
    }
    derived = types.new_class(cls.__name__, (cls,), exec_body=lambda body: body.update(members))
    lifted: Any = object.__new__(derived)
    object.__setattr__(lifted, "__dict__", vars(model))
    return lifted  # type: ignore[no-any-return]  # a subclass of the model's class


class _Forward:
    """``forward`` of a class, with one more argument and a `Step` as the result.

    A descriptor, not a function, so that the signature of the method is one that wrappers of the
    method may copy: it has no ``self``.
    """

    def __init__(
        self, cls: type[Any], variables: tuple[Variable, ...], begun: Mapping[Place, Any]
    ) -> None:
        self.cls = cls
        self.variables = variables
        self.begun = begun

    def __get__(self, model: torch.nn.Module | None, owner: type[Any]) -> Callable[..., Any]:
        method = self.cls.forward.__get__(model, owner)
        if model is None:
            return method  # type: ignore[no-any-return]  # of any class

        @functools.wraps(method)
        def forward(*args: Any, **kwargs: Any) -> Step:
            state = kwargs.pop(LIFTED)
            with exchanged(model, _placed(self.variables, state, self.begun), traced=True):
                outputs = method(*args, **kwargs)
                return Step(outputs, _read(model, self.variables))

        signature = inspect.signature(method)
        known = [*signature.parameters.values()]
        at = len(known) - (bool(known) and known[-1].kind is inspect.Parameter.VAR_KEYWORD)
        added = inspect.Parameter(LIFTED, inspect.Parameter.KEYWORD_ONLY)
        forward.__signature__ = signature.replace(  # type: ignore[attr-defined]  # for inspect
            parameters=[*known[:at], added, *known[at:]], return_annotation=Step
        )
        return forward


def _placed(
    variables: Sequence[Variable], state: Mapping[str, Any], begun: Mapping[Place, Any]
) -> dict[Place, Any]:
    """The value of each place: copies, as the model may write into them."""
    values = {v.name: state[v.name] for v in variables}
    copies = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in values.items()}
    placed = {place: copies[one.name] for one in variables for place in one.places}
    return {**clone(dict(begun)), **placed}


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
    for number, call in enumerate(itertools.chain(*[seen.calls] * PASSES)):
        for begin in (state, initial):
            made = replace(call, kwargs={**call.kwargs, LIFTED: begin})
            step, error = attempt(run_call, lifted, made)
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
