"""Users' own code: functions that make models and inputs, found by name and called."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from types import GeneratorType, ModuleType
from typing import Any

from torch import nn

from torchferry.dims import Legal
from torchferry.errors import UsageError
from torchferry.observer.maker import Maker, size_parameters
from torchferry.seams.versions import torchvision_complaint

__all__ = ["call", "find_function", "make_inputs", "make_model"]

_LIBRARIES = (
    *(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)


def find_function(text: str) -> Any:
    """Import what ``package.module:name`` or ``FILE.py:name`` stands for.

    The current directory, or the file's, is put on ``sys.path`` and stays there, as Python does
    it for ``python -m`` and ``python FILE.py``: the code may import its neighbours later on.

    Raises:
        UsageError: no such file, module or name, or importing it raises.
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise UsageError(f"{text!r} names no function: write {text.strip(':')}:function")
    module = _import_file(Path(place)) if place.endswith(".py") else _import_module(place)
    if not hasattr(module, name):
        public = [other for other in vars(module) if not other.startswith("_")]
        close = get_close_matches(name, public)
        hint = f"did you mean {' or '.join(close)}?" if close else "is it spelt right?"
        raise UsageError(f"{place} has no {name!r}; {hint}")
    return getattr(module, name)


def make_model(text: str) -> tuple[nn.Module, Any]:
    """Call a factory and take its answer apart.

    Args:
        text: ``package.module:factory``; the factory takes no arguments and returns a module,
            ``(module, input sets)``, or a dictionary with ``model`` and perhaps ``inputs`` (one
            set or a list of them). A module in place of the factory is taken as it is.

    Returns:
        The module, and its input sets as they were given, or ``None``.

    Raises:
        UsageError: the factory is not found, raises, takes arguments or returns something else.
    """
    found = find_function(text)
    made = found if isinstance(found, nn.Module) else call(text, found)
    if isinstance(made, nn.Module):
        return made, None
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return made
    if isinstance(made, dict) and isinstance(made.get("model"), nn.Module):
        inputs = made.get("inputs")
        return made["model"], inputs if inputs is None or isinstance(inputs, list) else [inputs]
    raise UsageError(
        f"{text} returned {_kind(made)}; expected a torch.nn.Module, (module, input sets), or "
        "a dictionary with 'model' and 'inputs'"
    )


def make_inputs(text: str, model: nn.Module, legal: Legal | None = None) -> Any:
    """What ``--inputs FILE.py:NAME`` stands for.

    Args:
        text: names a list of input sets; a function that returns such a list, called without
            arguments, or with the model if it has a parameter ``model``; or a function of sizes,
            ``def make(batch_size, height)``, that returns one set.
        model: for a function that takes it.
        legal: the sizes that a function of sizes may be asked for; all when ``None``.

    Returns:
        The input sets, or a `Maker`.

    Raises:
        UsageError: there is no such file or name, or the function raises.
    """
    place = text.rpartition(":")[0]
    if not place.endswith(".py"):
        raise UsageError(f"--inputs takes FILE.py:NAME, and was given {text!r}")
    function = find_function(text)
    if isinstance(function, list):
        return function
    if not callable(function):
        raise UsageError(f"--inputs {text} is {_kind(function)}, not a function or a list")
    named = {"model": model} if "model" in inspect.signature(function).parameters else {}
    sizes = size_parameters(function)
    if not sizes or None not in sizes.values():
        made = call(text, function, **named)
        if not sizes or isinstance(made, list | GeneratorType):
            return made
    return Maker(
        lambda **asked: call(text, function, **named, **asked), text, sizes, legal or Legal()
    )


def call(text: str, function: Any, **kwargs: Any) -> Any:
    """Call users' code, named ``text`` in messages.

    Raises:
        UsageError: it cannot be called so, or it raises: says what and where in the user's file.
    """
    if not callable(function):
        raise UsageError(f"{text} is {_kind(function)}; expected a function that makes the model")
    try:
        inspect.signature(function).bind(**kwargs)
    except TypeError as error:
        given = f"{', '.join(kwargs)} by name" if kwargs else "no arguments"
        signature = inspect.signature(function)
        raise UsageError(f"{text} takes {signature}, and it is called with {given}") from error
    return _guarded(text, lambda: function(**kwargs))


def _guarded(text: str, action: Callable[[], Any]) -> Any:
    """Run users' code; the one place where any exception it raises is caught."""
    try:
        return action()
    except (Exception, SystemExit) as error:
        place = _place_of(error)
        message = " ".join(str(error).split())[:300]
        built = torchvision_complaint() if "torchvision" in message else ""
        raise UsageError(
            f"{text} raised {type(error).__name__}: {message}\n  at {place}"
            + (f"\n  {built}" if built else "")
        ) from error


def _place_of(error: BaseException) -> str:
    """``file:line`` of the last frame that is the user's."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith((*_LIBRARIES, "<"))]
    last = (own or frames)[-1]
    return f"{last.filename}:{last.lineno}"


def _import_module(name: str) -> ModuleType:
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    importlib.invalidate_caches()
    try:
        module: ModuleType = _guarded(name, lambda: importlib.import_module(name))
    except UsageError as error:
        cause = error.__cause__
        if isinstance(cause, ModuleNotFoundError) and f"{name}.".startswith(f"{cause.name}."):
            raise UsageError(
                f"there is no module {name!r}, neither in the current directory nor installed"
            ) from error
        raise
    return module


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = f"torchferry_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} cannot be imported as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    loader = spec.loader
    _guarded(os.fspath(path), lambda: loader.exec_module(module))
    return module


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[:1] in 'aeiouAEIOU' else 'a'} {name}"
