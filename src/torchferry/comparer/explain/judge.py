"""The verdict on one value: right, wrong, or one of several that are right."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from torchferry.comparer.reference.chance import Chance, chance_of_model
from torchferry.comparer.setting import Setting
from torchferry.judge import Kind
from torchferry.judge.choices import as_good
from torchferry.judge.draws import may_be_drawn
from torchferry.judge.value import difference_of
from torchferry.values.difference import Discrepancy

__all__ = ["Allows", "Judge"]

Allows = Callable[[torch.Tensor, Discrepancy], bool]

_BAKED = "the reference draws it at random, and the ONNX model has the same in every run"
_OTHER = "it depends on random numbers that the reference draws, and the ONNX model does not"
_APART = "it depends on random numbers that each side draws for itself"
_DRAWN = "it is drawn at random"
_ELSE = "it is drawn at random, but not from the distribution that the reference draws from"
_ADDED = "the ONNX model draws random numbers for it, and the reference does not"
_EQUAL = "equal numbers, or almost equal ones, may be found in any order"
_UNSET = "nothing was written to its memory"


class Judge:
    """Knows what may differ between the two sides.

    Attributes:
        allows: whether numbers pass.
        shared: names of the values of the ONNX graph that it shall take from the reference, as
            either side may choose them.
    """

    def __init__(self, setting: Setting, allows: Allows, *, alone: bool = False) -> None:
        """Look for what either side chooses.

        Args:
            setting: what is compared.
            allows: whether a value passes.
            alone: whether each node is given all values of the reference.
        """
        self.allows = allows
        self._origins = setting.reference.origins
        self._chance: Chance = setting.reference.chance
        own = chance_of_model(setting.onnx)
        random = own.dependent()
        chance, drawn = self._chance, self._chance.drawn
        keys = {origin.key for origin in self._origins.values()}
        # Numbers in any order are one choice with their places.
        apart = {
            name
            for one in chance.unordered
            if not one.pairs(keys)
            for name in one.numbers | one.places
        }
        self._dims = {name: one.dim for one in chance.unordered for name in one.numbers}
        choices = (chance.unset | chance.places.keys() | self._dims.keys()) - apart
        self.shared = frozenset(
            name
            for name, origin in self._origins.items()
            if (name in random if origin.key in drawn else origin.key in choices)
            or name in own.places
        )
        given = self._origins.keys() if alone else self.shared
        self._open = own.dependent(given)
        self._loose = chance.dependent({self._origins[name].key for name in given}, apart) - apart
        drawn_of_loose = {
            name
            for step in chance.steps
            if step.draws and not step.read.isdisjoint(self._loose)
            for name in step.made
        }
        self._bounds = {k: b for k, b in chance.bounds.items() if k not in drawn_of_loose}
        self._random = random
        self._places = own.places

    def needs(self, key: str) -> tuple[str, ...]:
        """Names of the reference's values without which one cannot be judged, its own first."""
        places = self._chance.places.get(key)
        return (key,) if places is None else (key, places.numbers)

    def numbers(self, name: str) -> str:
        """Name of the ONNX value that holds what a value tells places of; ``""`` for others.

        Where the reference does not say of which numbers it tells places, as a module does not.
        """
        known = self._origins[name].key in self._chance.places
        return "" if known or name not in self._places else self._places[name].numbers

    def __call__(
        self,
        name: str,
        held: Mapping[str, torch.Tensor],
        got: torch.Tensor | None,
        difference: Discrepancy,
        numbers: torch.Tensor | None = None,
    ) -> tuple[Kind, str]:
        """The verdict on a value of the ONNX graph, and why, where the numbers do not say it.

        Args:
            name: of the value.
            held: the reference's values that it `needs`, by their names.
            got: what the ONNX model has; ``None`` if it could not be computed.
            difference: between the two.
            numbers: the ONNX model's, that it tells places of.
        """
        key = self._origins[name].key
        if got is None:
            return "failed", ""
        if difference.reason is not None:  # another shape or dtype is a fault whatever is drawn
            return "differs", ""
        if key in self._chance.drawn:
            return self._drawn(name, held[key], got)
        if key in self._loose:
            return "incomparable", _APART if name in self._open else _OTHER
        if self.allows(held[key], difference):
            return "equal", ""
        if self._as_good(name, held, got, numbers):
            return "random", _EQUAL
        if key in self._chance.unset:
            return "random", _UNSET
        return "differs", _ADDED if name in self._open else ""

    def _drawn(self, name: str, expected: torch.Tensor, got: torch.Tensor) -> tuple[Kind, str]:
        """The verdict on a value that the reference draws at random."""
        if name not in self._random:
            return "differs", _BAKED
        bounds = self._bounds.get(self._origins[name].key)
        fair = bounds is None or may_be_drawn(expected, got, bounds, self.allows)
        return ("random", _DRAWN) if fair else ("differs", _ELSE)

    def _as_good(
        self,
        name: str,
        held: Mapping[str, torch.Tensor],
        got: torch.Tensor,
        numbers: torch.Tensor | None,
    ) -> bool:
        key = self._origins[name].key
        places, dim = self._chance.places.get(key), self._dims.get(key)
        if places is not None:
            numbers = held.get(places.numbers)
        elif numbers is not None:
            places = self._places[name]
        if places is not None:
            return numbers is not None and as_good(places, numbers, held[key], got, self.allows)
        if dim is None:
            return False
        one, other = held[key].sort(dim).values, got.sort(dim).values
        return self.allows(one, difference_of(one, other))
