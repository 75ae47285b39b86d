"""Try a piece in a process of its own, so that a crash or a hang is a verdict too."""

from __future__ import annotations

import json
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from torchferry.diagnoser.status import StatusExport, StatusExportCode
from torchferry.errors import UsageError
from torchferry.judge import Verdict
from torchferry.values.discrepancy import Discrepancy

__all__ = ["Limits", "in_process"]

_PLAIN = ("step", "reason", "line", "advice", "made", "call", "unsteady", "unchecked")
_NO_MEMORY = re.compile(r"can't allocate memory|bad_alloc|Cannot allocate|MemoryError")
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
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(attempt, limits, write)
    os.close(write)
    content: bytes | None = None
    try:
        content = _received(read, time.monotonic() + limits.seconds)
    finally:  # also after Ctrl-C
        os.close(read)
        if content is None:
            os.kill(child, signal.SIGKILL)
        _, code = os.waitpid(child, 0)
    if content is None:
        return _verdict("TIME", f"it did not end within {limits.seconds:g} s",
                        "look for a loop over a dimension, or give it more time")  # fmt: skip
    return _decoded(json.loads(content)) if content else _crashed(code, limits)


def _received(read: int, deadline: float) -> bytes | None:
    """What the child wrote before it ended; None when it did not end in time."""
    content = b""
    while True:
        ready, _, _ = select.select([read], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(read, 1 << 16)
        if not part:
            return content
        content += part


def _child(attempt: Callable[[], StatusExport], limits: Limits, write: int) -> NoReturn:
    """Run the attempt and end, without anything of the parent's being run or flushed twice."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        torch.set_num_threads(1)  # the threads of the parent are not in its copy
        if limits.megabytes is not None:
            most = _address_space() + limits.megabytes * 2**20
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        try:
            status = attempt()
        except MemoryError:
            status = _out_of_memory()
        with os.fdopen(write, "wb") as stream:
            stream.write(json.dumps(_encoded(status, limits)).encode())
        code = 0
    finally:
        os._exit(code)


def _address_space() -> int:
    """Bytes of address space this process has."""
    pages = Path("/proc/self/statm")
    if not pages.is_file():
        raise UsageError("a memory limit needs /proc/self/statm, which is not on this system")
    return int(pages.read_text("ascii").split()[0]) * resource.getpagesize()


def _encoded(status: StatusExport, limits: Limits) -> dict[str, object]:
    limited = limits.megabytes is not None
    if _NO_MEMORY.search(status.reason) or (limited and _NO_KERNEL.search(status.reason)):
        status = _out_of_memory()
    plain = {name: getattr(status, name) for name in _PLAIN}
    verdict = None if status.verdict is None else asdict(status.verdict)
    return {
        **plain, "status": int(status.status), "notes": list(status.notes), "verdict": verdict,
    }  # fmt: skip


def _decoded(data: dict[str, Any]) -> StatusExport:
    plain = {name: data[name] for name in _PLAIN}
    said, verdict = data["verdict"], None
    if said is not None:
        verdict = Verdict(**{**said, "difference": Discrepancy(**said["difference"])})
    code = StatusExportCode(data["status"])
    return StatusExport(code, notes=tuple(data["notes"]), verdict=verdict, **plain)


def _crashed(code: int, limits: Limits) -> StatusExport:
    if os.WIFSIGNALED(code):
        name = signal.Signals(os.WTERMSIG(code)).name
        reason = f"the process was ended by {name}"
    else:
        reason = f"the process ended with exit code {os.waitstatus_to_exitcode(code)}"
    if limits.megabytes is not None:  # native code seldom asks whether it was given memory
        reason += f"; it had {limits.megabytes} megabytes at most"
        return _verdict("CRASH", reason, "give it more memory: what asks for more than there "
                        "is may crash; else see its output above")  # fmt: skip
    return _verdict("CRASH", reason, "native code failed: see its output above, and leave out "
                    "half of what the module does until it no longer crashes")  # fmt: skip


def _out_of_memory() -> StatusExport:
    return _verdict("MEMORY", "it needs more memory than it was given",
                    "give it more, or smaller inputs")  # fmt: skip


def _verdict(step: str, reason: str, advice: str) -> StatusExport:
    return StatusExport(StatusExportCode.FAIL, step, reason, advice=advice)
