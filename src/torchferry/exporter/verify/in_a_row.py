"""Lifted state, proven: several calls in a row of the model itself and of the exported one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch

from torchferry.capturer.state.lift import Lifted
from torchferry.errors import RunError, UsageError
from torchferry.exporter.verify.limits import Limits
from torchferry.exporter.verify.sizes import Sizes
from torchferry.exporter.verify.verify import Check, Compared
from torchferry.judge import Reference, Tolerance
from torchferry.observer import Observation
from torchferry.observer.sets import Arguments
from torchferry.observer.unlike import unlike
from torchferry.report.model import Cell, Table
from torchferry.runner import Session
from torchferry.values.clone import clone
from torchferry.values.flatten import Path, path_text
from torchferry.values.kinds import attempt
from torchferry.values.step import LIFTED, Step

__all__ = ["InARow", "problems_in_a_row", "row_table", "verify_in_a_row"]

_LEAST = 3  # calls in a row
_MADE = 3  # sets of sizes that were not recorded


@dataclass(frozen=True)
class InARow:
    """Several calls in a row, from the initial state.

    Attributes:
        title: which calls.
        count: how many.
        outputs: one a tensor of a call's outputs, and one a tensor of the state after the last.
        refused: the original model's reason to refuse one of the calls.
        error: what failed on the side of onnxruntime.
    """

    title: str
    count: int
    outputs: tuple[Compared, ...] = ()
    refused: str | None = None
    error: str | None = None

    @property
    def wrong(self) -> list[Compared]:
        """The outputs that differ."""
        return [one for one in self.outputs if one.kind in ("differs", "failed")]

    @property
    def ok(self) -> bool:
        """Whether something was compared and nothing differs."""
        return self.error is None and bool(self.outputs) and not self.wrong


def verify_in_a_row(
    lifted: Lifted,
    session: Session,
    tolerance: Tolerance,
    checks: Sequence[Check],
    limits: Limits,
) -> tuple[InARow, ...]:
    """Run calls in a row, of recorded sizes and of others, and compare outputs and state.

    Args:
        lifted: the model; the original runs, and keeps its state by itself.
        session: the exported model, which gets its own ``state_next`` as ``state``.
        tolerance: what passes.
        checks: of single calls; the sizes of those that are right are used again.
        limits: where the exported model is right.
    """
    sizes = [one.sizes for one in checks if one.made and one.ok and limits.meets(one.sizes)]
    return tuple(
        _row(lifted, session, tolerance, title, calls)
        for title, calls in _sequences(lifted.seen, sizes)
    )


def _sequences(seen: Observation, made: Iterable[Sizes]) -> Iterator[tuple[str, list[Arguments]]]:
    recorded = [_stateless(seen.normalized(call)) for call in seen.calls]
    yield "as recorded", [*islice(cycle(recorded), max(_LEAST, len(recorded)))]
    best = _stateless(seen.normalized(seen.best))
    yield "one size, other values", [best, *unlike(best)]
    others: dict[str, Arguments] = {}
    for sizes in made:
        inputs, error = attempt(seen.inputs_at, sizes)
        if error is None:  # the state's sizes are not chosen here
            own = {name: size for name, size in sizes.items() if not name.startswith("state_")}
            title = ", ".join(f"{name}={size}" for name, size in own.items())
            others.setdefault(title or "other values", _stateless(inputs))
    for title, inputs in [*others.items()][:_MADE]:
        yield title, [inputs, *unlike(inputs)]
    if len(others) > 1:
        yield "sizes that change", [*islice(cycle(others.values()), _LEAST + 1)]


def _stateless(inputs: Arguments) -> Arguments:
    args, kwargs = inputs
    return args, {name: value for name, value in kwargs.items() if name != LIFTED}


def _row(
    lifted: Lifted, session: Session, tolerance: Tolerance, title: str, calls: list[Arguments]
) -> InARow:
    given = (calls, lifted.initial)

    def call(model: torch.nn.Module, inputs: Any) -> Step:
        return lifted.run_in_a_row(model, *inputs)

    def run() -> Step:
        outputs, state = [], lifted.initial
        for args, kwargs in clone(calls):
            step = session(*args, **kwargs, **{LIFTED: state})
            outputs.append(step.outputs)
            state = step.state_next
        return Step(outputs, state)

    reference = Reference(call, lifted.original, given, tolerance=tolerance)
    _, refused = attempt(lambda: reference.expected)
    if refused is not None:
        said = (str(refused).strip().splitlines() or [""])[0]
        return InARow(title, len(calls), refused=f"{type(refused).__name__}: {said}"[:300])
    try:
        got = run()
    except (RunError, UsageError) as error:
        return InARow(title, len(calls), error=str(error).splitlines()[0][:300])
    compared = tuple(Compared(_name(p), verdict) for p, verdict in reference.judge(got, run))
    return InARow(title, len(calls), compared)


def _name(path: Path) -> str:
    """``call 2: logits``, or ``state_next.tail``."""
    if len(path) < 2:
        return "the structure of the outputs"
    if path[0] == 1:
        return path_text(("state_next", *path[1:]))
    return f"call {int(path[1]) + 1}: {path_text(path[2:]) or 'the output'}"


def row_table(rows: Sequence[InARow]) -> Table:
    """How the calls in a row came out."""
    return Table(
        ("calls in a row", "calls", "max abs", "verdict"),
        tuple((row.title, row.count, _worst(row), _verdict(row)) for row in rows),
        note="From the initial state; the outputs of each call and the last state are compared.",
    )


def _worst(row: InARow) -> str:
    return f"{max((one.difference.abs for one in row.outputs), default=0.0):.2g}"


def _verdict(row: InARow) -> Cell:
    if row.refused is not None:
        return Cell(f"PyTorch refuses them: {row.refused}", "warn")
    if row.error is not None:
        return Cell(f"failed: {row.error}", "bad")
    return Cell("equal", "good") if row.ok else Cell(f"differs: {row.wrong[0].name}", "bad")


def problems_in_a_row(rows: Sequence[InARow]) -> Iterator[str]:
    """A sentence on the rows that are wrong, or that none was compared."""
    wrong = [row for row in rows if row.error is not None or row.wrong]
    for row in wrong[:1]:
        what = f"{row.count} calls in a row ({row.title})"
        more = f"; so do {len(wrong) - 1} more of {len(rows)} such rows" if wrong[1:] else ""
        if row.error is not None:
            yield f"{what} fail in the exported model{more}: {row.error}"
        else:
            one = row.wrong[0]
            yield f"{what} differ from PyTorch in {one.name}{more}: {one.verdict.numbers}"
    if rows and not any(row.outputs or row.error for row in rows):
        yield (
            f"no {_LEAST} calls in a row could be compared, as PyTorch refuses them "
            f"({rows[0].refused}): give input sets that the model takes one after the other"
        )
