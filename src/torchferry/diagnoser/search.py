"""Go through the pieces of a model until it is known which ones break its export."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from torchferry.diagnoser.explain.blame import advice_for
from torchferry.diagnoser.record.tree import Piece
from torchferry.diagnoser.record.variant import variants
from torchferry.diagnoser.replace.replace import UNRECORDED, ShapeFunctions, StandIn, replaced
from torchferry.diagnoser.replace.strategy import CustomOpStrategy, Strategy, strategy_of
from torchferry.diagnoser.trial.attempt import ONCE
from torchferry.diagnoser.trial.option import Options
from torchferry.diagnoser.trial.process import Limits, in_process
from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode
from torchferry.diagnoser.trial.trial import fails_alike, try_piece
from torchferry.errors import UsageError

__all__ = ["Search", "Verdicts"]

_log = logging.getLogger("torchferry")

# What is in a piece that is tried so is its own.
_AS_IT_IS = (CustomOpStrategy.NONE, CustomOpStrategy.ONLY_IF_FAILING)

_KINDS = 8  # of calls that need graphs of their own, so many are tried

Verdicts = dict[int, StatusExport]
"""By the ``id`` of a piece, which its tree keeps alive."""


def _called(piece: Piece) -> list[Piece]:
    """What a piece's own code calls: a list of layers never is, a shared module may be."""
    near = _around(piece)
    shared = (one for one in piece.callees if id(one) not in near)
    return [*dict.fromkeys((*_nearest(piece), *shared))]


def _nearest(piece: Piece) -> Iterator[Piece]:
    """The nearest pieces below that were called."""
    for child in piece.children:
        if child.calls:
            yield child
        else:
            yield from _nearest(child)


def _around(piece: Piece) -> set[int]:
    """``id`` of a piece, of all below it and of all above it."""
    near = {id(one) for one in piece.walk()}
    above: Piece | None = piece.parent
    while above is not None:
        near.add(id(above))
        above = above.parent
    return near


def _shared(piece: Piece) -> list[Piece]:
    """What a piece and its parts call that stands elsewhere, and what that calls."""
    near = _around(piece)
    found: dict[Piece, None] = {}
    todo = list(piece.walk())
    while todo:
        for one in todo.pop().callees:
            if id(one) not in near and one not in found:
                found[one] = None
                todo += one.walk()
    return [*found]


def _always_below(strategy: Strategy, piece: Piece) -> list[Piece]:
    """What stands for operators in a piece wherever it is tried: a dictionary says so."""
    if not isinstance(strategy, Mapping):
        return []
    shared = (part for part in _shared(piece) if _is_always(strategy, part))
    return [*dict.fromkeys((*_outermost(strategy, piece), *shared))]


def _outermost(strategy: Strategy, piece: Piece) -> Iterator[Piece]:
    for child in piece.children:
        if _is_always(strategy, child):
            yield child
        else:
            yield from _outermost(strategy, child)


def _is_always(strategy: Strategy, piece: Piece) -> bool:
    return bool(piece.calls) and strategy_of(strategy, piece) is CustomOpStrategy.ALWAYS


def _of_one_kind(status: StatusExport, other: StatusExport) -> bool:
    """Whether the same helps against both, if anything is known that does."""
    return status.advice == other.advice and status.advice not in ("", advice_for(""))


def _same(*found: StatusExport) -> bool:
    return len({(one.step, one.reason, one.line) for one in found}) == 1


def _is_settled(status: StatusExport) -> bool:
    """Whether a piece works, and was seen to compute what is right."""
    return status.is_ok() and not status.unchecked


def _by_reason(status: StatusExport, found: Sequence[tuple[Piece, StatusExport]]) -> StatusExport:
    """Without replacing anything: a piece that says what one below says fails by that one."""
    same = [
        part.path
        for part, other in found
        if (status.line and status.line == other.line)
        or (status.step, status.reason) == (other.step, other.reason)
        or (status.line is None and _of_one_kind(status, other))
    ]
    if not same:
        return status
    return replace(status, blame=tuple(same), reason=f"because of {', '.join(same)}",
                   line=None, advice="")  # fmt: skip


@dataclass
class Search:
    """One walk over the pieces.

    Attributes:
        options: how each is tried.
        strategy: when submodules are replaced.
        shape_functions: for what is replaced.
        below: go on below a piece that works.
        limits: try each in a process of its own.
        verdicts: what was found so far.
        parts: of a piece that fails in some of its calls, the piece with these calls alone.
    """

    options: Options
    strategy: Strategy = CustomOpStrategy.NONE
    shape_functions: ShapeFunctions | None = None
    below: bool = True
    limits: Limits | None = None
    verdicts: Verdicts = field(default_factory=dict)
    parts: dict[int, Piece] = field(default_factory=dict)
    _stand_ins: dict[int, StandIn] = field(default_factory=dict)
    _hasty: set[int] = field(default_factory=set)  # pieces tried by one way of exporting only

    def visit(self, piece: Piece) -> StatusExport:
        """Try a piece, and those below it as far as the strategy wants it."""
        strategy = strategy_of(self.strategy, piece)
        inside = _always_below(self.strategy, piece)
        in_steps = not inside and self._in_steps(piece, strategy)
        if in_steps:
            self._hasty.add(id(piece))
        once = try_piece(piece, self.options, once=True) if in_steps else None
        status = self._in_all_calls(piece, once or self._first(piece, strategy))
        in_steps = in_steps and status is once
        _log.info("%s: %s", piece.path or piece.name, status.pretty_text())
        self.verdicts[id(piece)] = status
        looked_into = bool(inside) or (self.below and strategy is not CustomOpStrategy.NONE)
        if _is_settled(status) and not looked_into:
            self._never_called(piece)
            return status
        for part in (*piece.children, *_shared(piece)):
            if id(part) not in self.verdicts:
                self.visit(part)
        if in_steps and status.failed and not self._explained(piece, status):
            status = self._try(piece)
            self.verdicts[id(piece)] = status
            if _is_settled(status):
                self._forget(piece)
                return status
        if status.is_ok() and status.unchecked and strategy in _AS_IT_IS:
            status = self._suspected(piece, status, looked_into=looked_into)
            self.verdicts[id(piece)] = status
        if status.failed and strategy is not CustomOpStrategy.ALWAYS:
            status = self._blamed(piece, status, strategy)
            self.verdicts[id(piece)] = status
        return status

    def _in_steps(self, piece: Piece, strategy: CustomOpStrategy) -> bool:
        """Whether a piece is tried by one way of exporting before its parts are, by all after.

        All ways that fail cost several times one that works, and most of that where it is the
        fault of a part, which is smaller.
        """
        return (
            not self.below
            and strategy is CustomOpStrategy.ONLY_IF_FAILING
            and self.limits is None
            and self.options.exporter in ONCE
            and not self.options.exporter_kwargs
            and bool(piece.calls)
            and bool(_called(piece))
        )

    def _explained(self, piece: Piece, status: StatusExport) -> bool:
        """Whether a piece was seen to fail as a culprit below it does.

        That is: within its code, at its line, or for a reason of the same kind.
        """
        found = [(part, self.verdicts[id(part)]) for part in self._at_fault(piece)]
        return any(
            id(part.model) in status.inside
            or (status.line is not None and other.line == status.line)
            or _of_one_kind(status, other)
            for part, other in found
        )

    def _forget(self, piece: Piece, parts: Sequence[Piece] | None = None) -> None:
        """What was found of the parts of a piece that works as a whole is no fault of it."""
        inside = {id(below): below for below in piece.walk() if below is not piece}
        others = [status for key, status in self.verdicts.items() if key not in inside]
        blamed = {path for status in others for path in status.blame}
        for key, below in inside.items():
            if below.path not in blamed and (parts is None or below in parts):
                self.verdicts.pop(key, None)
        self._never_called(piece)

    def _suspected(self, piece: Piece, status: StatusExport, *, looked_into: bool) -> StatusExport:
        """A piece with random numbers computes what is right if its parts do.

        It was exported, so that a part which cannot be by itself is no fault of it.
        """
        parts = self._at_fault(piece)
        wrong = tuple(part.path for part in parts if self.verdicts[id(part)].step == "DISC")
        if not looked_into:
            others = [part for part in parts if part.path not in wrong]
            self._forget(piece, others if wrong else None)
        if not wrong:
            return status
        return replace(status, status=StatusExportCode.FAIL_DISC, step="DISC", blame=wrong,
                       reason=f"because of {', '.join(wrong)}")  # fmt: skip

    def culprits(self, piece: Piece) -> Iterator[Piece]:
        """The pieces whose own code is at fault, this one and below; each after its parts."""
        for child in piece.children:
            yield from self.culprits(child)
        status = self.verdicts.get(id(piece))
        if status is not None and status.failed and not status.blame:
            yield piece

    def _at_fault(self, piece: Piece) -> list[Piece]:
        """The culprits among what a piece is made of and what it calls."""
        below = (*piece.children, *_shared(piece))
        return [*dict.fromkeys(found for part in below for found in self.culprits(part))]

    def _never_called(self, piece: Piece) -> None:
        """Pieces that nothing is to be tried of are said to have had no input."""
        for below in piece.walk():
            if not below.calls and id(below) not in self.verdicts:
                self.verdicts[id(below)] = try_piece(below, self.options)

    def _first(self, piece: Piece, strategy: CustomOpStrategy) -> StatusExport:
        if strategy is CustomOpStrategy.ALWAYS and piece.calls:
            return self._with(piece, [piece], StatusExportCode.CUSTOM)
        children = _called(piece)
        if strategy is CustomOpStrategy.LOCAL and piece.calls and children:
            return self._with(piece, children, StatusExportCode.CHILDC)
        inside = _always_below(self.strategy, piece)
        if inside and piece.calls:
            return self._with(piece, inside, StatusExportCode.CHILDC)
        return self._like_parent(piece) or self._try(piece)

    def _like_parent(self, piece: Piece) -> StatusExport | None:
        """The verdict of a piece that is seen at once to fail as its parent did, in every way."""
        around = self.verdicts.get(id(piece.parent))
        if around is None or self.limits is not None or id(piece.parent) in self._hasty:
            return None
        return fails_alike(piece, around, self.options)

    def _in_all_calls(self, piece: Piece, status: StatusExport) -> StatusExport:
        """What comes of those calls with which a piece fails where its parent was seen to.

        That is in code of the piece, which its largest group of calls does not reach; or it may
        be, where nothing was raised, as the parent was exported as something else.
        """
        around = self.verdicts.get(id(piece.parent))
        if not status.is_ok() or around is None or not around.failed:
            return status
        if around.inside and id(piece.model) not in around.inside:
            return status
        for variant in variants(piece)[1:_KINDS]:
            part = copy(piece)
            part.calls = [*variant.calls]
            found = self._try(part)
            # Where a difference begins may be seen elsewhere in the parent.
            alike = found.step == around.step == "DISC" or around.line in (None, found.line)
            if found.failed and alike:
                self.parts[id(piece)] = part
                note = (
                    f"only {len(part.calls)} of its {len(piece.calls)} calls were tried: those "
                    "with constants or kinds of arguments that make it fail"
                )
                return replace(found, notes=(*found.notes, note))
        return status

    def _try(self, piece: Piece, *, compare: bool = True) -> StatusExport:
        if self.limits is None or not piece.calls:
            return try_piece(piece, self.options, compare=compare)
        # A process gives back texts: what was raised there cannot be raised here.
        options = replace(self.options, quiet=True)
        return in_process(lambda: try_piece(piece, options, compare=compare), self.limits)

    def _with(self, piece: Piece, parts: Sequence[Piece], code: StatusExportCode) -> StatusExport:
        """Try a piece with some replaced by operators, which ``code`` says in the status."""
        if self.options.exporter_kwargs.get("strict"):
            reason = "with strict=True Dynamo traces Python, and operators cannot be put there"
            return StatusExport(
                StatusExportCode.FAIL | code, "REPLACE", reason, advice="leave strict=True out"
            )
        try:
            stand_ins = [self._stand_in(part) for part in parts]
        except UsageError as error:
            if not self.options.quiet:
                raise
            return StatusExport(
                StatusExportCode.FAIL | code, "REPLACE", str(error), error=error,
                advice="see shape_functions",
            )  # fmt: skip
        # Onnxruntime has none of the operators, and what never repeats itself cannot be compared.
        known = [self.verdicts[id(part)] for part in parts if id(part) in self.verdicts]
        steady = not any(one.unsteady for one in known)
        with replaced(stand_ins):
            status = self._try(piece, compare=steady and self.options.exporter == "fx")
        note = f"replaced by operators: {', '.join(part.path or part.name for part in parts)}"
        return replace(status, status=status.status | code, notes=(*status.notes, note))

    def _stand_in(self, part: Piece) -> StandIn:
        if id(part) not in self._stand_ins:
            # torch.onnx knows none of the operators: it is given their names and shapes.
            symbolic = self.options.exporter == "onnx_dynamo"
            self._stand_ins[id(part)] = StandIn(part, self.shape_functions, symbolic=symbolic)
        return self._stand_ins[id(part)]

    def _blamed(
        self, piece: Piece, status: StatusExport, strategy: CustomOpStrategy
    ) -> StatusExport:
        """Whether a piece fails because of those below it."""
        parts = self._at_fault(piece)
        if not parts:
            return status
        found = [(part, self.verdicts[id(part)]) for part in parts]
        if strategy is CustomOpStrategy.NONE:
            return _by_reason(status, found)
        always = _always_below(self.strategy, piece)
        again = self._with(piece, [*always, *parts], StatusExportCode.CHILDC)
        paths = tuple(part.path for part in parts)
        if again.is_ok():
            return replace(again, blame=paths)
        # A caller that passes other things while it is traced is not at fault for that.
        if again.step == "REPLACE" or UNRECORDED in again.reason:
            told = _by_reason(status, found)
            return replace(told, notes=(*told.notes, again.reason))
        # It may be that one way of exporting takes a part, and another the operators.
        called = _called(piece)
        if set(called) <= set(parts):
            return status if status.blame else again
        alone = self._with(piece, called, StatusExportCode.CHILDC)
        if alone.is_ok():
            note = f"with {', '.join(paths)} replaced alone it fails: {again.short_reason}"
            return replace(alone, blame=paths, notes=(*alone.notes, note))
        # It is not called, and what it holds is still in the way.
        same = [pair for pair in found if _same(status, pair[1], again)]
        if same:
            return _by_reason(again, same)
        # With them out of the way it still fails: by its own code, if that was seen.
        return status if status.blame else again
