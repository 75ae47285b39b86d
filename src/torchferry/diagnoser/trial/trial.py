"""One attempt to export one piece, and the comparison of what came out with what was recorded."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from torchferry.capturer import Fixed
from torchferry.diagnoser.explain.blame import advice_for, explain, modules_in, with_code
from torchferry.diagnoser.record.tree import Piece, Record
from torchferry.diagnoser.record.variant import Variant
from torchferry.diagnoser.record.widen import Widened, main_variant
from torchferry.diagnoser.record.writes import lost_writes
from torchferry.diagnoser.trial.attempt import EXPORTERS, ONCE, export_once
from torchferry.diagnoser.trial.comparison import changed_state, changing_line, judge_call
from torchferry.diagnoser.trial.made import Attempted, as_module, unexportable, without
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.quiet import quiet
from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode
from torchferry.judge import Verdict, worst_verdict
from torchferry.judge.reference import BAKED, OWN_DRAWS
from torchferry.observer.observation import Call, Observation
from torchferry.values.buffers import buffers_kept
from torchferry.values.randomness import random_kept

__all__ = ["compared_calls", "fails_alike", "inputs_of", "tried", "try_piece"]

_WRONG = """the exported program computes something else than the module: compare the two value by
    value, or see what depends on more than the arguments"""
_STEADY = """draw random numbers with torch, keep what changes in a buffer, or pass it as an
    argument"""


def _one_line(text: str) -> str:
    return " ".join(text.split())


def try_piece(
    piece: Piece, options: Options, *, compare: bool = True, once: bool = False
) -> StatusExport:
    """Export a piece as it stands now, and run what was made on the recorded inputs.

    Args:
        piece: with its calls. One graph serves calls that differ in sizes only: of others, the
            largest group is tried, and a note says so.
        options: see there.
        compare: whether what is made can run at all; not where operators stand for submodules
            that onnxruntime does not have.
        once: by the first strategy of `capture` alone: a failure is no last word then. Only for
            the exporters in `ONCE`.

    Returns:
        The status. Nothing of the piece is changed.
    """
    if not piece.calls:
        return StatusExport(
            StatusExportCode.NOINPUT,
            notes=("it was never called with these inputs, so there is nothing to export",),
        )
    variant, found = tried(piece, options)
    notes = _left_out(piece, variant)
    given = _guarded("EXPORT", lambda: inputs_of(piece, found.seen, options.exporter), options)
    if isinstance(given, StatusExport):
        return replace(given, notes=notes)
    module, seen, taken = given
    export = (ONCE if once else EXPORTERS)[options.exporter]
    with quiet(), buffers_kept(piece.model), random_kept():  # Dynamo draws as it begins
        made = _guarded("EXPORT", lambda: export(module, seen, options.exporter_kwargs), options)
        if isinstance(made, StatusExport):
            return replace(made, notes=notes)
        flaw = _flaw(piece, variant.calls[0], made, found, options)
        if flaw is not None:
            return replace(flaw, notes=notes)
        status = StatusExport(
            StatusExportCode.OK,
            exported=made.exported,
            notes=notes,
            dynamic_shapes=made.dynamic_shapes,
            made=made.title,
        )
        if options.discrepancies and compare:
            # Where a guess did not hold, the call that was made up is none for the piece.
            calls = variant.calls if made.fixed else compared_calls(variant, found)
            return _compared(piece, calls, _taking(made, taken), status, options)
    return status


def _flaw(
    piece: Piece, call: Record, made: Attempted, found: Widened, options: Options
) -> StatusExport | None:
    """What is wrong with what was made, that is known before it runs."""
    if made.decided is not None:
        return _decided(made)
    fixed = [one for one in made.fixed if found.contradicts(one)]
    if fixed:
        return _fixed(made, fixed)
    if not made.flat:  # only torch.onnx says nothing of what is lost
        return None
    lost: list[StatusExport | None] = _asked(
        lambda: [lost_writes(piece, call, made)], options, instead=[None]
    )
    return lost[0]


Taken = Callable[[Call], Call]


def inputs_of(
    piece: Piece, seen: Observation, exporter: str = "fx"
) -> tuple[torch.nn.Module, Observation, Taken]:
    """What is exported of a piece, the calls of it, and how any call becomes one of those.

    Arguments that torch.export takes no inputs of are a part of the module. What torch.onnx does
    not write of outputs is no fault of a piece whose caller takes it.
    """
    args, kwargs = seen.normalized(seen.best)
    held = {} if args else unexportable(kwargs)
    flat = exporter == "onnx_dynamo" and piece.parent is not None
    if not held:
        return as_module(piece, flat=flat), seen, lambda call: call

    def taken(call: Call) -> Call:
        _, named = seen.normalized(call)
        return Call((), {name: value for name, value in named.items() if name not in held})

    calls = [taken(call) for call in seen.calls]
    less = Observation(without(piece.signature, held), piece.title, calls)
    return as_module(piece, held, flat=flat), less, taken


def _taking(made: Attempted, taken: Taken) -> Attempted:
    """The same, with calls as they were recorded."""
    free, line = made.run_freely, made.line_at_fault
    return replace(
        made,
        run=lambda call: made.run(taken(call)),
        run_freely=None if free is None else lambda call: free(taken(call)),
        line_at_fault=None if line is None else lambda call: line(taken(call)),
    )


def fails_alike(piece: Piece, around: StatusExport, options: Options) -> StatusExport | None:
    """Whether a piece fails as what it is a part of did, by one try of torch.export alone.

    Where every strategy failed at a line of the piece, and the first fails there again with the
    piece alone, the others would: they need not be tried another time.

    Args:
        piece: with its calls.
        around: what came of the piece around it.
        options: see `try_piece`.

    Returns:
        The status, or None when it does not, or that cannot be told in this way.
    """
    if id(piece.model) not in around.inside or around.line is None or not piece.calls:
        return None
    if options.exporter not in ("fx", "to_onnx") or options.exporter_kwargs:
        return None
    variant, found = tried(piece, options)
    module, seen, _ = inputs_of(piece, found.seen)
    with quiet(), buffers_kept(piece.model), random_kept():  # Dynamo draws as it begins
        quietly = replace(options, quiet=True)
        made = _guarded("EXPORT", lambda: export_once(module, seen), quietly)
    if not isinstance(made, StatusExport) or made.line != around.line:
        return None
    return replace(made, notes=_left_out(piece, variant))


def tried(piece: Piece, options: Options) -> tuple[Variant, Widened]:
    """The calls of a piece that are tried, and what they say of the dimensions."""
    variant, found = main_variant(piece)
    dynamic = options.use_dynamic_shapes
    if dynamic is False or (dynamic is None and len(found.seen.calls) < 2):
        # One call says of no dimension that it varies.
        variant = replace(variant, calls=(variant.calls[0],))
        found = Widened(Observation(piece.signature, piece.title, list(variant.calls)))
    return variant, found


def compared_calls(variant: Variant, found: Widened) -> tuple[Record, ...]:
    """What `StatusExport.call` counts: the calls, and the one that was made up, if any."""
    return variant.calls if found.made is None else (*variant.calls, found.made)


def _left_out(piece: Piece, variant: Variant) -> tuple[str, ...]:
    left = len(piece.calls) - len(variant.calls)
    if not left:
        return ()
    note = (
        f"{len(variant.calls)} of its {len(piece.calls)} calls were tried: the others pass "
        "constants, dtypes, ranks or arguments that differ, which needs a graph of its own"
    )
    return (note,)


def _guarded(step: str, what: Callable[[], Any], options: Options) -> Any | StatusExport:
    """The result, or the status that says why there is none."""
    try:
        return what()
    # The trial's wrapper: exporters and users' code raise anything, and that is the verdict.
    except Exception as error:
        if not options.quiet:
            raise
        reason, inside = explain(error), modules_in(error)
        # Tracebacks hold the frames of the export, and so every tensor in them.
        for part in (error, error.__cause__, error.__context__):
            if part is not None:
                traceback.clear_frames(part.__traceback__)
        return StatusExport(
            StatusExportCode.FAIL, step, reason.text, line=reason.line, advice=reason.advice,
            error=error, inside=inside,
        )  # fmt: skip


def _decided(made: Attempted) -> StatusExport:
    return StatusExport(
        StatusExportCode.FAIL,
        "EXPORT",
        "a data-dependent choice is kept as the example's values made it: tracing does not see it",
        line=with_code(made.decided) if made.decided else None,
        advice=advice_for("data-dependent"),
        inside=made.inside,
        dynamic_shapes=made.dynamic_shapes,
    )


def _fixed(made: Attempted, fixed: Sequence[Fixed]) -> StatusExport:
    first = fixed[0]
    more = f" (and {len(fixed) - 1} more)" if len(fixed) > 1 else ""
    bare = replace(first, line=None)
    return StatusExport(
        StatusExportCode.FAIL,
        "EXPORT",
        f"{bare}{more}",
        line=first.line,
        advice=advice_for(str(bare)),
        dynamic_shapes=made.dynamic_shapes,
    )


_Judged = tuple[int, Verdict]
"""The number of a call, and the verdict on what the program gives for it."""


def _compared(
    piece: Piece,
    calls: Sequence[Record],
    made: Attempted,
    status: StatusExport,
    options: Options,
) -> StatusExport:
    judged: list[_Judged] = []
    guarded: dict[str, list[int]] = {}
    run = made.run_freely or made.run
    for number, call in enumerate(calls):
        got, refused = _run(made, call, options)
        if isinstance(got, StatusExport):
            return _failed(got, status, number)
        verdict = judge_call(piece, call, got, run, options, flat=made.flat)
        if refused is not None and not verdict.ok:  # the guard was right
            return _failed(refused, status, number)
        if refused is not None:
            guarded.setdefault(refused.reason, []).append(number + 1)
        judged.append((number, verdict))
    notes = tuple(_needless(said, numbers, len(calls)) for said, numbers in guarded.items())
    status = replace(status, notes=(*status.notes, *notes))
    return _verdict(piece, calls, made, status, judged, options)


def _needless(said: str, numbers: Sequence[int], count: int) -> str:
    """What is to be known of a guard that inputs break for which the program is right."""
    which = f"call {', '.join(map(str, numbers))} of the {count} tried"
    return (
        f"torch.export's program refuses {which}, for which it is right ({said}): torchferry's "
        "export serves it, and so does program.module(check_guards=False)"
    )


def _failed(found: StatusExport, status: StatusExport, number: int) -> StatusExport:
    return replace(found, notes=status.notes, dynamic_shapes=status.dynamic_shapes, call=number)


def _verdict(  # noqa: PLR0917  (all that is known of the trial)
    piece: Piece,
    calls: Sequence[Record],
    made: Attempted,
    status: StatusExport,
    judged: Sequence[_Judged],
    options: Options,
) -> StatusExport:
    """What the verdicts on the calls make of a program that runs."""
    worst = worst_verdict(verdict for _, verdict in judged)
    status = replace(status, verdict=worst)
    if worst.ok:
        return status
    if worst.kind == "random":
        unchecked = any(verdict.evidence == OWN_DRAWS for _, verdict in judged)
        note = f"its numbers are not compared: {worst.evidence}"
        return replace(status, notes=(*status.notes, note), unchecked=unchecked)
    number = next(number for number, verdict in judged if verdict is worst)
    call = calls[number]
    found = replace(
        status,
        status=StatusExportCode.FAIL_DISC,
        step="DISC",
        reason=worst.numbers,
        advice=_one_line(_WRONG),
        call=number,
    )
    if not worst.evidence:
        return replace(found, line=_line_at_fault(made, call, options))
    if worst.evidence != BAKED:
        return found
    reason = _asked(lambda: changed_state(piece, call), options, instead="") or BAKED
    line = _asked(lambda: changing_line(piece, call), options, instead=None)
    place = with_code(line) if line else None
    advice = _one_line(_STEADY)
    return replace(found, reason=reason, line=place, advice=advice, unsteady=True)


def _asked(question: Callable[[], Any], options: Options, *, instead: Any) -> Any:
    """The answer, or another where the code that would give it fails."""
    answer = _guarded("DISC", question, replace(options, quiet=True))
    return instead if isinstance(answer, StatusExport) else answer


def _line_at_fault(made: Attempted, call: Record, options: Options) -> str | None:
    """Where the program begins to differ, if that can be seen; the means may fail as well."""
    if made.line_at_fault is None:
        return None
    line = _asked(partial(made.line_at_fault, call), options, instead=None)
    return with_code(line) if line else None


def _run(
    made: Attempted, call: Record, options: Options
) -> tuple[Any | StatusExport, StatusExport | None]:
    """The outputs, or why there are none; and what a guard said that they were got without.

    torch.export guards programs against sizes it was not traced for, 1 among them, whether it
    makes a difference or not: the numbers tell.
    """
    run = partial(made.run, call)
    if made.run_freely is None:
        return _guarded("EVAL", run, options), None
    got = _guarded("EVAL", run, replace(options, quiet=True))
    if not isinstance(got, StatusExport):
        return got, None
    if got.reason.startswith("Guard failed"):
        return _guarded("EVAL", partial(made.run_freely, call), options), got
    if not options.quiet and got.error is not None:
        raise got.error
    return got, None
