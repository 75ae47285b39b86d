"""Hold back what torch prints, warns and logs while a piece is tried; tell what one asked for."""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO

from torchferry.capturer.watch import ShapeEvents, modules_of, watch_shapes
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["modules_here", "quiet", "telling"]

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
