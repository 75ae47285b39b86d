"""``len``, ``int``, ``float`` and ``divmod`` of sizes, which would be those of the example.

Python has these functions return numbers, so that a size loses its name there. While a model is
traced, its own modules have others by these names, which return symbols of symbols.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from torchferry.values.source_line import is_library, is_own

__all__ = ["symbolic_builtins"]

_SYMBOLS = (torch.SymInt, torch.SymFloat)
# Where the class itself is meant: as a dtype, and compared by identity.
_MEANT = re.compile(
    r"(?<![=!<>])=\s*(int|float)\b(?!\s*[(|.\[])|\bis\s+(not\s+)?(int|float)\b"
    r"|\.(to|type|astype|view|array|asarray)\([^)]*\b(int|float)\b(?!\()"
)


class _Number:
    """Stands for ``int`` or ``float``: other arguments go there, and so do tests of a type."""

    def __init__(self, cls: Any, symbol: Any, convert: Callable[[Any], Any]) -> None:
        self.cls, self.symbol, self.convert = cls, symbol, convert

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        symbolic = len(args) == 1 and isinstance(args[0], _SYMBOLS)
        return self.convert(args[0]) if symbolic else self.cls(*args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self.cls | self.symbol)

    def __subclasscheck__(self, cls: Any) -> bool:
        return issubclass(cls, self.cls)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self.cls

    def __hash__(self) -> int:
        return hash(self.cls)

    def __or__(self, other: Any) -> Any:
        return self.cls | other

    __ror__ = __or__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cls, name)


def _length(value: Any) -> Any:
    """``len``, of a tensor as it stands in its shape."""
    return value.shape[0] if isinstance(value, torch.Tensor) and value.ndim else len(value)


def _divmod(value: Any, by: Any) -> Any:
    symbolic = isinstance(value, _SYMBOLS) or isinstance(by, _SYMBOLS)
    return (value // by, value % by) if symbolic else divmod(value, by)


_FUNCTIONS: dict[str, Any] = {"len": _length, "divmod": _divmod}
_NUMBERS: dict[str, Any] = {
    "int": _Number(int, torch.SymInt, torch.sym_int),
    "float": _Number(float, torch.SymFloat, torch.sym_float),
}


@contextmanager
def symbolic_builtins(model: torch.nn.Module, apply: bool = True) -> Iterator[None]:
    """Have sizes pass ``len``, ``int``, ``float`` and ``divmod`` in the code of a model.

    Args:
        model: what is traced; its modules' files, and those of the packages they are in.
        apply: whether to do so; with ``False`` nothing happens.
    """
    changed: list[tuple[dict[str, Any], str, Any]] = []
    for module in _modules(model) if apply else ():
        names = vars(module)
        usable = _FUNCTIONS if _means_classes(module) else _FUNCTIONS | _NUMBERS
        for name in usable.keys() - names.keys():
            names[name] = usable[name]
            changed.append((names, name, usable[name]))
    try:
        yield
    finally:
        for names, name, value in changed:
            if names.get(name) is value:
                del names[name]


def _modules(model: torch.nn.Module) -> list[ModuleType]:
    """Modules of the packages that a model's classes are from, as far as they know torch."""
    classes = {cls for module in model.modules() for cls in type(module).__mro__}
    packages = {cls.__module__.partition(".")[0] for cls in classes}
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in packages and isinstance(module, ModuleType)
        and vars(module).keys() & {"torch", "nn", "Tensor", "F"}
        and (file := getattr(module, "__file__", None) or "<typed>")
        and not is_library(file) and not is_own(file)
    ]  # fmt: skip


@functools.cache
def _means_classes(module: ModuleType) -> bool:
    """Whether a module uses ``int`` or ``float`` otherwise than by calling it or as a type."""
    try:
        return bool(_MEANT.search(inspect.getsource(module)))
    except (OSError, TypeError):  # typed in
        return True
