"""Packages that only some kinds of sources need, imported when one of them is asked for."""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from torchferry.errors import UsageError
from torchferry.seams.versions import torchvision_complaint
from torchferry.values.kinds import attempt

__all__ = ["call_package", "import_package", "unknown_name"]


def import_package(name: str, purpose: str) -> ModuleType:
    """Import an optional package.

    Args:
        name: of the module; ``pip`` knows it with ``-`` in place of ``_``.
        purpose: what needs it, as the subject of the error's sentence.

    Raises:
        UsageError: it is not installed, or cannot be imported.
    """
    top = name.partition(".")[0]
    module, error = attempt(lambda: [importlib.import_module(part) for part in (top, name)][-1])
    if error is None:
        imported: ModuleType = module
        return imported
    package = top.replace("_", "-")
    if isinstance(error, ModuleNotFoundError) and error.name == top:
        said = f"{purpose} needs {package}, which is not installed: pip install {package}"
    else:
        reason = " ".join(str(error).split())[:200]
        advice = torchvision_complaint() or f"pip install -U {package}"
        said = f"{purpose} needs {package}, which cannot be imported ({reason}): {advice}"
    raise UsageError(said) from error


def call_package(purpose: str, function: Any) -> Any:
    """Call a function of an optional package, which may raise anything.

    Args:
        purpose: what is being loaded, for the message.
        function: takes no arguments.

    Raises:
        UsageError: it raised; says what.
    """
    result, error = attempt(function)
    if error is None:
        return result
    if isinstance(error, UsageError):
        raise error
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    raise UsageError(f"{purpose} cannot be loaded: {reason}") from error


def unknown_name(prefix: str, name: str, known: list[str]) -> UsageError:
    """The error that says that a package has no such model, with the closest names."""
    close = [f"{prefix}:{other}" for other in get_close_matches(name, known)]
    hint = f"did you mean {' or '.join(close)}?" if close else f"{prefix}.list_models() lists them"
    return UsageError(f"{prefix} has no model {name!r}; {hint}")
