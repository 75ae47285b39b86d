"""transformers, imported when a model needs it."""

from __future__ import annotations

import importlib
from types import ModuleType

from torchferry.errors import UsageError

__all__ = ["import_transformers"]


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
