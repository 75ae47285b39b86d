"""What was seen of a model: its calls, and for each argument which dimensions vary and why."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import torch

from torchferry.dims import Dim, Legal, Size, evaluate, names_in
from torchferry.errors import UsageError
from torchferry.notebook import table_html
from torchferry.observer.infer import Argument, Axis, infer_arguments
from torchferry.observer.keep import keep_set
from torchferry.observer.maker import Maker, check_leaves
from torchferry.observer.naming import mixed_names
from torchferry.observer.resize import resize
from torchferry.observer.sets import as_sets, fill_defaults, given_values, refuse_mixed
from torchferry.observer.tree import leaves_of, preallocated_caches, replace_leaves
from torchferry.values.clone import clone
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, path_text

__all__ = ["Argument", "Axis", "Call", "Observation"]


_SHOWN = 3  # calls in a repr


@dataclass(frozen=True, repr=False)
class Call:
    """One call of the model.

    Attributes:
        args: positional arguments, as they were before the call.
        kwargs: named arguments, as they were before the call.
        outputs: what the model returned.
        seconds: wall time of the call.
        sizes: what the user's function was asked for, if that gave the arguments.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: Any = None
    seconds: float = 0.0
    sizes: Mapping[str, int] | None = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return string_type((self.args, self.kwargs), with_shape=True)

    def __repr__(self) -> str:
        return f"Call({self} -> {string_type(self.outputs, with_shape=True)})"


def _html(seen: Observation) -> str:
    rows = [
        (a.name, a.dtype or "", ", ".join(str(axis.size) for axis in a.sizes), a.reasons)
        for a in (seen.arguments if seen.calls else ())
    ]
    return table_html(repr(seen).splitlines()[0], ("argument", "dtype", "sizes", "why"), rows)


@dataclass(repr=False)
class Observation:
    """The calls of one model, and what they say of its inputs.

    Positional arguments are known by their parameter's name, so that calls which pass the same
    argument in different ways agree.

    Attributes:
        signature: the signature of the method that was called.
        title: the model's class name.
        calls: in the order they were made.
        named: sizes the caller fixed or named: ``{("x", 1): Dim.of("width")}``; they win over
            what is inferred.
        positional: names of arguments that are known by position only, for people to read.
        legal: the sizes that may be tried.
        maker: the user's function that gives inputs of any sizes, where there is one.
    """

    signature: inspect.Signature
    title: str
    calls: list[Call] = field(default_factory=list)
    named: Mapping[tuple[str, int], Size] = field(default_factory=dict)
    positional: tuple[str, ...] = ()
    legal: Legal = field(default_factory=Legal)
    maker: Maker | None = None

    def __repr__(self) -> str:
        """The first calls, in one line each; their tensors would fill pages."""
        count = len(self.calls)
        lines = [f"  {call!r}" for call in self.calls[:_SHOWN]]
        lines += [f"  … {count - _SHOWN} more"] if count > _SHOWN else []
        calls = f"{count} call{'s' * (count != 1)}"
        return "\n".join([f"Observation({self.title}: {calls})", *lines])

    _repr_html_ = _html

    def normalized(self, call: Call) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The call with every argument moved to its name, in the order of the signature.

        Arguments without a name of their own (positional-only, ``*args`` and all before them)
        stay positional. A None that is the default anyway is left out; a constant that other
        calls give is there, as the default.

        Raises:
            UsageError: the arguments do not fit the signature.
        """
        bound = _bound(self, call, self.signature.bind)
        fill_defaults(bound, self._given)
        kinds = {name: p.kind for name, p in self.signature.parameters.items()}
        if inspect.Parameter.VAR_POSITIONAL in kinds.values():
            # What stands before *args can only be given by position too.
            return bound.args, bound.kwargs
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in sorted(bound.arguments.items(), key=lambda one: [*kinds].index(one[0])):
            if kinds[name] is inspect.Parameter.POSITIONAL_ONLY:
                args.append(value)
            elif kinds[name] is inspect.Parameter.VAR_KEYWORD:
                kwargs.update({k: v for k, v in value.items() if v is not None})
            elif value is not None or self.signature.parameters[name].default is not None:
                kwargs[name] = value
        return tuple(args), kwargs

    @cached_property
    def renamed(self) -> dict[str, str]:
        """New names of arguments that calls gave under two: see `mixed_names`."""
        given = {name for call in self.calls for name in call.kwargs}
        return mixed_names(given, self.signature.parameters)

    @cached_property
    def _given(self) -> dict[str, list[Any]]:
        bind = self.signature.bind_partial
        return given_values([_bound(self, call, bind) for call in self.calls])

    def add(self, call: Call) -> None:
        """Take one more call; what was inferred from fewer is forgotten."""
        self.calls.append(call)
        self.__dict__.pop("arguments", None)
        self.__dict__.pop("_given", None)
        self.__dict__.pop("renamed", None)

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Every tensor and constant the model was given, with its dimensions.

        Raises:
            UsageError: no call was recorded, or an argument changes its rank, dtype or value; an
                integer may.
        """
        _check_called(self)
        refuse_mixed(self._given, self.title)
        calls = [self.normalized(call) for call in self.calls]
        whole = {place for call in calls for place in preallocated_caches(*call)}
        found = infer_arguments([leaves_of(*call) for call in calls], whole)
        return tuple(_with_names_given(self, argument) for argument in found)

    @property
    def dynamic_names(self) -> tuple[str, ...]:
        """Names of the independent dynamic sizes and integers, in the order of the arguments."""
        names: dict[str, None] = {}
        for argument in self.arguments:
            for axis in argument.sizes:
                for name in sorted(names_in(axis.size)):
                    names.setdefault(name)
        return tuple(names)

    @property
    def free_names(self) -> list[str]:
        """The dynamic names whose sizes may be chosen: all, or the parameters of a function."""
        known = self.dynamic_names if self.maker is None else self.maker.names
        return [name for name in known if name in self.dynamic_names]

    @property
    def unvaried(self) -> bool:
        """Whether there are several calls and all have tensors of the same sizes.

        They say no more than one: what may vary cannot be known from them.
        """
        axes = [axis for argument in self.arguments for axis in argument.sizes]
        return len(self.calls) > 1 and bool(axes) and not self.dynamic_names

    def sizes_of(self, call: Call) -> dict[str, int]:
        """The value each dynamic name has in a call."""
        leaves = leaves_of(*self.normalized(call))
        names = () if call.sizes is None else self.dynamic_names
        sizes = {name: call.sizes[name] for name in names if call.sizes and name in call.sizes}
        for argument in self.arguments:
            leaf = leaves.get(argument.path)
            for axis in argument.sizes:
                if isinstance(axis.size, Dim) and axis.size.name:
                    if isinstance(leaf, torch.Tensor):
                        sizes.setdefault(axis.size.name, leaf.shape[axis.index])
                    elif leaf is not None:
                        sizes.setdefault(axis.size.name, leaf)
                    elif argument.cached:
                        sizes.setdefault(axis.size.name, 0)
        return sizes

    @property
    def best(self) -> Call:
        """The call to export with: most tensors, no dynamic size below 2, sizes all different.

        Raises:
            UsageError: no call was recorded.
        """
        _check_called(self)

        def fitness(call: Call) -> tuple[int, int, int]:
            sizes = self.sizes_of(call)
            return (
                len(leaves_of(*self.normalized(call))),
                -sum(size < 2 for size in sizes.values()),
                len(set(sizes.values())),
            )

        return max(self.calls, key=fitness)

    def inputs_at(
        self, sizes: Mapping[str, int], *, seed: int = 0
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs of other sizes, made from those of the best call.

        Args:
            sizes: a value for every one of ``dynamic_names`` that the best call depends on.
            seed: of the noise that tells repeated rows apart.

        Raises:
            UsageError: a name has no size, or one that no dimension can have.
        """
        _check_sizes(sizes)
        if self.maker is not None:
            return _asked(self, self.maker, sizes)
        args, kwargs = self.normalized(self.best)
        return _resized(args, kwargs, self.arguments, sizes, seed)

    def sizes_at(
        self, sizes: Mapping[str, int], inputs: tuple[tuple[Any, ...], dict[str, Any]]
    ) -> dict[str, int]:
        """The value each dynamic name has in what `inputs_at` gave."""
        if self.maker is None:
            return dict(sizes)
        asked = {name: size for name, size in sizes.items() if name in self.maker.names}
        return self.sizes_of(Call(*inputs, sizes=asked))

    def map_sizes(
        self, change: Callable[[Argument, Axis], Any]
    ) -> dict[tuple[str | int, ...], Any]:
        """As `map_axes`, and ``{path: change(argument, integer)}`` of the integers that vary."""
        integers = {
            argument.path: change(argument, argument.integer)
            for argument in self.arguments
            if argument.integer is not None
        }
        return {**_by_axis(self.arguments, change), **integers}

    def map_axes(
        self, change: Callable[[Argument, Axis], Any]
    ) -> dict[tuple[str | int, ...], Any]:
        """``{path: {axis: change(argument, axis)}}`` of the dynamic axes of every tensor.

        Raises:
            UsageError: an integer varies, so the tensors are not all.
        """
        for argument in self.arguments:
            if argument.integer is not None:
                raise UsageError(
                    f"argument {argument.name} is an integer that varies "
                    f"({', '.join(str(n) for n in argument.integer.seen if n is not None)}) and "
                    "cannot be an input here: give one value, or pass it as a tensor in every call"
                )
        return _by_axis(self.arguments, change)

    @classmethod
    def from_inputs(
        cls,
        model: torch.nn.Module,
        input_sets: Iterable[Sequence[Any] | Mapping[str, Any]],
    ) -> Observation:
        """Calls that were not run: sets given by hand, in any form `as_sets` takes, and copied.

        Raises:
            UsageError: this is no list of sets, or a set is something else.
        """
        title = type(model).__name__
        calls = [Call(*keep_set(one)) for one in as_sets(input_sets, title)]
        return cls(inspect.signature(model.forward), title, calls)


def _bound(
    seen: Observation, call: Call, bind: Callable[..., inspect.BoundArguments]
) -> inspect.BoundArguments:
    kwargs = {seen.renamed.get(name, name): value for name, value in call.kwargs.items()}
    if len(kwargs) < len(call.kwargs):  # it has both names: they are two arguments
        kwargs = call.kwargs
    try:
        return bind(*call.args, **kwargs)
    except TypeError as error:
        raise UsageError(
            f"{seen.title}.forward{seen.signature} cannot take {call}: {error}"
        ) from error


def _with_names_given(seen: Observation, argument: Argument) -> Argument:
    first = argument.path[0]
    if isinstance(first, int) and first < len(seen.positional):
        argument = replace(argument, label=seen.positional[first])

    def named(axis: Axis) -> Axis:
        if (key := (argument.name, axis.index)) in seen.named:
            return replace(axis, size=seen.named[key], reason="given")
        return axis if seen.maker is None else seen.maker.describe(argument.name, axis)

    integer = argument.integer and named(argument.integer)
    return replace(argument, axes=tuple(map(named, argument.axes)), integer=integer)


def _by_axis(
    arguments: Iterable[Argument], change: Callable[[Argument, Axis], Any]
) -> dict[tuple[str | int, ...], Any]:
    return {
        argument.path: {
            axis.index: change(argument, axis)
            for axis in argument.axes
            if isinstance(axis.size, Dim)
        }
        for argument in arguments
        if argument.dtype is not None
    }


def _check_called(seen: Observation) -> None:
    if not seen.calls:
        raise UsageError(
            f"no call of {seen.title} was recorded: run the model inside the "
            "`with observe(model)` block, at least twice and with different sizes; a call "
            "that returns nothing is not recorded"
        )


def _asked(
    seen: Observation, maker: Maker, sizes: Mapping[str, int]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Inputs from the user's function; those recorded, if they have these sizes."""
    for call in seen.calls:
        if call.sizes and all(sizes.get(name) == size for name, size in call.sizes.items()):
            recorded: tuple[tuple[Any, ...], dict[str, Any]] = clone(seen.normalized(call))
            return recorded
    args, kwargs = seen.normalized(Call(*maker(sizes)))
    check_leaves(leaves_of(args, kwargs), seen.arguments, maker.text(sizes))
    return args, kwargs


def _resized(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: Sequence[Argument],
    sizes: Mapping[str, int],
    seed: int,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of a call, stretched or shrunk to other sizes."""
    axes = {argument.path: argument.sizes for argument in arguments}
    needed = {
        name: None
        for path in leaves_of(args, kwargs)
        for axis in axes[path]
        for name in sorted(names_in(axis.size))
    }
    missing = [name for name in needed if name not in sizes]
    if missing:
        raise UsageError(f"no size given for {', '.join(missing)}")
    generator = torch.Generator().manual_seed(seed)

    def resized(path: Path, leaf: Any) -> Any:
        if leaf is None:
            return leaf
        shape = [evaluate(axis.size, sizes) for axis in axes[path]]
        if isinstance(leaf, torch.Tensor):
            _check_shape(path, shape, sizes)
            return resize(leaf, shape, generator)
        return shape[0] if shape else leaf

    return replace_leaves(args, kwargs, change=resized)


def _check_sizes(sizes: Mapping[str, object]) -> None:
    wrong = {name: size for name, size in sizes.items() if not isinstance(size, Integral)}
    if wrong:
        raise UsageError(f"a size is an integer, and inputs_at was given {wrong}")


def _check_shape(path: Path, shape: Sequence[int], sizes: Mapping[str, int]) -> None:
    if min(shape, default=0) < 0:
        asked = ", ".join(f"{name}={size}" for name, size in sizes.items())
        raise UsageError(f"no {path_text(path)} has shape {shape}, as {asked} asks")
