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

from torchferry.dims import Dim, evaluate, substitute
from torchferry.errors import UsageError
from torchferry.observer.hints import fitting_shape, made_name, nest_shapes
from torchferry.observer.infer import Argument, Axis
from torchferry.observer.naming import input_name
from torchferry.observer.observation import Call, Observation
from torchferry.observer.resize import resize
from torchferry.observer.sets import (
    Arguments,
    Key,
    arrange,
    as_arguments,
    name_positional,
    positional_keys,
    star_position,
    varying_integers,
)
from torchferry.observer.tree import leaves_of, replace_leaves
from torchferry.values.flatten import Path, path_text

__all__ = ["ModelInputs"]

_log = logging.getLogger("torchferry")


class ModelInputs:
    """Sets of inputs of a model, and what they say of its arguments.

    An argument may be given by position in one set and by name in another, be absent, or None;
    absent and None are the same. An integer that differs between sets is a dynamic one.

    Attributes:
        inputs: the sets as ``(args, kwargs)``. An argument is positional in all of them or, if
            one gives it by name, named in all.
        observation: the same sets as calls; its ``arguments`` say why each axis is dynamic or
            static. Integers that vary are not among them.

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
            UsageError: there is no such method, a set does not fit it, or an argument changes its
                rank, its dtype or, for a constant, its value.
        """
        method = getattr(model, method_name, None)
        if method is None:
            close = get_close_matches(method_name, dir(model), n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"{type(model).__name__} has no method {method_name!r}{hint}")
        self._place = f"{type(model).__name__}.{method_name}"
        self._signature = inspect.signature(method)
        self.inputs = arrange(self._signature, [as_arguments(s) for s in inputs], self._place)
        self.observation = Observation(
            self._signature, type(model).__name__, [Call(*one) for one in self.inputs]
        )
        self._sets = [self.observation.normalized(call) for call in self.observation.calls]
        self._integers = varying_integers(leaves_of(*one) for one in self._sets)
        if self._integers:
            self.observation.calls = [
                Call(*replace_leaves(*one, change=lambda p, v: None if p in self._integers else v))
                for one in self._sets
            ]
        self._arguments = {argument.path: argument for argument in self.observation.arguments}

    @cached_property
    def best(self) -> Arguments:
        """Inputs to export with, arranged as ``inputs``: torch fixes sizes of 0 and 1.

        The set with most tensors, the fewest dynamic sizes below 2 and most sizes that differ.
        Where it still has a dynamic size below 2 (one token a step after a prefill) its tensors
        are stretched, to a size that another set has if there is one.
        """
        best = self.observation.best
        index = next(i for i, call in enumerate(self.observation.calls) if call is best)
        args, kwargs = self.inputs[index]
        sizes = self.observation.sizes_of(best)
        if all(size >= 2 for size in sizes.values()):
            return args, kwargs
        sizes = _enlarged(sizes, [self.observation.sizes_of(c) for c in self.observation.calls])
        keys = positional_keys(self._signature, len(args))
        return _stretched(args, kwargs, keys, self._arguments, sizes)

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Tensors seen once only: whether their axes are dynamic cannot be known."""
        arguments = self.observation.arguments
        return tuple(a.name for a in arguments if any(map(_seen_once, a.axes)))

    @property
    def unvaried(self) -> bool:
        """Whether there are several sets, all of the same sizes and with the same integers."""
        return self.observation.unvaried and not self._integers

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Values that are no tensor and the same in every set that has them, by name."""
        return {a.name: a.value for a in self.observation.arguments if a.dtype is None}

    @property
    def integers(self) -> dict[str, tuple[int, ...]]:
        """The values of each integer that varies, in the order of the sets that have it."""
        return {input_name(path): values for path, values in self._integers.items()}

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

        A cache without tokens, or a tensor whose largest dynamic axis has size 0; its other sizes
        are those of the first set that leaves it out, where that set has them. None when no size
        of the argument is known to vary: then no empty value can stand for it.
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
        known = [path for path in (*self._arguments, *self._integers) if path[0] == key]
        missing = [path_text(path) for path in known if path not in there]
        if missing:
            raise UsageError(
                f"argument {_name(key)}: no set has all of it; what has most lacks "
                f"{', '.join(missing[:5])}. Give one set that has everything"
            )
        return nested

    def _shape(self, path: Path, auto: bool | str) -> Any:
        if path in self._integers:
            return f"{auto}{made_name(path)}" if isinstance(auto, str) else TorchDim.DYNAMIC
        argument = self._arguments.get(path)
        if argument is None or argument.dtype is None:
            return None
        names = self.observation.dynamic_names
        hints = {axis.index: _hint(path, axis, auto, names) for axis in argument.axes}
        return {index: hint for index, hint in hints.items() if hint is not None}

    def _empty(self, key: Key) -> Any:
        arguments = {p: argument for p, argument in self._arguments.items() if p[0] == key}
        pairs = zip(self.observation.calls, self._sets, strict=True)
        lacking = next(c for c, one in pairs if not arguments.keys() <= leaves_of(*one).keys())
        sizes = self.observation.sizes_of(lacking)
        return _emptied(self._values_of(key)[0], key, arguments, sizes)


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


def _stretched(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    keys: Sequence[Key],
    arguments: Mapping[Path, Argument],
    sizes: Mapping[str, int],
) -> Arguments:
    """The arguments at other sizes; ``keys`` are what ``arguments`` calls the positional ones."""
    generator = torch.Generator().manual_seed(0)

    def change(path: Path, leaf: Any) -> Any:
        key = keys[path[0]] if isinstance(path[0], int) else path[0]
        argument = arguments.get((key, *path[1:]))
        if argument is None or not isinstance(leaf, torch.Tensor):
            return leaf
        return resize(leaf, [evaluate(axis.size, sizes) for axis in argument.axes], generator)

    return replace_leaves(args, kwargs, change=change)


def _enlarged(sizes: Mapping[str, int], seen: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """The sizes with those below 2 replaced, by one seen in a call if that is no other's."""
    result = {name: size for name, size in sizes.items() if size >= 2}
    for name in [name for name in sizes if name not in result]:
        larger = [call[name] for call in seen if call.get(name, 0) >= 2]
        taken = set(result.values())
        result[name] = next(size for size in (*larger, *range(2, 99)) if size not in taken)
    return result


def _emptied(
    value: Any, key: Key, arguments: Mapping[Path, Argument], sizes: Mapping[str, int]
) -> Any:
    """The value without elements; None when nothing of it is known to vary.

    Args:
        value: what is given for the argument.
        key: the first step of the paths.
        arguments: what is known of its leaves, by path.
        sizes: of dimensions by name; others stay as they are in the value.
    """
    lengths = []

    def change(path: Path, leaf: Any) -> Any:
        argument = arguments.get((key, *path[1:]))
        if argument is None or not isinstance(leaf, torch.Tensor):
            return leaf
        shape = [sizes.get(str(a.size), leaf.shape[a.index]) for a in argument.axes]
        length = _length(argument, leaf)
        if length is not None:
            shape[length] = 0
            lengths.append(length)
        return leaf.new_zeros(shape)

    _, made = replace_leaves((), {"": value}, change=change)
    return made[""] if lengths else None


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


def _length(argument: Argument, leaf: torch.Tensor) -> int | None:
    """The axis along which an empty tensor is empty: the tokens of a cache, else the largest."""
    dynamic = [axis.index for axis in argument.axes if isinstance(axis.size, Dim)]
    if argument.cached and leaf.ndim - 2 in dynamic:
        return leaf.ndim - 2
    return max(dynamic, key=lambda index: leaf.shape[index], default=None)
