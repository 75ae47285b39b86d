"""Two or more sets of inputs given by hand → the dynamic shapes torch.export wants."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import torch
from torch.export import Dim as TorchDim

from torchferry.dims import Dim, names_in, substitute
from torchferry.errors import UsageError
from torchferry.observer.hints import fitting_shape, nest_shapes
from torchferry.observer.infer import Axis
from torchferry.observer.keep import keep_set
from torchferry.observer.naming import input_name, made_name
from torchferry.observer.observation import Call, Observation
from torchferry.observer.sets import (
    Arguments,
    Key,
    arrange,
    as_sets,
    name_positional,
    positional_keys,
    star_position,
)
from torchferry.observer.stand_in import emptied, enlarged, stretched
from torchferry.observer.tree import leaves_of
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, path_text

__all__ = ["ModelInputs"]

_log = logging.getLogger("torchferry")


class ModelInputs:
    """Sets of inputs of a model, and what they say of its arguments.

    An argument may be given by position in one set and by name in another, be absent, or None;
    absent and None are the same. An integer that differs between sets is a dynamic one.

    Attributes:
        inputs: copies of the sets as ``(args, kwargs)``. An argument is positional in all of them
            or, if one gives it by name, named in all.
        observation: the same sets as calls; its ``arguments`` say why each axis is dynamic or
            static, and which integers vary.

    >>> model = torch.nn.ReLU()
    >>> mi = ModelInputs(model, [(torch.zeros(2, 3),), (torch.zeros(5, 3),)])
    >>> mi.guess_dynamic_shapes()
    (({0: DimHint(DYNAMIC)},), {})
    """

    def __init__(
        self,
        model: torch.nn.Module,
        inputs: Iterable[Sequence[Any] | Mapping[str, Any]],
        method_name: str = "forward",
    ) -> None:
        """Compare the sets; the model is not run.

        Args:
            model: any module.
            inputs: sets of different sizes, each ``(args tuple)``, ``(kwargs dict)`` or
                ``(args, kwargs)``.
            method_name: of the method that takes them.

        Raises:
            UsageError: no module, no such method, no list of sets, a set does not fit the method,
                or an argument changes its rank, its dtype or, for a constant, its value.
        """
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"ModelInputs takes a module first, not {string_type(model)}")
        given = [keep_set(one) for one in as_sets(inputs, "ModelInputs")]
        method = _method(model, method_name)
        self._place = f"{type(model).__name__}.{method_name}"
        self._signature = inspect.signature(method)
        self.inputs = arrange(self._signature, given, self._place)
        self.observation = Observation(
            self._signature, type(model).__name__, [Call(*one) for one in self.inputs]
        )
        self._sets = [self.observation.normalized(call) for call in self.observation.calls]
        self._arguments = {argument.path: argument for argument in self.observation.arguments}

    @cached_property
    def best(self) -> Arguments:
        """Inputs to export with, arranged as ``inputs``: torch fixes sizes of 0 and 1.

        The set with most tensors, the fewest dynamic sizes below 2 and most sizes that differ.
        Where it still has a dynamic size below 2 (one token a step after a prefill) its tensors
        are stretched, to a size that another set has if there is one. Integers stay, unless a
        dimension is always as long: 0 and 1 may mean something.
        """
        best = self.observation.best
        index = next(i for i, call in enumerate(self.observation.calls) if call is best)
        args, kwargs = self.inputs[index]
        sizes = self.observation.sizes_of(best)
        lengths = {n for a in self._arguments.values() for x in a.axes for n in names_in(x.size)}
        small = [name for name, size in sizes.items() if size < 2 and name in lengths]
        if not small:
            return args, kwargs
        seen = [self.observation.sizes_of(call) for call in self.observation.calls]
        sizes = enlarged(sizes, small, seen)
        keys = positional_keys(self._signature, len(args))
        return stretched(args, kwargs, keys, self._arguments, sizes)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Tensors seen once only: whether their axes are dynamic cannot be known."""
        arguments = self.observation.arguments
        return tuple(a.name for a in arguments if any(map(_seen_once, a.axes)))

    @property
    def unvaried(self) -> bool:
        """Whether there are several sets, all of the same sizes and with the same integers."""
        return self.observation.unvaried

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Values that are no tensor and the same in every set that has them, by name."""
        return {a.name: a.value for a in self.observation.arguments if a.dtype is None
                and a.integer is None}  # fmt: skip

    @cached_property
    def integers(self) -> dict[str, tuple[int, ...]]:
        """The values of each integer that varies, in the order of the sets that have it."""
        found = {a.name: a.integer for a in self.observation.arguments if a.integer is not None}
        return {name: tuple(v for v in one.seen if v is not None) for name, one in found.items()}

    @property
    def positional(self) -> tuple[str, ...]:
        """Arguments given by position that cannot be given by name: ``x, /`` and ``*xs``."""
        given = list(self._signature.parameters.values())[: max(len(a) for a, _ in self.inputs)]
        return tuple(p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL))

    @property
    def keywords(self) -> tuple[str, ...]:
        """Arguments that go to ``**kwargs``: torch.export needs `explicit_keywords` for them."""
        names = dict.fromkeys(name for _, kwargs in self.inputs for name in kwargs)
        return tuple(name for name in names if name not in self._signature.parameters)

    @cached_property
    def optional(self) -> dict[str, Any]:
        """Arguments that some set leaves out, with the empty value that stands for each.

        A cache without tokens, states of zeros, or a tensor whose largest dynamic axis has size 0;
        other sizes are those of the first set that leaves it out, where that set has them. None
        when no empty value can stand for it: no size of the argument is known to vary, or it
        holds a cross-attention, which an absent cache makes the model compute.
        """
        keys = dict.fromkeys(a.path[0] for a in self.observation.arguments if a.optional)
        return {_name(key): self._empty(key) for key in keys}

    def guess_dynamic_shapes(
        self, auto: bool | str = False
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Dynamic shapes of every argument that some set has.

        Args:
            auto: True: ``Dim.AUTO`` for the axes of tensors seen once, of which nothing can be
                known; without it they are static, and a warning is logged. A string: a name in
                place of every hint, this prefix and the name inferred; equal sizes have one name,
                and sums are written so. Axes seen once are called after their argument.

        Returns:
            ``(for args, for kwargs)``: ``{axis: Dim.DYNAMIC}`` for a tensor, ``{}`` when nothing
            varies, ``Dim.DYNAMIC`` for an integer that varies, None for a constant; nested as the
            pytree is (a ``DynamicCache`` as all keys, then all values). What ``*args`` takes is
            one tuple, as torch has it. ``torch.export.export`` takes the first when all is
            positional and the second when all is named; else see `move_to_kwargs`. What goes to
            ``**kwargs`` needs `explicit_keywords` too.

        Raises:
            UsageError: a nested argument that no set has in full.
        """
        for told in _warnings(self, auto):
            _log.warning("%s: %s", self._place, told)
        count = max(len(args) for args, _ in self.inputs)
        keys = positional_keys(self._signature, count)
        args = tuple(self._shapes_of(key, auto) for key in keys)
        star = star_position(self._signature)
        if star is not None:
            args = (*args[:star], args[star:])
        names = dict.fromkeys(name for _, kwargs in self.inputs for name in kwargs)
        return args, {name: self._shapes_of(name, auto) for name in names}

    def export_arguments(
        self, auto: bool | str = False
    ) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """What to give torch.export: `best`, and the shapes of just these arguments.

        Args:
            auto: as for `guess_dynamic_shapes`.

        Returns:
            ``(args, kwargs, dynamic_shapes)``, the last by the names of the parameters, also
            those of positional arguments: ``torch.export.export(model, args, kwargs,
            dynamic_shapes=dynamic_shapes)``.
        """
        args, kwargs = self.best
        for_args, for_kwargs = self.guess_dynamic_shapes(auto)
        names = list(self._signature.parameters)
        star = star_position(self._signature)
        grouped = args if star is None else (*args[:star], args[star:])
        given = {**dict(zip(names, grouped, strict=False)), **kwargs}
        shapes = {**dict(zip(names, for_args, strict=False)), **for_kwargs}
        return args, kwargs, {name: fitting_shape(given[name], shapes[name]) for name in given}

    def move_to_kwargs(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        dynamic_shapes: tuple[Sequence[Any], Mapping[str, Any]],
    ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[tuple[Any, ...], dict[str, Any]]]:
        """Give every positional argument its name, in the inputs and in the shapes.

        ``torch.export.export`` takes one dictionary of shapes, for exactly the arguments it is
        given: shapes of other arguments are left out, and where a value is None so is the shape.

        Args:
            args: positional arguments of one set.
            kwargs: its named arguments.
            dynamic_shapes: ``(for args, for kwargs)``.

        Returns:
            ``((), kwargs, ((), for kwargs))``, in the order of the signature.

        Raises:
            UsageError: an argument has no name it could be given by, or no shape.
        """
        names = list(self._signature.parameters)
        moved = {**name_positional(self._signature, args, self._place), **kwargs}
        shapes = {**dict(zip(names, dynamic_shapes[0], strict=False)), **dynamic_shapes[1]}
        missing = [n for n, value in moved.items() if n not in shapes and value is not None]
        if missing:
            raise UsageError(f"dynamic_shapes say nothing of {', '.join(missing)}: add them")
        order = sorted(moved, key=[*names, *moved].index)
        fitting = {name: fitting_shape(moved[name], shapes.get(name)) for name in order}
        return (), {name: moved[name] for name in order}, ((), fitting)

    def _values_of(self, key: Key) -> list[Any]:
        """What the sets that have the argument give for it, the fullest first."""
        found = [args[key] if isinstance(key, int) else kwargs[key]
                 for args, kwargs in self._sets
                 if (key < len(args) if isinstance(key, int) else key in kwargs)]  # fmt: skip
        return sorted(found, key=lambda value: -len(leaves_of((), {"": value})))

    def _shapes_of(self, key: Key, auto: bool | str) -> Any:
        values = self._values_of(key)
        if not values:
            return None
        there: set[Path] = set()

        def shape_of(path: Path, _: Any) -> Any:
            there.add(path)
            return self._shape(path, auto)

        nested = nest_shapes(values[0], (key,), shape_of)
        known = [path for path in self._arguments if path[0] == key]
        missing = [path_text(path) for path in known if path not in there]
        if missing:
            raise UsageError(
                f"argument {_name(key)}: no set has all of it; what has most lacks "
                f"{', '.join(missing[:5])}. Give one set that has everything"
            )
        return nested

    def _shape(self, path: Path, auto: bool | str) -> Any:
        argument = self._arguments.get(path)
        names = self.observation.dynamic_names
        if argument is not None and argument.integer is not None:
            return _hint(path, argument.integer, auto, names)
        if argument is None or argument.dtype is None:
            return None
        hints = {axis.index: _hint(path, axis, auto, names) for axis in argument.axes}
        return {index: hint for index, hint in hints.items() if hint is not None}

    def _empty(self, key: Key) -> Any:
        arguments = {p: argument for p, argument in self._arguments.items() if p[0] == key}
        found = zip(self.observation.calls, (leaves_of(*one) for one in self._sets), strict=True)
        lacking, given = next((c, got) for c, got in found if arguments.keys() - {*got})
        value, sizes = self._values_of(key)[0], self.observation.sizes_of(lacking)
        return emptied(value, key, arguments, sizes, given)


def _method(model: torch.nn.Module, name: str) -> Any:
    method = getattr(model, name, None)
    if method is None:
        close = get_close_matches(name, dir(model), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise UsageError(f"{type(model).__name__} has no method {name!r}{hint}")
    return method


def _warnings(given: ModelInputs, auto: bool | str) -> Iterator[str]:
    """What cannot be known from the sets."""
    if given.unvaried:
        yield (
            f"all {len(given.inputs)} sets have the same sizes, so nothing is known to vary and "
            "no dimension is dynamic. Give sets of other sizes"
        )
    if given.unknown and auto is False:
        yield (
            f"{', '.join(given.unknown)} is in one set only: which of its axes vary cannot be "
            "known, and all are taken as static. Give a second set with other sizes, or auto=True"
        )


def _name(key: Key) -> str:
    return input_name((key,)) if isinstance(key, int) else key


def _hint(path: Path, axis: Axis, auto: bool | str, names: Sequence[str]) -> Any:
    """What stands for an axis; None when it is static."""
    if _seen_once(axis):
        if isinstance(auto, str):
            return f"{auto}{made_name((*path, axis.index))}"
        return TorchDim.AUTO if auto else None
    if not isinstance(axis.size, Dim):
        return None
    if not isinstance(auto, str):
        return TorchDim.DYNAMIC
    return str(substitute(axis.size, {name: Dim.of(f"{auto}{name}") for name in names}))


def _seen_once(axis: Axis) -> bool:
    return sum(size is not None for size in axis.seen) == 1
