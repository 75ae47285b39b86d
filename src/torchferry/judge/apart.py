"""A forked copy of this process that answers questions, and may die without ending this one."""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import re
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self

import torch

__all__ = ["Apart", "Ended", "Note", "available_memory", "can_fork", "is_out_of_memory"]

Note = Callable[[str, str], None]
"""Tells the process that asked what is being done: ``note("side", "PyTorch")``."""

_FAULT = 70  # exit code after an exception that nobody expects: EX_SOFTWARE of sysexits.h
_GRACE = 5  # seconds after which a copy ends itself, if nobody else has ended it
_MEMINFO = Path("/proc/meminfo")
_STATUS = Path("/proc/self/status")
_FIRST_TO_GO = Path("/proc/self/oom_score_adj")
# What Python, torch, onnxruntime and C++ say of memory that is not there.
_NO_MEMORY = re.compile(
    r"MemoryError|can't allocate memory|not enough memory|bad_alloc|Cannot allocate|"
    r"Failed to allocate memory"
)


@dataclass(frozen=True)
class Ended:
    """Why there is no answer.

    Attributes:
        kind: ``died`` (by a signal or an exit of native code), ``overdue`` (after its time) or
            ``memory`` (for want of it).
        reason: ``signal 11, segmentation fault``.
        notes: what was told last under each heading.
    """

    kind: Literal["died", "overdue", "memory"]
    reason: str
    notes: dict[str, str]


def can_fork(model: torch.nn.Module) -> bool:
    """Whether a copy of this process can run the model.

    Not where the system has no fork or its libraries do not survive one (macOS), and not when a
    device is in use.
    """
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return False
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's own
        return False
    return all(t.device.type in ("cpu", "meta") for t in (*model.parameters(), *model.buffers()))


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping; ``None`` where the system does not say."""
    return _kibibytes(_MEMINFO, "MemAvailable")


def is_out_of_memory(text: str) -> bool:
    """Whether an error's text says that there was not enough memory."""
    return _NO_MEMORY.search(text) is not None


def _silent(_: str, __: str) -> None:
    """A note that nobody reads: what this process does shows."""


class Apart:
    """Answers in a copy of this process; a new copy is made when one has died.

    The copy shares the memory of this process until either writes. It has one thread, since the
    threads of this process are not in it, and prints nowhere. Questions and answers are pickled,
    so both consist of data. A question on which the copy raised is asked again in this process,
    which shows the exception with all it has to say.
    """

    def __init__(
        self,
        answer: Callable[[Any, Note], Any],
        *,
        forks: bool,
        here: Callable[[Any, Note], Any] | None = None,
        memory: int | None = None,
    ) -> None:
        """Prepare; the first question makes the copy.

        Args:
            answer: gives the answer to a question, in the copy; an exception ends the copy.
            forks: whether a copy can be made (`can_fork`); else all is answered in this process.
            here: answers in this process, if not ``answer`` too.
            memory: bytes the copy may allocate, beside what this process has.
        """
        self._answer = answer
        self._here = here or answer
        self._forks = forks
        self._memory = memory
        self._child: int | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, question: Any, seconds: float) -> Any:
        """The answer, or `Ended`.

        Args:
            question: see `Apart`.
            seconds: until the copy is ended; in this process nothing is.
        """
        if not self._forks:
            return self._here(question, _silent)
        pipe = self._pipe or self._fork()
        until = time.monotonic() + seconds
        notes: dict[str, str] = {}
        try:
            pipe.send((question, seconds))
            while pipe.poll(max(0.0, until - time.monotonic())):
                heading, value = pipe.recv()
                if heading is None:
                    return value
                notes[heading] = value
        except (EOFError, OSError):
            code = self.close()
            if code == _FAULT:
                return self._here(question, _silent)
            return _ended(code, notes)
        self.close()
        return Ended("overdue", f"not done after {seconds:.3g} s", notes)

    def close(self) -> int | None:
        """End the copy; its exit code, negative after a signal, if it ended by itself."""
        child, pipe = self._child, self._pipe
        self._child = self._pipe = None
        if child is None or pipe is None:
            return None
        pipe.close()  # a copy that waits for a question ends
        with suppress(ChildProcessError):  # somebody else has waited for it
            done, status = os.waitpid(child, os.WNOHANG)
            if not done:
                _, status = _killed_when_late(child)
            return os.waitstatus_to_exitcode(status)
        return None

    def _fork(self) -> Connection:
        ours, theirs = Pipe()
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: only those of this process's libraries hold locks, and
            # the copy asks them for one thread.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            ours.close()
            _serve(theirs, self._answer, self._memory)
        theirs.close()
        self._child, self._pipe = child, ours
        return ours


def _killed_when_late(child: int) -> tuple[int, int]:
    """Wait a moment for a process that has closed its pipe, then kill it."""
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return done, status
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)


def _ended(code: int | None, notes: dict[str, str]) -> Ended:
    if code is not None and code < 0:
        if -code == signal.SIGKILL:  # nobody here sent it: the system was short of memory
            return Ended("memory", "the system ended it for want of memory", notes)
        name = (signal.strsignal(-code) or "unknown").lower()
        return Ended("died", f"signal {-code}, {name}", notes)
    return Ended("died", f"exit code {code}", notes)


# In the copy ------------------------------------------------------------------------------------


def _serve(pipe: Connection, answer: Callable[[Any, Note], Any], memory: int | None) -> NoReturn:
    """Answer until nobody asks; nothing of this process's parent is run or flushed twice."""
    code = _FAULT
    try:
        _settle(memory)
        with suppress(EOFError, OSError):
            while True:
                question, seconds = pipe.recv()
                # Nobody waits for an answer any more, should the parent be killed.
                signal.alarm(min(math.ceil(seconds) + _GRACE, 2**31 - 1))
                value = answer(question, lambda heading, text: pipe.send((heading, text)))
                pipe.send((None, value))
        code = 0
    finally:
        os._exit(code)


def _settle(memory: int | None) -> None:
    gc.freeze()  # objects of the parent are not this process's to finalize
    faulthandler.disable()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    nowhere = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    for stream in (1, 2):
        os.dup2(nowhere.fileno(), stream)
    sys.stdout = sys.stderr = nowhere  # those of a notebook or a test have other files
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        _FIRST_TO_GO.write_text("1000", "ascii")  # not the parent, when memory is short
    taken = _kibibytes(_STATUS, "VmData")
    if memory is not None and taken is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = [limit for limit in (soft, hard, taken + memory) if limit >= 0]
        resource.setrlimit(resource.RLIMIT_DATA, (min(most), hard))
    torch.set_num_threads(1)


def _kibibytes(file: Path, name: str) -> int | None:
    """A line ``Name:  123 kB`` of a file of Linux's /proc, in bytes."""
    if not file.is_file():
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB", file.read_text("ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
