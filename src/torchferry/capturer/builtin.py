"""``len``, ``int``, ``float``, ``min`` and the like of sizes, which would be those of the example.

Python has these functions return numbers, or ask which of two sizes is less, so that a size loses
its name there. While a model is traced, its own modules have others by these names, which return
symbols of symbols.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import torch

from torchferry.capturer.rewrite.walk import Growing, Rows
from torchferry.seams.pytorch import FakeTensor
from torchferry.seams.symbols import has_unbacked_symbols
from torchferry.values.source_line import is_library, is_own

__all__ = ["symbolic_builtins"]

_SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
# Where the class itself is meant: as a dtype, and compared by identity.
_MEANT = re.compile(
    r"(?<![=!<>])=\s*(int|float|bool|range)\b(?!\s*[(|.\[])"
    r"|\bis\s+(not\s+)?(int|float|bool|range)\b"
    r"|\.(to|type|astype|view|array|asarray)\([^)]*\b(int|float|bool)\b(?!\()"
)


class _Class:
    """Stands for a class: calls without symbols go there, and so do tests of a type.

    Args:
        cls: the class.
        symbol: what counts as an instance too.
        convert: makes an instance of symbols.
    """

    def __init__(self, cls: Any, convert: Callable[[Any], Any], symbol: Any = ()) -> None:
        self.cls, self.symbol, self.convert = cls, symbol, convert

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and isinstance(args[0], FakeTensor):
            return self.convert(args[0].item())
        symbolic = len(args) == 1 and _is_symbolic(args[0])
        return self.convert(args[0]) if symbolic else self.cls(*args, **kwargs)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, (self.cls, self.symbol))

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


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_symbolic, value))
    return isinstance(value, _SYMBOLS)


def _length(value: Any) -> Any:
    """``len``, of a tensor as it stands in its shape, and of a list that a loop over one fills."""
    if isinstance(value, Rows | Growing):
        return value.length
    return value.shape[0] if isinstance(value, torch.Tensor) and value.ndim else len(value)


def _sum(values: Any, start: Any = 0) -> Any:
    return values.data.sum(0) + start if isinstance(values, Rows) else sum(values, start)


def _truth(value: Any) -> Any:
    """``bool``: of sizes a guard, as Python has it; of what data decides a symbol."""
    if not has_unbacked_symbols(value):
        return bool(value)
    return value if isinstance(value, torch.SymBool) else value != 0


def _divmod(value: Any, by: Any) -> Any:
    symbolic = _is_symbolic(value) or _is_symbolic(by)
    return (value // by, value % by) if symbolic else divmod(value, by)


def _root(value: Any, original: Callable[[Any], float] = math.sqrt) -> Any:
    return value**0.5 if _is_symbolic(value) else original(value)


class _Range(_Class):
    """``range``, of as many steps as its sizes make at any value: one, from 0 to n by n."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 3 and isinstance(args[2], torch.SymInt):
            start, stop, step = args
            ratio = ((_expression(stop) - _expression(start)) / _expression(step)).cancel()
            if ratio.is_Rational and ratio > 0:
                return [start + step * i for i in range(math.ceil(ratio))]
        return range(*args, **kwargs)


def _expression(size: Any) -> Any:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _least(name: str) -> Callable[..., Any]:
    """``min`` or ``max``, of ratios of sizes too."""
    join = {"min": torch.sym_min, "max": torch.sym_max}[name]

    def least(*args: Any, **kwargs: Any) -> Any:
        values = args[0] if len(args) == 1 and isinstance(args[0], list | tuple) else args
        if not kwargs and any(isinstance(value, torch.SymFloat) for value in values):
            return functools.reduce(join, values)
        # torch.export has its own while it traces, for whole sizes.
        return getattr(builtins, name)(*args, **kwargs)

    return least


_FUNCTIONS: dict[str, Any] = {
    "len": _length, "divmod": _divmod, "sum": _sum, "min": _least("min"), "max": _least("max"),
}  # fmt: skip
_NUMBERS: dict[str, Any] = {
    "range": _Range(range, range),
    "int": _Class(int, torch.sym_int, torch.SymInt),
    "float": _Class(float, torch.sym_float, torch.SymFloat),
    "bool": _Class(bool, _truth, torch.SymBool),
}
_TENSORS: dict[str, Any] = {
    f"{name}Tensor": _Class(vars(torch)[f"{name}Tensor"], partial(torch.tensor, dtype=dtype))
    for name, dtype in (
        ("Long", torch.int64),
        ("Int", torch.int32),
        ("Float", torch.float32),
        ("Double", torch.float64),
    )
}


@contextmanager
def symbolic_builtins(model: torch.nn.Module, apply: bool = True) -> Iterator[None]:
    """Have sizes pass ``len``, ``int``, ``float``, ``min`` and so on in the code of a model.

    Those of ``torch.LongTensor([height, width])`` and ``math.sqrt`` are kept for all.

    Args:
        model: what is traced; its modules' files, and those of the packages they are in.
        apply: whether to do so; with ``False`` nothing happens.
    """
    places = [(vars(torch), _TENSORS), (vars(math), {"sqrt": _root})]
    for module in _modules(model):
        known = _FUNCTIONS if _means_classes(module) else _FUNCTIONS | _NUMBERS
        own = vars(module)
        places.append((own, {name: new for name, new in known.items() if name not in own}))
    changes = [(names, name, new) for names, news in places for name, new in news.items()]
    before = [names.get(name) for names, name, _ in changes]
    for names, name, new in changes if apply else ():
        names[name] = new
    try:
        yield
    finally:
        for (names, name, new), old in zip(changes, before, strict=True):
            if names.get(name) is new and old is not new:
                names.pop(name) if old is None else names.update({name: old})


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
