"""Try a piece in a process of its own, so that a crash or a hang is a verdict too."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torchferry.diagnoser.trial.status import StatusExport, StatusExportCode
from torchferry.errors import UsageError
from torchferry.judge.apart import Apart, Ended, is_out_of_memory

__all__ = ["Limits", "in_process"]

_NO_KERNEL = re.compile(r"could not create a (primitive|memory)")  # oneDNN's, for any reason


@dataclass(frozen=True)
class Limits:
    """What one piece may use.

    Attributes:
        seconds: wall time.
        megabytes: memory above what the process has already; None: no limit.
    """

    seconds: float = 300.0
    megabytes: int | None = None


def in_process(attempt: Callable[[], StatusExport], limits: Limits) -> StatusExport:
    """Run an attempt in a copy of this process.

    What it makes stays there: of what was exported only the class comes back.

    Args:
        attempt: gives a status and raises nothing.
        limits: what it may use.

    Raises:
        UsageError: this system cannot copy a process.
    """
    if not hasattr(os, "fork"):
        raise UsageError("trying each piece in its own process needs os.fork, which is not here")
    limited = limits.megabytes is not None

    def answer(*_: Any) -> StatusExport:
        try:
            status = attempt()
        except MemoryError:
            return _out_of_memory()
        if is_out_of_memory(status.reason) or (limited and _NO_KERNEL.search(status.reason)):
            return _out_of_memory()
        return replace(status, exported=None, error=None, inside=frozenset())

    def crash(*_: Any) -> StatusExport:
        return _crashed("an exception outside of the module", limits)

    memory = None if limits.megabytes is None else limits.megabytes * 2**20
    with Apart(answer, forks=True, here=crash, memory=memory) as apart:
        result = apart.ask(None, limits.seconds)
    if isinstance(result, StatusExport):
        return result
    return _of_end(result, limits)


def _of_end(ended: Ended, limits: Limits) -> StatusExport:
    match ended.kind:
        case "overdue":
            return _verdict("TIME", f"it did not end within {limits.seconds:g} s",
                            "look for a loop over a dimension, or give it more time")  # fmt: skip
        case "memory":
            return _out_of_memory()
    return _crashed(ended.reason, limits)


def _crashed(reason: str, limits: Limits) -> StatusExport:
    reason = f"the process was ended by {reason}"
    if limits.megabytes is not None:  # native code seldom asks whether it was given memory
        reason += f"; it had {limits.megabytes} megabytes at most"
        return _verdict("CRASH", reason, "give it more memory: what asks for more than there "
                        "is may crash")  # fmt: skip
    return _verdict("CRASH", reason, "native code failed: leave out half of what the module does "
                    "until it no longer crashes")  # fmt: skip


def _out_of_memory() -> StatusExport:
    return _verdict("MEMORY", "it needs more memory than it was given",
                    "give it more, or smaller inputs")  # fmt: skip


def _verdict(step: str, reason: str, advice: str) -> StatusExport:
    return StatusExport(StatusExportCode.FAIL, step, reason, advice=advice)
