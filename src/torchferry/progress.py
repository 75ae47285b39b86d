"""A line on stderr that says which step is under way, once the step takes over a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

__all__ = ["Progress", "show_steps"]

Progress = Callable[[str], object] | bool | None
"""What a function does with the names of its steps: it hands them to a function, or shows them on
a terminal (``None`` or ``True``), or keeps them to itself (``False``)."""

_FRAMES = "|/-\\"
_shown = threading.Lock()  # one line at a time, whoever calls whom


@contextmanager
def show_steps(
    progress: Progress = None, *, delay: float = 1.0
) -> Iterator[Callable[[str], object]]:
    """Show the step under way.

    Nothing is shown when stderr is not a terminal (a log, a notebook, a test), or when a caller
    shows its own steps already.

    Args:
        progress: what to do with the names of the steps.
        delay: seconds before a step is shown.

    Yields:
        A function to call with the name of each step as it begins.
    """
    first = _shown.acquire(blocking=False)  # what is called from here shows nothing of its own
    try:
        if callable(progress):
            yield progress
        elif first and progress is not False and sys.stderr is not None and sys.stderr.isatty():
            with _line(sys.stderr, delay) as begin:
                yield begin
        else:
            yield lambda _name: None
    finally:
        if first:
            _shown.release()


@contextmanager
def _line(stream: TextIO, delay: float) -> Iterator[Callable[[str], object]]:
    """The line, on stderr as it is now: a capture may put something else there for a while."""
    current = [("", time.monotonic())]
    stop = threading.Event()

    def show() -> None:
        while not stop.wait(0.2):
            name, began = current[0]
            seconds = time.monotonic() - began
            if name and seconds >= delay:
                frame = _FRAMES[int(seconds * 5) % 4]
                stream.write(f"\r\x1b[2K{frame} {name} … {seconds:.0f} s")
                stream.flush()

    def begin(name: str) -> None:
        current[0] = (name, time.monotonic())

    thread = threading.Thread(target=show, daemon=True, name="torchferry-progress")
    thread.start()
    try:
        yield begin
    finally:
        stop.set()
        thread.join()
        stream.write("\r\x1b[2K")
        stream.flush()
