"""A line on stderr that says which step is under way, once it takes over a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["progress"]

_FRAMES = "|/-\\"


@contextmanager
def progress(delay: float = 1.0) -> Iterator[Callable[[str], None]]:
    """Show the step under way.

    Nothing is shown when stderr is not a terminal.

    Args:
        delay: seconds before a step is shown.

    Yields:
        A function to call with the name of each step as it begins.
    """
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    current = [("", time.monotonic())]
    stop = threading.Event()

    def show() -> None:
        while not stop.wait(0.2):
            name, began = current[0]
            seconds = time.monotonic() - began
            if name and seconds >= delay:
                frame = _FRAMES[int(seconds * 5) % 4]
                sys.stderr.write(f"\r\x1b[2K{frame} {name} … {seconds:.0f} s")
                sys.stderr.flush()

    def begin(name: str) -> None:
        current[0] = (name, time.monotonic())

    thread = threading.Thread(target=show, daemon=True, name="torchferry-progress")
    thread.start()
    try:
        yield begin
    finally:
        stop.set()
        thread.join()
        sys.stderr.write("\r\x1b[2K")
        sys.stderr.flush()
