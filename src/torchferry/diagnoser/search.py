"""Go through the pieces of a model until it is known which ones break its export."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from torchferry.diagnoser.attempt import ONCE
from torchferry.diagnoser.blame import advice_for
from torchferry.diagnoser.option import Options
from torchferry.diagnoser.process import Limits, in_process
from torchferry.diagnoser.replace import ShapeFunctions, StandIn, replaced
from torchferry.diagnoser.status import StatusExport, StatusExportCode
from torchferry.diagnoser.strategy import CustomOpStrategy, Strategy, strategy_of
from torchferry.diagnoser.tree import Piece
from torchferry.diagnoser.trial import fails_alike, try_piece
from torchferry.errors import UsageError

__all__ = ["Search", "Verdicts"]

_log = logging.getLogger("torchferry")

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


def _of_one_kind(status: StatusExport, other: StatusExport) -> bool:
    """Whether the same helps against both, if anything is known that does."""
    return status.advice == other.advice and status.advice not in ("", advice_for(""))


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
    """

    options: Options
    strategy: Strategy = CustomOpStrategy.NONE
    shape_functions: ShapeFunctions | None = None
    below: bool = True
    limits: Limits | None = None
    verdicts: Verdicts = field(default_factory=dict)
    _stand_ins: dict[int, StandIn] = field(default_factory=dict)

    def visit(self, piece: Piece) -> StatusExport:
        """Try a piece, and those below it as far as the strategy wants it."""
        strategy = strategy_of(self.strategy, piece)
        in_steps = self._in_steps(piece, strategy)
        status = try_piece(piece, self.options, once=True) if in_steps else None
        status = status or self._first(piece, strategy)
        _log.info("%s: %s", piece.path or piece.name, status.pretty_text())
        self.verdicts[id(piece)] = status
        if status.is_ok() and (not self.below or strategy is CustomOpStrategy.NONE):
            self._never_called(piece)
            return status
        for part in (*piece.children, *_shared(piece)):
            if id(part) not in self.verdicts:
                self.visit(part)
        if in_steps and not self._explained(piece, status):
            status = self._try(piece)
            self.verdicts[id(piece)] = status
            if status.is_ok():
                self._forget(piece)
                return status
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

    def _forget(self, piece: Piece) -> None:
        """What was found of the parts of a piece that works as a whole is no fault of it."""
        blamed = {path for status in self.verdicts.values() for path in status.blame}
        for below in piece.walk():
            if below is not piece and below.path not in blamed:
                self.verdicts.pop(id(below), None)
        self._never_called(piece)

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
        return self._like_parent(piece) or self._try(piece)

    def _like_parent(self, piece: Piece) -> StatusExport | None:
        """The verdict of a piece that is seen at once to fail as its parent did."""
        around = self.verdicts.get(id(piece.parent))
        if around is None or self.limits is not None:
            return None
        return fails_alike(piece, around, self.options)

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
        steady = not any(self._unsteady(part) for part in parts)
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

    def _unsteady(self, part: Piece) -> bool:
        status = self.verdicts.get(id(part))
        return status is not None and status.unsteady

    def _blamed(
        self, piece: Piece, status: StatusExport, strategy: CustomOpStrategy
    ) -> StatusExport:
        """Whether a piece fails because of those below it."""
        parts = self._at_fault(piece)
        if not parts:
            return status
        if strategy is CustomOpStrategy.NONE:
            return self._by_reason(status, parts)
        again = self._with(piece, parts, StatusExportCode.CHILDC)
        paths = tuple(part.path for part in parts)
        if again.is_ok():
            return replace(again, blame=paths)
        if again.step == "REPLACE":
            found = self._by_reason(status, parts)
            return replace(found, notes=(*found.notes, again.reason))
        # It may be that one way of exporting takes a part, and another the operators.
        called = _called(piece)
        if set(called) <= set(parts):
            return again
        alone = self._with(piece, called, StatusExportCode.CHILDC)
        if alone.is_ok():
            note = f"with {', '.join(paths)} replaced alone it fails: {again.short_reason}"
            return replace(alone, blame=paths, notes=(*alone.notes, note))
        return again  # with them out of the way it still fails: by its own code

    def _by_reason(self, status: StatusExport, parts: Sequence[Piece]) -> StatusExport:
        """Without replacing anything: a piece that says what one below says fails by that one."""
        found = [(part, self.verdicts[id(part)]) for part in parts]
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
