"""Run a program beside its model at sizes that break what it takes for granted.

That both agree there proves little by itself: a mask of ones masks nothing. So they get values
unlike the recorded ones too, and other sizes; and where the model runs code of the user's that it
runs at no usual size, nothing is proven, as that code may ask for more: ``if n == 1`` and then
``if m > 50``.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer.trial.agreement import compare_calls, run_program
from torchferry.capturer.trial.asked import asked_otherwise
from torchferry.capturer.trial.behaviour import MOST, Behaviour, count_numbers
from torchferry.capturer.trial.instructions import first_line
from torchferry.capturer.trial.reliance import run_model
from torchferry.dims import Condition
from torchferry.judge import Verdict, worst_verdict
from torchferry.observer import Observation
from torchferry.observer.naming import unaliased
from torchferry.observer.observation import Call
from torchferry.observer.sets import Arguments
from torchferry.observer.tree import leaves_of, program_inputs, replace_leaves
from torchferry.observer.unlike import raised, scaled, special_values, unlike, with_numbers
from torchferry.values.clone import clone
from torchferry.values.flatten import Path
from torchferry.values.kinds import attempt

__all__ = ["Trial", "other_line"]

_ONLY_THERE = "at other sizes the model never runs "
_OTHERWISE = "at other sizes the model asks otherwise in "

_LARGE = ((31, 1), (31, 4), (0, 8))  # sizes beside those that break a condition: more by, times
_BEYOND = 6  # numbers of the user's code that sizes beyond are tried of


class Trial:
    """A model, and a program that was captured from it."""

    def __init__(
        self,
        model: torch.nn.Module,
        seen: Observation,
        program: ExportedProgram,
        conditions: Sequence[Condition],
        *,
        joined: Collection[str] = (),
        decided: Collection[tuple[str, int]] = (),
    ) -> None:
        """Prepare.

        Args:
            model: the original.
            seen: its observation.
            program: as it was captured.
            conditions: what it takes for granted of sizes.
            joined: as `torchferry.capturer.Captured` has it.
            decided: the same; sizes are not why these lines run.
        """
        self.model = model
        self.seen = seen
        self.program = program
        self.conditions = tuple(conditions)
        self.joined = joined
        self._code = Behaviour(self.call, model, seen, conditions, decided)

    def recorded(self, kept: Collection[Condition]) -> Verdict:
        """The worst verdict on the recorded calls that the program accepts.

        Args:
            kept: the conditions that it checks.
        """
        calls = [
            call
            for call in self.seen.calls
            if not any(one.broken_by(self.seen.sizes_of(call)) for one in kept)
        ]
        inputs = [(call, self.seen.normalized(call)) for call in calls]
        ran = [
            self.call(given) if call.outputs is None else Call(*given, call.outputs)
            for call, given in inputs
            if _fits(self.program, given)
        ]
        return worst_verdict(self.judged(call) for call in ran if call is not None)

    def at(self, sizes: dict[str, int]) -> Verdict | None:
        """The verdict on calls of sizes that break conditions; ``None`` where the model fails."""
        inputs, _error = attempt(self.seen.inputs_at, sizes)
        call = None if inputs is None else self.call(inputs)
        if call is None:
            return None
        verdict = self.judged(call)
        return self.of((call.args, call.kwargs), sizes) if verdict.ok else verdict

    def of(self, inputs: Arguments, sizes: dict[str, int]) -> Verdict:
        """The verdict on calls like one that breaks conditions, and was found right itself.

        Where other code runs, `other_line` has the line.
        """
        broken = [one for one in self.conditions if one.broken_by(sizes)]
        found = self._verdicts(unlike(inputs))
        ran, asked = self._code.run(inputs)
        if ran:
            known = self._code.instructions_elsewhere(broken)
            if other := ran - known:  # custom operators are the same code in the program
                other -= self._code.watch(partial(attempt, self.run_program, inputs))
            if other:
                return Verdict("failed", evidence=_ONLY_THERE + first_line(other))
            elsewhere = self._code.asked_elsewhere(broken)
            follows = partial(self._follows, inputs, [given for given, _ in elsewhere])
            if one := asked_otherwise(asked, [calls for _, calls in elsewhere], follows):
                return Verdict("failed", evidence=_OTHERWISE + first_line([one]))
            if ran != known:  # what is left out may do nothing to such values
                found += self._verdicts(special_values(inputs))
            if not all(one.choice for one in broken):  # a table may stand in place of an ``if``
                recorded = [self.seen.normalized(call) for call in self.seen.calls]
                found += self._verdicts([*scaled(inputs), *raised(inputs, recorded)])
            # A program that refuses large sizes is not wrong there.
            larger = (
                *_larger(self.conditions, sizes, broken),
                *self._beyond_numbers(sizes, broken),
            )
            found += [verdict for large in larger
                      for verdict in self._only_there(large, broken)]  # fmt: skip
        return worst_verdict(found)

    def _follows(
        self, inputs: Arguments, others: Sequence[Arguments], number: int, known: Mapping[int, int]
    ) -> bool:
        """Whether a size that the program computes is this number here, and what it is in others.

        Args:
            inputs: of the call.
            others: those of other calls.
            number: in the call.
            known: the place of another call → the number there.
        """
        here = self._sizes(inputs)
        there = [(self._sizes(others[place]), value) for place, value in known.items()]
        return any(
            size == number and all(sizes[place] == value for sizes, value in there)
            for place, size in enumerate(here)
        )

    def _sizes(self, inputs: Arguments) -> list[Any]:
        """The sizes that the program computes, at those of a call."""
        leaves = {unaliased(path): leaf for path, leaf in leaves_of(*inputs).items()}
        known: dict[Any, int] = {}
        for path, node in program_inputs(self.program):
            expected, given = node.meta["val"], leaves.get(unaliased(path))
            pairs = [(expected, given)]
            if isinstance(expected, torch.Tensor) and isinstance(given, torch.Tensor):
                pairs = [*zip(expected.shape, given.shape, strict=False)]
            known |= {one.node.expr: size for one, size in pairs if isinstance(one, torch.SymInt)}
        return [one.subs(known) for one in self._computed]

    @cached_property
    def _computed(self) -> list[Any]:
        """The expressions of sizes in the program."""
        values = [node.meta.get("val") for node in self.program.graph.nodes]
        sizes = [size for one in values if isinstance(one, torch.Tensor) for size in one.shape]
        return list({one.node.expr: None for one in (*values, *sizes)
                     if isinstance(one, torch.SymInt)})  # fmt: skip

    def of_other_values(self, inputs: Arguments) -> Verdict:
        """The verdict on a call with other values, and at sizes beyond the code's numbers.

        For a model that runs other code than the program was made of.

        Args:
            inputs: of a call that was found right.
        """
        recorded = [self.seen.normalized(call) for call in self.seen.calls]
        values = (
            unlike(inputs), special_values(inputs), scaled(inputs), raised(inputs, recorded),
            _with_integers(self.program, inputs, self._code.numbers[:_BEYOND]),
        )  # fmt: skip
        found = self._verdicts(itertools.chain(*values))
        # Where values equal a number, rounding would make another of them.
        exact = with_numbers(inputs, sorted(self._code.collect_asked(inputs).numbers))
        calls = map(self.call, exact)
        found += [self.judged(call, exact=True) for call in calls if call is not None]
        for large in self._beyond_numbers(self.seen.sizes_of(self.seen.best), ()):
            found += self._only_there(large, ())
        return worst_verdict(found)

    def _only_there(self, large: dict[str, int], broken: Sequence[Condition]) -> Iterator[Verdict]:
        """The verdict at large sizes, if that differs and that at others as large does not."""
        others = [one for one in self.conditions if one not in broken and one.broken_by(large)]
        inputs, error = attempt(self.seen.inputs_at, large)
        if error is not None or count_numbers(inputs) > MOST:
            return
        for verdict in self._verdicts([inputs]):
            if verdict.kind == "differs" and not (others and self._differs(large, broken)):
                yield verdict

    def _differs(self, large: dict[str, int], broken: Sequence[Condition]) -> bool:
        """Whether the program is wrong at large sizes that break other conditions alone."""
        usual = self.seen.sizes_of(self.seen.best)
        names = {name for one in broken for name in one.names}
        sizes = {name: max(2, usual.get(name, 2)) if name in names else size
                 for name, size in large.items()}  # fmt: skip
        inputs, error = attempt(self.seen.inputs_at, sizes)
        found = [] if error is not None else self._verdicts([inputs])
        return any(verdict.kind == "differs" for verdict in found)

    def _verdicts(self, inputs: Iterable[Arguments]) -> list[Verdict]:
        calls = map(self.call, inputs)
        return [self.judged(call, made=True) for call in calls if call is not None]

    def _beyond_numbers(
        self, sizes: dict[str, int], broken: Sequence[Condition]
    ) -> Iterator[dict[str, int]]:
        """Sizes just beyond a number of the user's code, as the length of a window is."""
        names = {name for one in broken for name in one.names}
        beyond = (
            {**sizes, name: number + 1}
            for number in self._code.numbers
            for name, size in sizes.items()
            if name not in names and size <= number
        )
        legal = (large for large in beyond if _breaks_no_other(self.conditions, large, broken))
        yield from itertools.islice(legal, _BEYOND)

    def run_program(self, inputs: Arguments) -> Any:
        """What the program returns.

        Raises:
            Exception: what it raises at sizes that it was not captured for.
        """
        return run_program(self.program, *inputs)

    def call(self, inputs: Arguments) -> Call | None:
        """A call of the model; ``None`` if it fails."""
        # Code of users may fail in any way at sizes that were made up.
        outputs, error = attempt(run_model, self.model, clone(inputs))
        return None if error else Call(*inputs, outputs)

    def judged(self, call: Call, *, made: bool = False, exact: bool = False) -> Verdict:
        """The verdict on the program, beside what the model returned.

        Args:
            call: as the model ran it.
            made: as `compare_calls` has it.
            exact: whether no difference is forgiven for what rounding does to the model.
        """
        seen = replace(self.seen, calls=[call])
        model = None if exact else self.model
        # A model may return nothing, and then there is nothing to compare.
        checks = compare_calls(self.program, seen, self.joined, model=model, made=made)
        return worst_verdict(check.verdict for check in checks)


def _fits(program: ExportedProgram, inputs: Arguments) -> bool:
    """Whether sizes and integers that are constant in the program, or equal, are so here."""
    leaves = {unaliased(path): leaf for path, leaf in leaves_of(*inputs).items()}
    sizes: dict[str, int] = {}
    nodes = list(program_inputs(program))
    example: Arguments = program.example_inputs or ((), {})
    known = {unaliased(path): leaf for path, leaf in leaves_of(*example).items()}
    for path in known.keys() - {unaliased(path) for path, _ in nodes}:
        if isinstance(known[path], int) and leaves.get(path, known[path]) != known[path]:
            return False
    for path, node in nodes:
        expected, got = node.meta["val"], leaves.get(unaliased(path))
        if isinstance(expected, torch.Tensor) and isinstance(got, torch.Tensor):
            # A symbol that torch found to be a constant still stands there as a symbol.
            for size, given in zip(map(str, expected.shape), got.shape, strict=False):
                constant = int(size) if size.isdecimal() else given
                if constant != given or sizes.setdefault(size, given) != given:
                    return False
    return True


def _larger(
    conditions: Sequence[Condition], sizes: dict[str, int], broken: Sequence[Condition]
) -> Iterator[dict[str, int]]:
    """Large sizes that break the same conditions, and others only that may be dropped too.

    Of two conditions that make no difference each, both together may make one.
    """
    names = {name for one in broken for name in one.names}
    # All names grow as well where that keeps a difference, or a ratio, of two sizes.
    for fixed in [names] if len(names) < 2 else [names, set[str]()]:
        for more, times in _LARGE:
            large = {
                name: size if name in fixed else size * times + more
                for name, size in sizes.items()
            }
            if (
                large != sizes
                and _breaks_no_other(conditions, large, broken)
                and (fixed or any(one.broken_by(large) for one in broken))
            ):
                yield large
                break


def _with_integers(
    program: ExportedProgram, inputs: Arguments, numbers: Iterable[int]
) -> Iterator[Arguments]:
    """The same arguments with integers, where a program takes any, beyond some numbers."""
    places = {unaliased(path) for path, node in program_inputs(program)
              if isinstance(node.meta["val"], torch.SymInt)}  # fmt: skip

    def change(path: Path, leaf: Any, *, number: int) -> Any:
        return number + 1 if unaliased(path) in places else leaf

    for number in numbers if places else ():
        yield replace_leaves(*inputs, change=partial(change, number=number))


def _breaks_no_other(
    conditions: Sequence[Condition], sizes: dict[str, int], broken: Sequence[Condition]
) -> bool:
    """Whether sizes break none but these conditions, and such as may be dropped too."""
    return not any(
        one.broken_by(sizes)
        for one in conditions
        if one not in broken and one.matters and not one.choice
    )


def other_line(evidence: str) -> str:
    """The user's line that runs only where conditions are broken, of a verdict's evidence."""
    said = next(filter(evidence.startswith, (_ONLY_THERE, _OTHERWISE)), None)
    return evidence.removeprefix(said) if said else ""
