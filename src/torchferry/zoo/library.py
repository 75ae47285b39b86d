"""transformers, imported when a model needs it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from torchferry.errors import UsageError

__all__ = ["OLDEST", "check_transformers", "import_transformers", "quiet"]

OLDEST = "4.57"
"""The oldest transformers that is tested, and that `pyproject.toml` accepts."""


def import_transformers(purpose: str) -> ModuleType:
    """Import transformers, which is an optional dependency.

    Args:
        purpose: what needs it, as the subject of the error's sentence: ``"zoo:tiny-llm"``.

    Raises:
        UsageError: transformers is not installed.
    """
    try:
        return importlib.import_module("transformers")
    except ImportError as error:
        raise UsageError(
            f"{purpose} needs transformers ({error}): "
            "install it with  pip install 'torchferry[hf]'"
        ) from error


def check_transformers(purpose: str, since: str) -> ModuleType:
    """Import transformers of a version or a newer one.

    Args:
        purpose: see `import_transformers`.
        since: major and minor version, ``"5.10"``.

    Raises:
        UsageError: transformers is not installed, or too old.
    """
    transformers = import_transformers(purpose)
    if _number(transformers.__version__) < _number(since):
        raise UsageError(
            f"{purpose} needs transformers {since} or newer, and {transformers.__version__} is "
            f"installed. Run pip install 'transformers>={since}'"
        )
    return transformers


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


@contextmanager
def quiet(transformers: ModuleType) -> Iterator[None]:
    """Keep transformers from drawing bars and tables of its own."""
    logging = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
