"""Capture a model as it is, and with the code rewritten that stands in the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import torch

from torchferry.capturer.result import Captured
from torchferry.capturer.rewrite.aliases import constructs_of, find_lost, leave_out
from torchferry.capturer.rewrite.rewrite import Rewriting, rewritten
from torchferry.capturer.trial.agreement import compare_calls
from torchferry.capturer.trial.settle import size_names
from torchferry.errors import CaptureError
from torchferry.observer import Observation
from torchferry.observer.conditions import read_guards

__all__ = ["Rewrite", "capture_rewritten"]

Rewrite = bool | Literal["auto"]
"""Whether control flow is rewritten; ``auto`` does so where it stands in the way."""

_LOOP = re.compile(r"\b(for|while)\b")
_ROUNDS = 5  # each finds another line that stands in the way

Run = Callable[[Rewriting | None], Captured]


def capture_rewritten(
    model: torch.nn.Module, seen: Observation, run: Run, rewrite: Rewrite
) -> Captured:
    """Capture a model, and rewrite what asks for values or fixes sizes.

    Where rewriting is left to us, the model is captured as it is first. The functions whose lines
    fix a size, or ask a tensor for its value, are rewritten then, as long as that brings up other
    lines; the result counts if fewer sizes are fixed and it computes what the model does.

    Args:
        model: any module.
        seen: its calls.
        run: captures it, given what was rewritten.
        rewrite: whether to do so.

    Raises:
        CaptureError: neither is captured.
    """
    if rewrite is True:
        return _rounds(model, seen, run, ("forward",), set())
    plain = _attempted(run, None)
    lines = _lines_of(plain, seen)
    if not rewrite or not lines:
        return _result(plain)
    better = _attempted(lambda _: _rounds(model, seen, run, (), lines), None)
    return _better(plain, better, seen, lambda found: _wrong(model, seen, found))


def _better(
    plain: Captured | CaptureError,
    found: Captured | CaptureError,
    seen: Observation,
    wrong: Callable[[Captured], str],
) -> Captured:
    """What was captured with rewritten code if it is better, else what was without."""
    if isinstance(found, CaptureError) and isinstance(plain, CaptureError):
        raise plain if _first_line(found) == _first_line(plain) else found
    if isinstance(found, CaptureError):
        reason = f"rewritten, it is not captured: {_first_line(found)}"
    elif isinstance(plain, Captured) and _limits(found, seen) >= _limits(plain, seen):
        reason = "rewritten, it fixes the size as well"
    elif not (reason := wrong(found)):
        return found
    else:
        reason = f"rewritten, {reason}"
    if isinstance(plain, CaptureError):
        plain.add_note(reason)
        raise plain
    return replace(plain, declined=tuple(found.declined) or (reason,))


def _wrong(model: torch.nn.Module, seen: Observation, captured: Captured) -> str:
    """Why a program computes something else than was recorded; ``""`` if it does not."""
    checks = compare_calls(captured.program, seen, captured.joined, model=model)
    return next((one.verdict.about("it") for one in checks if not one.ok), "")


def _first_line(error: CaptureError) -> str:
    return str(error).partition("\n")[0]


def _limits(found: Captured, seen: Observation) -> int:
    """How many sizes are fixed, and how many loops run as often as in the call captured."""
    return len(found.fixed) + len(_loops(found, seen))


def _loops(found: Captured, seen: Observation) -> set[str]:
    """The lines of loops that a recorded call runs more or less often than the one captured."""
    lines = {guard: line for guard, line in found.lines.items() if _LOOP.search(line)}
    if not lines:
        return set()
    read = read_guards(found.program, size_names(found, seen), lines, lines)
    sizes = [seen.sizes_of(call) for call in seen.calls]
    return {lines[guard] for guard, conditions in read.items()
            if any(one.broken_by(given) for one in conditions for given in sizes)}  # fmt: skip


def _rounds(
    model: torch.nn.Module,
    seen: Observation,
    run: Run,
    methods: tuple[str, ...],
    lines: set[str],
) -> Captured:
    leave: dict[str, str] = {}
    rounds = 0
    while True:
        with rewritten(model, methods, leave=leave, lines=lines) as rewriting:
            found = _attempted(run, rewriting)
        if isinstance(found, Captured):
            if lost := find_lost(found.program, rewriting.places):
                leave_out(lost, leave)
                continue
            found = _with_rewriting(found, rewriting)
        rounds += 1
        new = _lines_of(found, seen) - lines
        if not new or rounds == _ROUNDS:
            return _result(found)
        lines = lines | new


def _with_rewriting(found: Captured, rewriting: Rewriting) -> Captured:
    decided: set[str] = set()
    for place, count in constructs_of(found.program):
        if place in rewriting.places:
            # torch says of none within another where it stands; so all of them are, or unknown.
            inner = rewriting.within(place)
            decided |= {place} | (inner if len(inner) == count else set())
    return replace(
        found,
        rewritten=rewriting.diff or found.rewritten,
        declined=tuple(str(why) for one in found.fixed for why in rewriting.why(one.line)),
        decided=rewriting.lines_of(decided),
    )


def _attempted(run: Run, rewriting: Rewriting | None) -> Captured | CaptureError:
    try:
        return run(rewriting)
    except CaptureError as error:
        return error


def _result(found: Captured | CaptureError) -> Captured:
    if isinstance(found, CaptureError):
        raise found
    return found


def _lines_of(found: Captured | CaptureError, seen: Observation) -> set[str]:
    """``file:line`` of what stands in the way of a capture, or of a dynamic size."""
    if isinstance(found, CaptureError):
        said = {found.line}
    else:
        said = {*(one.line for one in found.fixed), *_loops(found, seen)}
    return {line.split(": ", 1)[0] for line in said if line}
