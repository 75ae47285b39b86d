"""One attempt to export one piece, and the comparison of what came out with what was recorded."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from torchferry.capturer import Fixed
from torchferry.diagnoser.attempt import (
    EXPORTERS,
    Attempted,
    as_module,
    export_once,
    fx_once,
    tensors_of,
)
from torchferry.diagnoser.blame import advice_for, explain, modules_in, with_code
from torchferry.diagnoser.quiet import quiet
from torchferry.diagnoser.status import StatusExport, StatusExportCode
from torchferry.diagnoser.tree import Piece, Record
from torchferry.diagnoser.variant import Variant
from torchferry.diagnoser.widen import Widened, main_variant
from torchferry.dims import evaluate, names_in
from torchferry.errors import UsageError
from torchferry.observer.observation import Observation
from torchferry.observer.tree import leaves_of
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.difference import Discrepancy, max_diff, string_diff, worst

__all__ = ["Options", "fails_alike", "try_piece"]


@dataclass(frozen=True)
class Options:
    """How pieces are tried.

    Attributes:
        exporter: a key of `EXPORTERS`.
        exporter_kwargs: handed on to the exporter.
        quiet: turn exceptions into a status; otherwise the first one is raised.
        discrepancies: run what was exported on every recorded input and compare.
        use_dynamic_shapes: dimensions that vary are dynamic; None: when there are two calls.
        atol: largest absolute difference that is none.
        rtol: largest relative difference that is none; it divides by ``max(|expected|, 1e-3)``.
    """

    exporter: str = "fx"
    exporter_kwargs: Mapping[str, Any] = field(default_factory=dict)
    quiet: bool = True
    discrepancies: bool = True
    use_dynamic_shapes: bool | None = None
    atol: float = 1e-2
    rtol: float = 1e-1

    def check(self) -> None:
        """Refuse what is no option.

        Raises:
            UsageError: the exporter is unknown, or a tolerance is no number.
        """
        if self.exporter not in EXPORTERS:
            raise UsageError(
                f"unknown exporter {self.exporter!r}: choose one of {', '.join(EXPORTERS)}"
            )
        if not (self.atol >= 0 and self.rtol >= 0):
            raise UsageError(f"atol={self.atol}, rtol={self.rtol}: tolerances are 0 or more")


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
        once: by the first strategy of torch.export alone: a failure is no last word then.

    Returns:
        The status. Nothing of the piece is changed.
    """
    if not piece.calls:
        return StatusExport(
            StatusExportCode.NOINPUT,
            notes=("it was never called with these inputs, so there is nothing to export",),
        )
    variant, found = _tried(piece, options)
    notes = _left_out(piece, variant)
    module = as_module(piece.model, piece.method_name)
    export = fx_once if once else EXPORTERS[options.exporter]
    with quiet(), buffers_kept(piece.model):
        made = _guarded(
            "EXPORT", lambda: export(module, found.seen, options.exporter_kwargs), options
        )
        if isinstance(made, StatusExport):
            return replace(made, notes=notes)
        fixed = [one for one in made.fixed if _contradicted(one, found)]
        if fixed:
            return replace(_fixed(made, fixed), notes=notes)
        status = StatusExport(
            StatusExportCode.OK,
            exported=made.exported,
            notes=notes,
            dynamic_shapes=made.dynamic_shapes,
            made="ModelProto"
            if isinstance(made.exported, bytes)
            else type(made.exported).__name__,
        )
        if options.discrepancies and compare:
            # Where a guess did not hold, the call that was made up is none for the piece.
            calls = [] if made.fixed or found.made is None else [found.made]
            return _compared(piece, (*variant.calls, *calls), made, status, options)
    return status


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
    variant, found = _tried(piece, options)
    module = as_module(piece.model, piece.method_name)
    with quiet(), buffers_kept(piece.model):
        quietly = replace(options, quiet=True)
        made = _guarded("EXPORT", lambda: export_once(module, found.seen), quietly)
    if not isinstance(made, StatusExport) or made.line != around.line:
        return None
    return replace(made, notes=_left_out(piece, variant))


def _tried(piece: Piece, options: Options) -> tuple[Variant, Widened]:
    """The calls that are tried, and what they say of the dimensions."""
    variant, found = main_variant(piece)
    dynamic = options.use_dynamic_shapes
    if dynamic is False or (dynamic is None and len(found.seen.calls) < 2):
        # One call says of no dimension that it varies.
        variant = replace(variant, calls=(variant.calls[0],))
        found = Widened(Observation(piece.signature, piece.title, list(variant.calls)))
    return variant, found


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


def _contradicted(one: Fixed, found: Widened) -> bool:
    """Whether a call was seen in which a dimension is not what it was made.

    Few calls let one size be told in several ways, as that of another argument plus a constant:
    a dimension that is tied to what it equals in all calls is right. So is one that was guessed.
    """
    seen = found.seen
    if (one.argument, one.axis) in found.guessed:
        return False
    if one.axis < 0 or isinstance(one.size, int):
        return True
    path = next(argument.path for argument in seen.arguments if argument.name == one.argument)
    shapes = [leaves_of(*seen.normalized(call))[path].shape for call in seen.calls]
    known = [seen.sizes_of(call) for call in seen.calls]
    return any(
        not names_in(one.size) <= sizes.keys() or evaluate(one.size, sizes) != shape[one.axis]
        for shape, sizes in zip(shapes, known, strict=True)
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


def _compared(
    piece: Piece,
    calls: Sequence[Record],
    made: Attempted,
    status: StatusExport,
    options: Options,
) -> StatusExport:
    wrong = []
    for call in calls:
        got, refused = _run(made, call, options)
        if isinstance(got, StatusExport):
            return replace(got, notes=status.notes, dynamic_shapes=status.dynamic_shapes)
        expected = tensors_of(call.outputs) if made.flat else call.outputs
        diff = max_diff(expected, got)
        equal = _equal(diff, options)
        if refused is not None and not equal:  # the guard was right
            return replace(refused, notes=status.notes, dynamic_shapes=status.dynamic_shapes)
        if refused is not None:
            note = (
                f"torch.export's program refuses recorded inputs that it serves: {refused.reason}"
            )
            status = replace(status, notes=tuple(dict.fromkeys((*status.notes, note))))
        if not equal:
            wrong.append((diff, call))
    return _differs(piece, made, status, options, wrong) if wrong else status


def _differs(
    piece: Piece,
    made: Attempted,
    status: StatusExport,
    options: Options,
    wrong: Sequence[tuple[Discrepancy, Record]],
) -> StatusExport:
    if not any(_repeats(piece, call, options) for _, call in wrong):
        note = "PyTorch itself gives other numbers when it is called again: they are random, or "
        return replace(status, notes=(*status.notes, f"{note}depend on earlier calls"))
    return replace(
        status,
        status=StatusExportCode.FAIL_DISC,
        step="DISC",
        reason=string_diff(worst(diff for diff, _ in wrong)),
        line=_line_at_fault(made, wrong[0][1], options),
        advice="the exported program computes something else than the module: compare the two "
        "value by value, or see what depends on more than the arguments",
    )


def _line_at_fault(made: Attempted, call: Record, options: Options) -> str | None:
    """Where the program begins to differ, if that can be seen; the means may fail as well."""
    if made.line_at_fault is None:
        return None
    find = partial(made.line_at_fault, call)
    line = _guarded("DISC", find, replace(options, quiet=True))
    return with_code(line) if isinstance(line, str) else None


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


def _equal(diff: Discrepancy, options: Options) -> bool:
    return (
        diff.reason is None
        and not math.isnan(diff.abs)
        and diff.abs <= options.atol
        and diff.rel <= options.rtol
    )


def _repeats(piece: Piece, call: Record, options: Options) -> bool:
    """Whether PyTorch gives the recorded outputs when the call is made again."""
    args, kwargs = clone((call.args, call.kwargs))
    with torch.no_grad(), buffers_kept(piece.model):
        got = _guarded(
            "EVAL", lambda: getattr(piece.model, piece.method_name)(*args, **kwargs), options
        )
    return not isinstance(got, StatusExport) and _equal(max_diff(call.outputs, got), options)
