"""Time and memory of the steps of a walk."""

from __future__ import annotations

import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from torchferry.progress import Progress, show_steps
from torchferry.report.quantity import bytes_text, counted

__all__ = ["Step", "Steps", "bytes_text", "counted"]

_STATM = Path("/proc/self/statm")
_PAGE = resource.getpagesize()


@dataclass(frozen=True)
class Step:
    """One finished step.

    Attributes:
        name: a verb: ``capture``.
        seconds: wall time.
        cpu_seconds: processor time of this process.
        peak_bytes: the largest resident memory seen while it ran.
        size: what it made, for people: ``403 nodes``.
    """

    name: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    size: str = ""


@dataclass
class Steps:
    """The steps done so far.

    Attributes:
        progress: what to do with the name of each step as it begins; see `show_steps`.
        done: finished steps, in order.
    """

    progress: Progress = None
    done: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Measure a step; the yielded function says what it made."""
        made = [""]
        began, cpu = time.perf_counter(), time.process_time()
        with show_steps(self.progress) as begin, _peak_memory() as peak:
            begin(name)
            yield lambda text: made.__setitem__(0, text)
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        self.done.append(Step(name, seconds, cpu, peak(), made[0]))


@contextmanager
def _peak_memory(interval: float = 0.02) -> Iterator[Callable[[], int]]:
    """Sample resident memory in a thread; the yielded function gives the peak in bytes."""
    peak = [_resident()]
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(interval):
            peak[0] = max(peak[0], _resident())

    thread = threading.Thread(target=sample, daemon=True, name="torchferry-memory")
    thread.start()
    try:
        yield lambda: max(peak[0], _resident())
    finally:
        stop.set()
        thread.join()


def _resident() -> int:
    if _STATM.exists():
        return int(_STATM.read_text().split()[1]) * _PAGE
    # Elsewhere only the process's peak is known; macOS counts it in bytes, others in KiB.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
