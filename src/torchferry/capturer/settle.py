"""Guards that hold for all sizes but 0 and 1: whether the program is right there all the same.

``torch.export`` asks of every size whether it is 0 or 1, since a 1 may be broadcast, and a decoder
asks whether there is one token, to leave out a mask. Mostly both ways compute the same; then the
guard only keeps users from a batch or a step of one. The model and the program are run there.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from torchferry.capturer.agreement import compare_calls
from torchferry.capturer.reliance import find_reliances, run_model
from torchferry.capturer.result import Captured
from torchferry.dims import Condition, parse_size, solve_renaming
from torchferry.judge import Verdict, worst_verdict
from torchferry.judge.apart import Apart, Ended, Note, can_fork
from torchferry.observer import Observation
from torchferry.observer.guards import read_guards
from torchferry.observer.naming import unaliased
from torchferry.observer.observation import Call
from torchferry.observer.sets import Arguments
from torchferry.observer.tree import input_sizes, leaves_of, program_inputs
from torchferry.observer.unlike import unlike
from torchferry.seams.pytorch import FakeTensor, guards_of, set_guards
from torchferry.values.clone import clone
from torchferry.values.kinds import attempt

__all__ = ["settle_guards"]

_TRIED = 4  # sets of sizes a guard
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
    read = read_guards(program, _names(captured, seen), guards)
    conditions = [condition for found in read.values() for condition in found]
    kept = []
    with _asking(_Trial(model, seen, captured, conditions), model) as ask:
        right = ask(None)
        is_needless = functools.cache(lambda condition: _is_needless(condition, seen, ask))
        for guard, said in read.items():
            if not said or not all(map(is_needless, said)):
                kept.append(guard)
    set_guards(program, kept)
    found = find_reliances(model, seen)
    unproven = found.unmet
    if right is not None and right.kind in ("differs", "failed"):
        why = right.evidence or right.numbers
        unproven = f"the program is wrong for a call that was recorded: {why}"
    return replace(captured, doubts=(), relies=found.asked, unproven=unproven)


class _Trial:
    """Runs model and program beside each other."""

    def __init__(
        self,
        model: torch.nn.Module,
        seen: Observation,
        captured: Captured,
        conditions: Sequence[Condition],
    ) -> None:
        self.model = model
        self.seen = seen
        self.captured = captured
        self.conditions = conditions

    def __call__(self, sizes: dict[str, int] | None, _: Note) -> Verdict | None:
        """The verdict at sizes; at ``None`` on the recorded calls that meet the conditions."""
        if sizes is None:
            return worst_verdict(map(self._judged, self._recorded()))
        inputs, _error = attempt(self.seen.inputs_at, sizes)
        call = None if inputs is None else self._run(inputs)
        if call is None:
            return None
        verdict = self._judged(call)
        for other in unlike((call.args, call.kwargs)) if verdict.ok else ():
            if (call := self._run(other)) is not None:
                verdict = worst_verdict([verdict, self._judged(call)])
        return verdict

    def _recorded(self) -> Iterator[Call]:
        for call in self.seen.calls:
            sizes, inputs = self.seen.sizes_of(call), self.seen.normalized(call)
            if any(condition.broken_by(sizes) for condition in self.conditions):
                continue
            found = self._run(inputs) if call.outputs is None else Call(*inputs, call.outputs)
            if found is not None:
                yield found

    def _run(self, inputs: Arguments) -> Call | None:
        # Code of users may fail in any way at sizes that were made up.
        outputs, error = attempt(run_model, self.model, clone(inputs))
        return None if error else Call(*inputs, outputs)

    def _judged(self, call: Call) -> Verdict:
        made = replace(self.seen, calls=[call])
        captured = self.captured
        (check,) = compare_calls(captured.program, made, captured.joined, model=self.model)
        return check.verdict


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


Ask = Callable[[dict[str, int] | None], Verdict | None]
"""The verdict on the program at sizes, or on recorded calls; ``None`` where the model fails."""


@contextmanager
def _asking(
    judge: Callable[[dict[str, int] | None, Note], Verdict | None], model: torch.nn.Module
) -> Iterator[Ask]:
    if not can_fork(model):
        yield lambda sizes: judge(sizes, lambda *_: None)
        return
    with Apart(judge) as apart:

        def ask(sizes: dict[str, int] | None) -> Verdict | None:
            answer = apart.ask(sizes, _SECONDS)
            ended = isinstance(answer, Ended)
            return Verdict("failed", evidence=answer.reason) if ended else answer

        yield ask


def _names(captured: Captured, seen: Observation) -> Callable[[str], str]:
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


def _is_needless(condition: Condition, seen: Observation, ask: Ask) -> bool:
    """Whether the program computes what the model does at sizes that break a condition."""
    if condition.matters:
        return False
    answers = [ask(sizes) for sizes in itertools.islice(_breaking(condition, seen), _TRIED)]
    known = [verdict.ok for verdict in answers if verdict is not None]
    return bool(known) and all(known)


def _breaking(condition: Condition, seen: Observation) -> Iterator[dict[str, int]]:
    """Sizes of 0 and 1 that break a condition, those with most others as they were first."""
    usual = {name: max(2, size) for name, size in seen.sizes_of(seen.best).items()}
    names = sorted(condition.names)
    if not set(names) <= usual.keys():
        return
    for count in range(len(names) + 1):  # none at first: ``n == 1`` holds for no usual size
        for chosen in itertools.combinations(names, count):
            for small in itertools.product((1, 0), repeat=count):
                sizes = {**usual, **dict(zip(chosen, small, strict=True))}
                if not condition.holds(sizes):
                    yield sizes
