"""The code that a class or function of the user's needs, collected into one script."""

from __future__ import annotations

import ast
import builtins
import inspect
import logging
import sys
import sysconfig
import textwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torchferry.errors import UsageError

__all__ = ["Code", "is_users"]

_INSTALLED = (sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
# An environment may be a link to another folder.
_LIBRARIES = tuple(
    str(Path(folder).resolve()) for folder in (*_INSTALLED, str(Path(__file__).parents[2]))
)
_LITERALS = (bool, int, float, str, bytes, tuple, list, dict, frozenset, set, type(None))


def is_users(thing: Any) -> bool:
    """Whether a class or function stands in a file of the user's, not in an installed package.

    >>> is_users(Path), is_users(Code)
    (False, False)
    """
    module = sys.modules.get(getattr(thing, "__module__", ""))
    file = getattr(module, "__file__", None)
    if module is None or module is builtins:
        return False
    return getattr(module, "__name__", "") == "__main__" or (
        file is not None and not str(Path(file).resolve()).startswith(_LIBRARIES)
    )


class Code:
    """Imports and definitions, in the order in which they have to run.

    Attributes:
        imports: lines.
        definitions: what stands for each name, as source.
        left_out: names that no source was found for.
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.definitions: dict[str, str] = {}
        self.left_out: set[str] = set()
        self._by_id: dict[int, str] = {}

    def refer(self, thing: Any) -> str:
        """The name of a class or function in the script, which has it from now on.

        Raises:
            UsageError: its source is not there, as for what was typed at a prompt.
        """
        name: str = thing.__qualname__
        if not is_users(thing):
            top = name.partition(".")[0]
            if thing.__module__ != "builtins":
                self.imports.add(f"from {thing.__module__} import {top}")
            return name
        plain = str(thing.__name__)
        if id(thing) not in self._by_id:
            self._by_id[id(thing)] = plain
            self._define(thing, plain)
        return plain

    def text(self) -> str:
        """Imports, then definitions."""
        parts = ["\n".join(sorted(self.imports)), *self.definitions.values()]
        return "\n\n\n".join(part for part in parts if part)

    def _define(self, thing: Any, plain: str) -> None:
        try:
            source = textwrap.dedent(inspect.getsource(thing))
        except (OSError, TypeError):
            source = ""
        # Of a class that was typed in, Python 3.13 gives a line of the module's file.
        if not source or (isinstance(thing, type) and f"class {plain}" not in source):
            raise UsageError(f"the source of {plain} is not there: put it in a file")
        # A file that was imported twice has all its classes twice.
        if self.definitions.get(plain) == source.rstrip():
            return
        if plain in self.definitions:
            raise UsageError(f"two things are called {plain}: one script cannot hold both")
        scope = {**vars(sys.modules[thing.__module__]), **_enclosed(thing)}
        used = {n.id for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Name)}
        for name in sorted(used - {plain}):
            if name in scope and not hasattr(builtins, name):
                self._need(name, scope[name])
        self.definitions[plain] = source.rstrip()

    def _need(self, name: str, value: Any) -> None:
        """Make a name of the user's module known in the script."""
        if isinstance(value, ModuleType):
            if not is_users(type("of", (), {"__module__": value.__name__})):
                self.imports.add(f"import {value.__name__} as {name}")
            else:
                self.left_out.add(name)
        elif isinstance(value, type | FunctionType) or (
            callable(value) and hasattr(value, "__qualname__") and hasattr(value, "__module__")
        ):
            known = self.refer(value)
            if known != name:
                self.definitions.setdefault(name, f"{name} = {known}")
        elif isinstance(value, logging.Logger):
            self.imports.add("import logging")
            self.definitions.setdefault(name, f"{name} = logging.getLogger({value.name!r})")
        elif isinstance(value, _LITERALS) and _is_literal(value):
            self.definitions.setdefault(name, f"{name} = {value!r}")
        elif getattr(value, "__module__", None) == "typing":
            self.imports.add(f"from typing import {name}")
        else:
            self.left_out.add(name)


def _is_literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (SyntaxError, ValueError):
        return False


def _enclosed(thing: Any) -> dict[str, Any]:
    """Variables of the functions that a class or function was defined in."""
    found: dict[str, Any] = {}
    members = vars(thing).values() if isinstance(thing, type) else [thing]
    for member in members:
        function = getattr(member, "__func__", member)
        if isinstance(function, FunctionType):
            found |= inspect.getclosurevars(function).nonlocals
    return found
