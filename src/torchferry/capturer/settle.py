"""Guards that hold for all sizes but 0 and 1: whether the program is right there all the same.

``torch.export`` asks of every size whether it is 0 or 1, since a 1 may be broadcast, and a decoder
asks whether there is one token, to leave out a mask. Mostly both ways compute the same; then the
guard only keeps users from a batch or a step of one. The model and the program are run there.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from torchferry.capturer.agreement import compare_calls
from torchferry.capturer.huggingface import accept_aliases
from torchferry.capturer.result import Captured
from torchferry.dims import Condition, parse_size, solve_renaming
from torchferry.judge import Verdict
from torchferry.judge.apart import Apart, Ended, Note, can_fork
from torchferry.observer import Observation
from torchferry.observer.guards import read_guards
from torchferry.observer.naming import unaliased
from torchferry.observer.observation import Call
from torchferry.observer.tree import input_sizes, leaves_of, program_inputs
from torchferry.seams.pytorch import FakeTensor, guards_of
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

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
    named = _names(captured, seen)

    def judge(sizes: dict[str, int], _: Note) -> Verdict | None:
        call = _call(model, seen, sizes)
        if call is None:
            return None
        made = replace(seen, calls=[call])
        (check,) = compare_calls(program, made, captured.joined, model=model)
        return check.verdict

    kept = []
    with _asking(judge, model) as ask:
        right = ask(seen.sizes_of(seen.best))
        is_needless = functools.cache(lambda condition: _is_needless(condition, seen, ask))
        guards = [*guards_of(program), *captured.doubts]
        for guard, conditions in read_guards(program, named, guards).items():
            if not conditions or not all(map(is_needless, conditions)):
                kept.append(guard)
    guards_of(program)[:] = kept
    unproven = ""
    if right is not None and right.kind == "differs":
        unproven = f"the program is wrong for the call it was captured with: {right.numbers}"
    return replace(captured, doubts=(), unproven=unproven)


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


Ask = Callable[[dict[str, int]], Verdict | None]
"""The verdict on the program at sizes; ``None`` where the model takes no such sizes."""


@contextmanager
def _asking(
    judge: Callable[[dict[str, int], Note], Verdict | None], model: torch.nn.Module
) -> Iterator[Ask]:
    if not can_fork(model):
        yield lambda sizes: judge(sizes, lambda *_: None)
        return
    with Apart(judge) as apart:

        def ask(sizes: dict[str, int]) -> Verdict | None:
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


def _call(model: torch.nn.Module, seen: Observation, sizes: dict[str, int]) -> Call | None:
    """A call of a model at sizes, with what it returns; ``None`` where it takes no such sizes."""
    inputs, _ = attempt(seen.inputs_at, sizes)
    if inputs is None:
        return None
    args, kwargs = clone(inputs)
    with (
        torch.no_grad(), random_kept(), buffers_kept(model), disable_fast_paths(),
        warnings.catch_warnings(),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        # Code of users may fail in any way at sizes that were made up.
        outputs, error = attempt(lambda: model(*args, **accept_aliases(model, kwargs)))
    return None if error else Call(inputs[0], inputs[1], outputs)


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
