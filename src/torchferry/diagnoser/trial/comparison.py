"""The verdict on what an exported piece gives for a recorded call, and where it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchferry.capturer.state.state import watch_state
from torchferry.diagnoser.explain.divergence import line_of_change
from torchferry.diagnoser.record.tree import Piece, Record
from torchferry.diagnoser.trial.made import tensors_of
from torchferry.diagnoser.trial.option import Options
from torchferry.judge import Limits, Reference, Verdict, worst_verdict
from torchferry.observer.observation import Call
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import Path, flatten
from torchferry.values.randomness import random_kept

__all__ = ["changed_state", "changing_line", "judge_call"]

Run = Callable[[Call], Any]


def judge_call(
    piece: Piece, call: Record, got: Any, run: Run, options: Options, *, flat: bool = False
) -> Verdict:
    """The worst verdict on the outputs of a program; the recorded ones are what is right.

    Args:
        piece: with its calls.
        call: as it was recorded.
        got: what the program gives.
        run: the program, to see whether it draws random numbers.
        options: their limits hold as they are.
        flat: whether the program gives a list of tensors.
    """

    def of(model: torch.nn.Module, inputs: Any) -> Any:
        return piece.run_as(model, *inputs)

    def leaves(outputs: Any) -> list[tuple[Path, Any]]:
        if not flat:
            return flatten(outputs)[0]
        return [((place,), one) for place, one in enumerate(tensors_of(outputs, len(got)))]

    limits = options.atol, options.rtol
    reference = Reference(
        of,
        piece.model,
        (call.args, call.kwargs),
        tolerance=None if limits == (None, None) else Limits(*limits),
        leaves=leaves,
        expected=call.outputs,
    )
    verdicts = reference.judge(got, lambda: run(call))
    return worst_verdict(verdict for _, verdict in verdicts)


def _again(piece: Piece, call: Record) -> Any:
    args, kwargs = clone((call.args, call.kwargs))
    with random_kept(), buffers_kept(piece.model), disable_fast_paths(), torch.no_grad():
        torch.manual_seed(0)
        return piece.run(*args, **kwargs)


def changed_state(piece: Piece, call: Record) -> str:
    """What a call changes of the Python state of a piece, as a sentence; or nothing."""
    with watch_state(piece.model) as changes:
        _again(piece, call)
    return str(changes[0]) if changes else ""


def changing_line(piece: Piece, call: Record) -> str | None:
    """The user's ``file:line`` from which on a call computes something else each time."""
    return line_of_change(lambda: _again(piece, call))
