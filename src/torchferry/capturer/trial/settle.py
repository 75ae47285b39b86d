"""Guards that hold for all sizes but 0 and 1: whether the program is right there all the same.

``torch.export`` asks of every size whether it is 0 or 1, since a 1 may be broadcast, and a decoder
asks whether there is one token, to leave out a mask. Mostly both ways compute the same; then the
guard only keeps users from a batch or a step of one. The model and the program are run there.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer.result import Captured
from torchferry.capturer.trial.agreement import load_program
from torchferry.capturer.trial.behaviour import usual_sizes
from torchferry.capturer.trial.reliance import find_reliances
from torchferry.capturer.trial.trial import Trial, other_line
from torchferry.dims import Condition, Size, evaluate, names_in, parse_size, solve_renaming
from torchferry.judge import Verdict
from torchferry.judge.apart import Apart, Ended, Note, can_fork
from torchferry.observer import Observation
from torchferry.observer.conditions import read_guards
from torchferry.observer.naming import unaliased
from torchferry.observer.tree import input_sizes, leaves_of, program_inputs
from torchferry.seams.pytorch import FakeTensor, guards_of, set_guards

__all__ = ["settle_guards", "size_names"]

_TRIED = 4  # sets of sizes of 0 and 1 a guard
_SMALL = (2, 3, 4, 5, 7, 8)  # sizes that break a condition on a computed size
_SMALL_TRIED = 2
_NEGATIVE = (-1, -3)  # integers that break a condition
_PAIRS = 4  # other names that are 1 or 0 beside one of a guard
_SECONDS = 60.0  # for each


def settle_guards(model: torch.nn.Module, seen: Observation, captured: Captured) -> Captured:
    """Run a program where a guard excludes sizes of 0 and 1 alone, beside the model.

    Guards that make no difference are taken from the program, and doubts that do are added to it,
    so that ``program.module()`` and all that is converted from it accept what is right. A program
    that is wrong for the call it was captured with is unproven. Both run in a copy of this process
    if one can be made, as made sizes may end it.

    Args:
        model: what was captured.
        seen: its observation.
        captured: changed in place as far as the guards of its program go.
    """
    program = captured.program
    if not _has_data(model, seen):  # torch's own guards are all there is
        return replace(captured, doubts=())
    guards = [*guards_of(program), *captured.doubts]
    named = size_names(captured, seen)
    read = read_guards(program, named, guards)
    conditions = [condition for found in read.values() for condition in found]
    trial = Trial(
        model, seen, program, conditions, joined=captured.joined, decided=captured.decided
    )

    def judge(question: Question, _: Note) -> Verdict | None:
        return trial.at(question) if isinstance(question, dict) else trial.recorded(question)

    floors = _floors(program, named)
    if conditions or floors:
        load_program(program)  # once for all copies of this process
    with _asking(judge, model) as ask:
        computed = _computed_sizes(program, named)
        needed = functools.cache(lambda condition: _needed(condition, seen, computed, ask))
        kept = _needed_alone(read, needed)
        for symbol in [one for one, floor in floors.items() if needed(floor) is None]:
            del program.range_constraints[symbol]
        together = _needed_together(read, kept, seen, ask)
        read |= read_guards(program, named, together)
        kept |= together
        right = ask(tuple(condition for guard in kept for condition in read[guard]))
    set_guards(program, [*kept])
    found = find_reliances(model, seen, captured.traced, trial)
    lines = {guard: captured.lines.get(guard) or line for guard, line in kept.items()}
    return replace(
        captured, doubts=(), lines={**captured.lines, **lines}, relies=found.asked,
        unproven=_why_wrong(right) or found.unmet,
    )  # fmt: skip


def _why_wrong(recorded: Verdict | None) -> str:
    """Why a program is wrong for a call that was recorded; ``""`` if it is not."""
    if recorded is None or recorded.kind not in ("differs", "failed"):
        return ""
    said = recorded.evidence or recorded.numbers
    return f"the program is wrong for a call that was recorded: {said}"


def _has_data(model: torch.nn.Module, seen: Observation) -> bool:
    """Whether there are numbers to compute with, and no fake or meta tensors."""
    args, kwargs = seen.normalized(seen.best)
    leaves = leaves_of(args, kwargs).values()
    tensors = [*model.parameters(), *model.buffers(), *leaves]
    return not any(
        one.is_meta or isinstance(one, FakeTensor)
        for one in tensors
        if isinstance(one, torch.Tensor)
    )


def _floors(program: ExportedProgram, named: Callable[[str], str]) -> dict[Any, Condition]:
    """Integers that torch takes for sizes, none of which is negative, by their symbols."""
    values = (node.meta["val"] for _, node in program_inputs(program))
    symbols = (one.node.expr for one in values if isinstance(one, torch.SymInt))
    ranges = {one: program.range_constraints.get(one) for one in symbols}
    return {
        one: Condition("n0 >= 0", (named(str(one)),))
        for one, limits in ranges.items()
        if limits is not None and limits.lower == 0 and not limits.upper.is_Integer
    }


Question = dict[str, int] | tuple[Condition, ...]
"""Sizes to try, or the conditions that the program keeps."""

_Place = tuple[str, int]  # a name and its size
Ask = Callable[[Question], Verdict | None]
"""The verdict on the program at sizes, or on recorded calls; ``None`` where the model fails."""


@contextmanager
def _asking(
    judge: Callable[[Question, Note], Verdict | None], model: torch.nn.Module
) -> Iterator[Ask]:
    known: dict[object, Verdict | None] = {}  # many guards are broken by the same sizes
    with Apart(judge, forks=can_fork(model)) as apart:

        def ask(question: Question) -> Verdict | None:
            key = frozenset(question.items()) if isinstance(question, dict) else question
            if key not in known:
                answer = apart.ask(question, _SECONDS)
                ended = isinstance(answer, Ended)
                known[key] = Verdict("failed", evidence=answer.reason) if ended else answer
            return known[key]

        yield ask


def size_names(captured: Captured, seen: Observation) -> Callable[[str], str]:
    """A size in torch's symbols to the same in the names of the observation."""
    nodes = {unaliased(path): node for path, node in program_inputs(captured.program)}
    sizes = [
        (argument.name, parse_size(str(input_sizes(node)[axis.index])), axis.size)
        for argument in seen.arguments
        if (node := nodes.get(unaliased(argument.path))) is not None
        for axis in argument.sizes
    ]
    renaming = solve_renaming(sizes)
    return lambda text: str(renaming.apply(parse_size(text)))


def _needed(
    condition: Condition, seen: Observation, computed: Sequence[Size], ask: Ask
) -> str | None:
    """The line that makes a difference at sizes that break a condition; ``""`` where unknown.

    ``None`` where the program computes what the model does.
    """
    if condition.matters:
        return ""
    tried = _breaking(condition, seen)
    if not all(_are_possible(computed, sizes) for sizes in tried):
        return ""
    answers = [ask(sizes) for sizes in tried]
    known = [verdict for verdict in answers if verdict is not None]
    if known and all(verdict.ok for verdict in known):
        return None
    return next(filter(None, (other_line(one.evidence) for one in known)), "")


def _needed_alone(
    read: Mapping[str, Sequence[Condition]], needed: Callable[[Condition], str | None]
) -> dict[str, str]:
    """Guards that make a difference, or cannot be read, and the line that does."""
    reasons = {guard: [why for one in said if (why := needed(one)) is not None]
               for guard, said in read.items()}  # fmt: skip
    return {guard: next(filter(None, why), "") for guard, why in reasons.items()
            if why or not read[guard]}  # fmt: skip


def _needed_together(
    read: Mapping[str, Sequence[Condition]], kept: Collection[str], seen: Observation, ask: Ask
) -> dict[str, str]:
    """Guards of which one must hold, as all broken at once make a difference; and its line."""
    usual = usual_sizes(seen)
    found: dict[str, str] = {}
    least: list[set[_Place]] = []

    def broken(place: _Place, among: Iterable[str]) -> list[str]:
        sizes = {**usual, place[0]: place[1]}
        return [guard for guard in among if any(one.broken_by(sizes) for one in read[guard])]

    def differs(places: Iterable[_Place]) -> Verdict | None:
        verdict = ask({**usual, **dict(places)})
        return None if verdict is None or verdict.ok else verdict

    left = [guard for guard in read if guard not in kept]
    alone = {(name, size): broken((name, size), left) for name in usual for size in (1, 0)}
    free = [place for place, guards in alone.items() if guards and not broken(place, kept)]
    pairs = [[place, (name, size)] for place in free for size in (1, 0)
             for name in _neighbours_first(place[0], seen, usual)[:_PAIRS]]  # fmt: skip
    left_to_try = [*([one for one in free if one[1] == size] for size in (1, 0)), *pairs]
    while left_to_try:
        places = left_to_try.pop(0)
        if len(places) < 2 or any(one <= {*places} for one in least):
            continue
        if (verdict := differs(places)) is None:
            continue
        fewest = list(places)
        for place in places:
            if again := differs(one for one in fewest if one != place):
                fewest, verdict = [one for one in fewest if one != place], again
        least.append({*fewest})
        if guards := [alone[place][0] for place in fewest if place in free]:
            found[" or ".join(f"({guard})" for guard in guards)] = other_line(verdict.evidence)
        left_to_try.insert(0, [one for one in places if one != fewest[-1]])
    return found


def _neighbours_first(place: str, seen: Observation, names: Iterable[str]) -> list[str]:
    """Other names, those first that an argument has beside this one."""
    beside = [one for argument in seen.arguments if place in argument.names
              for one in argument.names]  # fmt: skip
    names = [*names]
    found = dict.fromkeys([*(name for name in beside if name in names), *names])
    return [name for name in found if name != place]


def _breaking(condition: Condition, seen: Observation) -> list[dict[str, int]]:
    """Sizes that break a condition: recorded ones, negative integers, 0 and 1, then small ones."""
    usual = usual_sizes(seen)
    names = sorted(condition.names)
    if not set(names) <= usual.keys():
        return []
    # What was recorded, then what an index may be.
    recorded = (seen.sizes_of(call) for call in seen.calls)
    integers = {str(one.integer.size) for one in seen.arguments if one.integer is not None}
    negative = ({**usual, name: size} for name in names if name in integers for size in _NEGATIVE)
    # None changed at first: ``n == 1`` holds for no usual size.
    least = (
        {**usual, **dict(zip(chosen, small, strict=True))}
        for count in range(len(names) + 1)
        for chosen in itertools.combinations(names, count)
        for small in itertools.product((1, 0), repeat=count)
    )
    small = ({**usual, name: size} for name in names for size in reversed(_SMALL))
    return [
        sizes
        for tried, most in (
            (recorded, _TRIED),
            (negative, _TRIED),
            (least, _TRIED),
            (small, _SMALL_TRIED),
        )
        for sizes in itertools.islice((one for one in tried if not condition.holds(one)), most)
    ]


def _computed_sizes(program: ExportedProgram, named: Callable[[str], str]) -> list[Size]:
    """The sizes of a program's values from which something is subtracted."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    texts = {text for one in tensors for size in one.shape if "-" in (text := str(size))}
    return [parse_size(named(text)) for text in sorted(texts)]


def _are_possible(computed: Sequence[Size], sizes: dict[str, int]) -> bool:
    """Whether no size of a value is negative: torch takes no part of ``x[2:]`` for cut short."""
    known = (size for size in computed if names_in(size) <= sizes.keys())
    try:
        return all(evaluate(size, sizes) >= 0 for size in known)
    except ZeroDivisionError:
        return False
