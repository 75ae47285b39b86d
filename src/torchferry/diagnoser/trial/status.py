"""What came of an attempt to export one piece of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any

from torchferry.judge import Verdict

__all__ = ["StatusExport", "StatusExportCode"]

_REASON = 100  # characters of a reason in one line


class StatusExportCode(IntFlag):
    """How an export ended; codes can be combined.

    ``OK``: it worked, with all the submodules in it. ``FAIL``: it did not. ``CHILDC``: submodules
    were replaced by custom operators. ``CUSTOM``: the module itself was. ``DISC``: it gives other
    numbers than the model. ``NOINPUT``: the module was never called.

    >>> StatusExportCode.OK | StatusExportCode.CHILDC
    <StatusExportCode.OK_CHILDC: 5>
    >>> str(StatusExportCode.FAIL_DISC.remove(StatusExportCode.DISC))
    'FAIL'
    """

    NONE = 0
    OK = 1
    FAIL = 2
    CHILDC = 4
    CUSTOM = 8
    DISC = 16
    NOINPUT = 32
    OK_CHILDC = 5
    OK_CUSTOM = 9
    FAIL_CHILDC = 6
    FAIL_CUSTOM = 10
    FAIL_DISC = 18
    FAIL_NOINPUT = 34

    def __str__(self) -> str:
        return (self.name or str(self.value)).replace("|", "_")

    def remove(self, code: StatusExportCode) -> StatusExportCode:
        """The same without ``code``."""
        return StatusExportCode(self & ~code)


@dataclass(frozen=True)
class StatusExport:
    """The result of trying to export one module.

    Attributes:
        status: how it ended.
        step: where it failed: ``EXPORT``, ``EVAL`` (the exported program does not run), ``DISC``
            (it gives other numbers), ``TIME``, ``MEMORY`` or ``CRASH`` (in a process of its own).
        reason: why, as it was said; of a module that fails because of submodules, which.
        exported: what was made: an ``ExportedProgram``, an ``ONNXProgram``, an ``onnx_ir.Model``.
        line: the user's ``file:line: code`` at fault, where it is known.
        advice: what to do about it.
        blame: paths of the pieces below that are at fault. Empty: it is the module's own code.
        notes: what else is to be known, one sentence each.
        dynamic_shapes: what was given to the exporter.
        made: the class of what was exported, also where that stayed in another process.
        error: the exception, where there was one.
        inside: ``id`` of the modules that were being called as it was raised.
        call: which of the calls that were tried shows it; None where the export itself failed.
        unsteady: PyTorch computes something else each time, whatever its random numbers.
        unchecked: its numbers are random, and the program draws others: no fault would show.
        verdict: the worst on its numbers; None when nothing was compared.
    """

    status: StatusExportCode
    step: str = ""
    reason: str = ""
    exported: Any = None
    line: str | None = None
    advice: str = ""
    blame: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    dynamic_shapes: Any = None
    made: str = ""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    inside: frozenset[int] = field(default=frozenset(), repr=False, compare=False)
    call: int | None = None
    unsteady: bool = False
    unchecked: bool = False
    verdict: Verdict | None = None

    def is_ok(self) -> bool:
        """Whether the module was exported, whatever had to be replaced for it.

        >>> StatusExport(StatusExportCode.OK_CHILDC).is_ok()
        True
        """
        return bool(self.status & StatusExportCode.OK)

    @property
    def failed(self) -> bool:
        """Whether something of the module cannot be exported."""
        return bool(self.status & StatusExportCode.FAIL)

    @property
    def short_reason(self) -> str:
        """The reason in one line, cut where it is long."""
        line = next((part.strip() for part in self.reason.splitlines() if part.strip()), "")
        return line if len(line) <= _REASON else f"{line[:_REASON]}..."

    def pretty_text(self) -> str:
        """The status in one line, as the report has it.

        >>> StatusExport(StatusExportCode.FAIL, "EXPORT", "no").pretty_text()
        "FAIL -- step=EXPORT, reason='no'"
        """
        if self.is_ok():
            return f"{self.status} -- {self.made}" if self.made else str(self.status)
        if not self.step:
            return str(self.status)
        return f"{self.status} -- step={self.step}, reason={self.short_reason!r}"
