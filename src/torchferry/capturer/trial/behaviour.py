"""Which code of a model's runs at which sizes, and what it asks of torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property

import torch

from torchferry.capturer.state.outside import caches_of
from torchferry.capturer.trial.asked import Asked, Calls
from torchferry.capturer.trial.instructions import Instruction, line_of, run_instructions
from torchferry.dims import Condition
from torchferry.observer import Observation
from torchferry.observer.sets import Arguments
from torchferry.observer.tree import leaves_of
from torchferry.observer.unlike import unlike
from torchferry.values.kinds import attempt

__all__ = ["MOST", "Behaviour", "count_numbers", "usual_sizes"]

_NUMBERS = range(16, 4097)  # of the user's code: sizes beyond them are tried
_OTHERS = ((1, 1), (1, 2), (2, 0), (3, 0))  # sizes beside the usual ones: more by, times
MOST = 2**20  # numbers in the inputs of a call, which is to take little time
_Ran = tuple[set[Instruction], Calls]


class Behaviour:
    """A model's code, run at sizes that are usual and at others."""

    def __init__(
        self,
        call: Callable[[Arguments], object],
        model: torch.nn.Module,
        seen: Observation,
        conditions: Sequence[Condition],
        decided: Collection[tuple[str, int]],
    ) -> None:
        """Prepare.

        Args:
            call: calls the model, and tells of no error.
            model: whose code it is.
            seen: its observation.
            conditions: what its program takes for granted of sizes.
            decided: file and number of the lines that do not run because of sizes.
        """
        self._call = call
        self._model = model
        self._seen = seen
        self._conditions = conditions
        self._decided = decided
        self._caches = caches_of(model)

    @cached_property
    def numbers(self) -> list[int]:
        """Numbers in the user's code that runs, and in attributes of its modules."""
        codes = {code for _, _, (instructions, _) in self._usual for code, _ in instructions}
        values = [constant for code in codes for constant in code.co_consts]
        for module in self._model.modules():
            forward = getattr(type(module), "forward", None)  # torch.jit.trace's has none
            if getattr(forward, "__code__", None) in codes:
                values += vars(module).values()
        inside = [inner for one in values
                  for inner in (one if isinstance(one, (tuple, list)) else [one])]  # fmt: skip
        return sorted({abs(one) for one in inside if type(one) is int and abs(one) in _NUMBERS})

    def instructions_elsewhere(self, broken: Sequence[Condition]) -> set[Instruction]:
        """Collect the instructions of all usual calls that break none of these conditions.

        The captured call counts always, even if a doubt excludes its sizes.
        """
        found: set[Instruction] = set()
        for sizes, _, (instructions, _) in self._usual:
            if sizes is None or not any(one.broken_by(sizes) for one in broken):
                found |= instructions
        return found

    def asked_elsewhere(self, broken: Sequence[Condition]) -> list[tuple[Arguments, Calls]]:
        """Other calls, usual and larger ones, and what is asked in them, as for instructions."""
        return [
            (inputs, asked)
            for sizes, inputs, (_, asked) in (*self._usual, *self._others)
            if sizes is None or not any(one.broken_by(sizes) for one in broken)
        ]

    @cached_property
    def _usual(self) -> list[tuple[dict[str, int] | None, Arguments, _Ran]]:
        """What runs in each recorded call, and in a call without a size of 0 or 1, by its sizes.

        The sizes of the captured call are ``None``.
        """
        seen = self._seen
        calls: list[tuple[dict[str, int] | None, Arguments]] = [
            (None if call is seen.best else seen.sizes_of(call), seen.normalized(call))
            for call in seen.calls
        ]
        usual = usual_sizes(seen)
        inputs, error = attempt(seen.inputs_at, usual)
        calls += [(usual, inputs)] if error is None else []
        return [(sizes, given, self.run(given)) for sizes, given in calls]

    @cached_property
    def _others(self) -> list[tuple[dict[str, int], Arguments, _Ran]]:
        """The same of calls of other sizes, where these are legal, and of other values."""
        usual = usual_sizes(self._seen)
        grown = [{name: size * times + more for name, size in usual.items()}
                 for more, times in _OTHERS]  # fmt: skip
        made = [(sizes, attempt(self._seen.inputs_at, sizes)) for sizes in grown]
        found = [(sizes, inputs, self.run(inputs)) for sizes, (inputs, error) in made
                 if error is None and count_numbers(inputs) <= MOST
                 and not any(one.broken_by(sizes) for one in self._conditions)]  # fmt: skip
        # A number that depends on data is not a constant either.
        alike = self._seen.normalized(self._seen.best)
        return found + [(usual, inputs, self.run(inputs)) for inputs in unlike(alike)]

    def run(self, inputs: Arguments) -> _Ran:
        """Which instructions of the user's code the model runs, and what they ask of torch."""
        asked: list[Asked] = []
        found = self.watch(lambda: asked.append(self.collect_asked(inputs)))
        calls = asked[0].calls
        return found, {way: said for way, said in calls.items() if self._counts(way[0])}

    def collect_asked(self, inputs: Arguments) -> Asked:
        """The functions of torch that the model's code calls, and the constants they get."""
        asked = Asked(self._model)
        with asked:
            self._call(inputs)
        return asked

    def watch(self, run: Callable[[], object]) -> set[Instruction]:
        """The instructions that a function runs."""
        self._forget()
        with run_instructions() as found:
            run()
        return {one for one in found if self._counts(one)}

    def _forget(self) -> None:
        for function in self._caches:  # what is remembered runs no instruction
            function.cache_clear()

    def _counts(self, instruction: Instruction) -> bool:
        return not self._decided or line_of(*instruction) not in self._decided


def usual_sizes(seen: Observation) -> dict[str, int]:
    """The sizes of the call that was captured, with 2 in place of 0 and 1."""
    return {name: max(2, size) for name, size in seen.sizes_of(seen.best).items()}


def count_numbers(inputs: Arguments) -> int:
    """How many numbers there are in the tensors of a call."""
    leaves = leaves_of(*inputs).values()
    return sum(leaf.numel() for leaf in leaves if isinstance(leaf, torch.Tensor))
