"""A user's function of named sizes, ``def make(batch_size, height)``, that gives inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from torchferry.dims import Legal, Size
from torchferry.errors import UsageError
from torchferry.observer.infer import Argument, Axis, same_constant
from torchferry.observer.sets import Arguments, as_arguments
from torchferry.values.describe import string_type
from torchferry.values.flatten import Path, path_text
from torchferry.values.kinds import attempt

__all__ = ["Maker", "Sizes", "check_leaves", "choose_sizes", "other_values", "size_parameters"]

Sizes = dict[str, int]

_UNITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # what sizes may have to be multiples of
_BATCHES = ("batch", "n", "b")  # such a name is not what has to be a multiple
_AT_ONCE = 4  # attempts to change all sizes together


def size_parameters(function: Any) -> dict[str, int | None]:
    """The parameters of a function that are sizes, with their defaults.

    Those with a default that is not a number keep it, and ``model`` is no size.
    """
    found: dict[str, int | None] = {}
    for name, one in inspect.signature(function).parameters.items():
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) or name == "model":
            continue
        default = None if one.default is one.empty else one.default
        if default is None or type(default) is int:
            found[name] = default
    return found


@dataclass(frozen=True)
class Maker:
    """The function, and what is known of it.

    Attributes:
        function: takes each size by name, returns one set of inputs.
        title: for messages: ``inputs.py:make``.
        parameters: the sizes that it takes, with their defaults.
        legal: the sizes that it is asked for.
        finish: applied to each set that it gives: casts, other names of arguments.
        axes: by input name and axis (-1: an integer), how a size depends on the parameters.
    """

    function: Callable[..., Any]
    title: str
    parameters: Mapping[str, int | None]
    legal: Legal = field(default_factory=Legal)
    finish: Callable[[Arguments], Arguments] | None = None
    axes: Mapping[tuple[str, int], Size] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The parameters that vary: those with more than one legal size."""
        return [name for name in self.parameters if self.legal.constant(name) is None]

    def describe(self, name: str, axis: Axis) -> Axis:
        """An axis of an input with its size in terms of the parameters, if it depends on them."""
        size = self.axes.get((name, axis.index))
        if size is None:
            return axis
        seen = ", ".join("absent" if s is None else str(s) for s in axis.seen)
        return replace(axis, size=size, reason=f"{seen} → {size}, as {self.title} varies")

    def text(self, sizes: Mapping[str, int]) -> str:
        """A call of it: ``make(batch_size=2)``."""
        given = ", ".join(f"{name}={sizes[name]}" for name in self.parameters if name in sizes)
        return f"{self.title}({given})"

    def __call__(self, sizes: Mapping[str, int]) -> Arguments:
        """A set of inputs.

        Args:
            sizes: of its parameters, and perhaps of other names; a parameter without a size has
                its only legal one, or its default.

        Raises:
            UsageError: a parameter has no size, the function raises, or gives no set.
        """
        asked: dict[str, int] = {}
        for name, default in self.parameters.items():
            possible = (sizes.get(name), self.legal.constant(name), default)
            size = next((one for one in possible if one is not None), None)
            if size is None:
                raise UsageError(f"no size given for {name}")
            asked[name] = size
        made, error = attempt(lambda: self.function(**asked))
        if error is not None:
            call, said = self.text(asked), " ".join(str(error).split())[:300]
            if isinstance(error, UsageError):
                raise UsageError(f"{call} cannot give inputs: {said}") from error
            raise UsageError(f"{call} raised {type(error).__name__}: {said}") from error
        if isinstance(made, list):
            raise UsageError(
                f"{self.text(asked)} gives a list; a function of sizes returns one set of inputs: "
                "a tuple of positional arguments, a dictionary of named ones, or both"
            )
        arguments = as_arguments(made)
        return arguments if self.finish is None else self.finish(arguments)


def check_leaves(leaves: Mapping[Path, Any], arguments: Sequence[Argument], origin: str) -> None:
    """Check that inputs have the tensors and constants that were observed.

    Args:
        leaves: of the inputs, by path.
        arguments: what was observed; those of a cache, and optional ones, may be absent.
        origin: what gave the inputs, for the message.

    Raises:
        UsageError: another tensor, rank, dtype or constant.
    """
    known = {argument.path: argument for argument in arguments}
    other = [path for path in leaves if path not in known]
    other += [
        path
        for path, one in known.items()
        if path not in leaves and not (one.optional or one.cached)
    ]
    if other:
        has = "has" if other[0] in leaves else "has no"
        raise UsageError(f"{origin} {has} {path_text(other[0])}, unlike the sets that were run")
    for path, leaf in leaves.items():
        one = known[path]
        if isinstance(leaf, torch.Tensor) != (one.dtype is not None):
            alike = False
        elif isinstance(leaf, torch.Tensor):
            alike = leaf.dtype == one.dtype and leaf.ndim == len(one.axes)
        else:
            alike = one.integer is not None or same_constant(leaf, one.value)
        if not alike:
            raise UsageError(
                f"{origin} gives {string_type(leaf, with_shape=True)} for {path_text(path)}, "
                "unlike the sets that were run"
            )


def choose_sizes(
    maker: Maker, accepts: Callable[[Arguments], str | None]
) -> list[tuple[Sizes, Arguments]]:
    """Two or more sets whose sizes all differ.

    The first has the defaults, or small sizes, or multiples of larger and larger numbers, until
    one suits both the function and the model. In the second every size is another one; if no such
    set suits, one set more for each parameter changes it alone.

    Args:
        maker: the function.
        accepts: says why a set does not suit the model, or ``None``.

    Raises:
        UsageError: no sizes suit, or a parameter can have one only.
    """
    refusals: list[str] = []
    attempted = partial(_first_that_suits, maker, accepts, refusals)
    first = attempted(_firsts(maker))
    if first is None:
        raise UsageError(
            f"{maker.title}: no inputs of the sizes tried suit the model; give defaults to the "
            f"parameters, or state the legal sizes. First: {refusals[0]}"
        )
    others = {name: other_values(maker, name, first[0][name]) for name in maker.names}
    for number in range(_AT_ONCE):
        if not all(others.values()):
            break
        sizes = {name: sizes[min(number, len(sizes) - 1)] for name, sizes in others.items()}
        if (second := attempted([sizes])) is not None:
            return [first, second]
    found = [first]
    for name, possible in others.items():
        second = attempted({**first[0], name: size} for size in possible)
        if second is None:
            raise UsageError(
                f"{maker.title}: {name} can be {first[0][name]} only. At other sizes: "
                f"{refusals[-1]}. State its legal sizes, or leave the parameter out"
            )
        found.append(second)
    return found


def _first_that_suits(
    maker: Maker,
    accepts: Callable[[Arguments], str | None],
    refusals: list[str],
    tries: Iterable[Sizes],
) -> tuple[Sizes, Arguments] | None:
    """The first sizes that have inputs which the model takes; why others do not is added."""
    for sizes in tries:
        try:
            made = maker(sizes)
        except UsageError as error:
            refusals.append(str(error))
            continue
        said = accepts(made)
        if said is None:
            return sizes, made
        refusals.append(f"the model, given {maker.text(sizes)}, says {said}")
    return None


def _firsts(maker: Maker) -> Iterator[Sizes]:
    """Sizes to begin with: small, or multiples of larger and larger numbers, or far apart."""
    names, tried = maker.names, list[Sizes]()
    count = len(names)
    small = [2 + position for position in range(count)]
    patterns = [small, [3 * 2**position for position in range(count)]]
    # One after the other is much larger than the others: a part is shorter than the whole.
    patterns += [[*small[:i], 4 * (count + 2), *small[i + 1 :]] for i in reversed(range(count))]
    for unit in _UNITS:
        for pattern in patterns:
            sizes: Sizes = {}
            for name, size in zip(names, pattern, strict=True):
                batch = name in _BATCHES or name.startswith("batch")
                wanted = maker.parameters[name] or size * (1 if batch else unit)
                near = maker.legal.near(name, wanted, len(sizes) + 1)
                fresh = [size for size in near if size not in sizes.values()]
                sizes[name] = near[0] if maker.parameters[name] else (fresh or near)[0]
            if sizes not in tried:
                tried.append(sizes)
                yield sizes


def other_values(maker: Maker, name: str, size: int) -> list[int]:
    """Other sizes for a parameter, the likely ones first."""
    unit = max(u for u in _UNITS if size % u == 0)
    wanted = [
        size + unit,
        size + 1,
        2 * size,
        3 * size,
        size - unit,
        size - 1,
        size + 2,
        size // 2,
    ]
    stated = maker.legal.near(name, size, 9) if name in maker.legal.ranges else []
    return [
        other
        for other in dict.fromkeys([*wanted, *stated])
        if other > 0 and other != size and maker.legal.allows({name: other})
    ]
