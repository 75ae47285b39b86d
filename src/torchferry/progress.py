"""A line that says which step is under way, once it takes over a second.

It stands on stderr where that is a terminal, and below the cell in a notebook.
"""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TextIO

__all__ = ["Progress", "show_steps"]

Progress = Callable[[str], object] | bool | None
"""What a function does with the names of its steps: it hands them to a function, or shows them on
a terminal or in a notebook (``None`` or ``True``), or keeps them to itself (``False``)."""

_FRAMES = "|/-\\"
_shown = threading.Lock()  # one line at a time, whoever calls whom


@contextmanager
def show_steps(
    progress: Progress = None, *, delay: float = 1.0
) -> Iterator[Callable[[str], object]]:
    """Show the step under way.

    Nothing is shown when stderr is neither a terminal nor that of a notebook (a log, a test), or
    when a caller shows its own steps already.

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
        elif first and progress is not False and (show := _place()):
            with _line(show, delay) as begin:
                yield begin
        else:
            yield lambda _name: None
    finally:
        if first:
            _shown.release()


def _place() -> Callable[[str], object] | None:
    """What shows a line in the place of the last, and wipes it for an empty one, if there is any.

    Stderr is taken as it is now: a capture may put something else there for a while.
    """
    if sys.stderr is not None and sys.stderr.isatty():
        return partial(_write, sys.stderr)
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return _Cell().show if getattr(shell, "kernel", None) is not None else None


def _write(stream: TextIO, line: str) -> None:
    stream.write(f"\r\x1b[2K{line}")
    stream.flush()


class _Cell:
    """A line below the cell that runs; nothing is there before the first."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, line: str) -> None:
        data = {"text/plain": line}
        if self._handle is not None:
            self._handle.update(data, raw=True)
        elif line:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)


@contextmanager
def _line(show: Callable[[str], object], delay: float) -> Iterator[Callable[[str], object]]:
    current = [("", time.monotonic())]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            name, began = current[0]
            seconds = time.monotonic() - began
            if name and seconds >= delay:
                show(f"{_FRAMES[int(seconds * 5) % 4]} {name} … {seconds:.0f} s")

    def begin(name: str) -> None:
        current[0] = (name, time.monotonic())

    thread = threading.Thread(target=watch, daemon=True, name="torchferry-progress")
    thread.start()
    try:
        yield begin
    finally:
        stop.set()
        thread.join()
        show("")
