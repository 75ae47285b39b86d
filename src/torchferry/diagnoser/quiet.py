"""Hold back what torch prints, warns and logs while a piece is tried; tell what one asked for."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

from torchferry.capturer.watch import ShapeEvents, modules_of, watch_shapes
from torchferry.converter.provenance import user_line
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["line_here", "modules_here", "quiet", "telling"]

_HERE = str(Path(__file__).parents[1])

_log = logging.getLogger("torchferry")


@contextmanager
def quiet() -> Iterator[ShapeEvents]:
    """Show nothing of what happens in the block; what matters comes back as an exception.

    Yields:
        What was heard of symbolic sizes: which line fixed which.
    """
    with (
        watch_shapes() as events,
        disable_fast_paths(),
        warnings.catch_warnings(),
        redirect_stderr(StringIO()),
        redirect_stdout(StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield events


def line_here() -> str | None:
    """``file:line`` of the user's code that is running; None where torch works for a library.

    What of torchferry listens, and how Python tells of warnings, does not count.
    """
    modes = ("__torch_function__", "__torch_dispatch__")
    frames = [f for f in traceback.extract_stack() if f.name not in modes]
    while frames and frames[-1].filename.startswith((_HERE, warnings.__file__)):
        frames.pop()
    return user_line("".join(traceback.format_list(frames)))


def modules_here() -> frozenset[int]:
    """``id`` of the modules whose methods are running."""
    return frozenset(map(id, modules_of(traceback.walk_stack(None))))


@contextmanager
def telling(verbose: int) -> Iterator[None]:
    """Show the package's log on stdout within the block, when ``verbose`` is not 0."""
    if not verbose:
        yield
        return
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
    level = _log.level
    _log.addHandler(handler)
    _log.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    try:
        yield
    finally:
        _log.removeHandler(handler)
        _log.setLevel(level)
