"""Tensors and texts made of sizes, which would hold the sizes of the example."""

from __future__ import annotations

import linecache
import re
import sys
from collections.abc import Callable
from typing import Any

import torch

from torchferry.capturer.patching.patch import Attribute, Patch
from torchferry.values.source_line import is_library, is_own

__all__ = ["PATCHES"]

Function = Callable[..., Any]

_LINK = "https://docs.pytorch.org/docs/2.13/export.html#limitations-of-torch-export"
# Lines whose text is for people: no number of a program hangs on it.
_SHOWN = re.compile(
    r"\b(print|log|logger|logging|warn|warnings|raise|_?assert)\b|\blog\w*\.|_check"
)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_is_symbolic, value))
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)


def _of_first(data: Any = None, *_args: Any, **kwargs: Any) -> bool:
    return _is_symbolic(kwargs.get("obj", data))


def _of_second(_tensor: Any, data: Any = None, *more: Any, **_kwargs: Any) -> bool:
    return _is_symbolic(data) and not more


def _of_list(tensor: Any, data: Any = None, *more: Any, **kwargs: Any) -> bool:
    return isinstance(data, list | tuple) and _of_second(tensor, data, *more, **kwargs)


def _as_tensor(_original: Function) -> Function:
    def as_tensor(
        data: Any = None, dtype: Any = None, device: Any = None, *, obj: Any = None, **_kept: Any
    ) -> Any:
        """The same by torch.tensor, which keeps sizes."""
        return torch.tensor(data if obj is None else obj, dtype=dtype, device=device)

    return as_tensor


def _new_tensor(_original: Function) -> Function:
    def new_tensor(
        self: torch.Tensor, data: Any, *, dtype: Any = None, device: Any = None, **_kept: Any
    ) -> Any:
        """The same by torch.tensor, which keeps sizes."""
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or self.device)

    return new_tensor


def _shape_as_tensor(_original: Function) -> Function:
    def shape_as_tensor(self: torch.Tensor) -> torch.Tensor:
        """The same by torch.tensor, which keeps sizes."""
        return torch.tensor(self.shape, dtype=torch.int64)

    return shape_as_tensor


def _linspace(_original: Function) -> Function:
    def linspace(start: Any, end: Any, steps: Any, *, dtype: Any = None, **kept: Any) -> Any:
        """From either end to the middle, as upstream computes it."""
        wanted = torch.get_default_dtype() if dtype is None else dtype
        exact = wanted if wanted.is_floating_point else torch.float64
        places = torch.arange(steps, **kept)
        step = (end - start) / (torch.tensor(steps, dtype=exact, **kept) - 1).clamp(min=1)
        from_start, from_end = start + places * step, end - (steps - 1 - places) * step
        return torch.where(places < (steps + 1) // 2, from_start, from_end).to(wanted)

    return linspace


def _of_third(_start: Any, _end: Any, steps: Any = None, **kwargs: Any) -> bool:
    return _is_symbolic(steps) and not kwargs.keys() - {"dtype", "device"}


def _as_text(original: Function) -> Function:
    def text(self: torch.SymInt) -> Any:
        """The text of the number, which fixes it, where the user's code computes with it."""
        frame = sys._getframe(2)  # this function's caller is the one that counts hits
        if _SHOWN.search(_statement(frame.f_code.co_filename, frame.f_lineno)):
            return original(self)
        return str(int(self))

    return text


def _statement(file: str, number: int) -> str:
    """A line, with the one that opens the brackets it stands in."""
    line = linecache.getline(file, number)
    indent = len(line) - len(line.lstrip())
    for above in (linecache.getline(file, n) for n in range(number - 1, max(number - 30, 0), -1)):
        if above.strip() and len(above) - len(above.lstrip()) < indent:
            return above + line if above.rstrip().endswith(("(", "[", "{", ",")) else line
    return line


def _of_user(*_args: Any) -> bool:
    file = sys._getframe(2).f_code.co_filename
    return not is_library(file) and not is_own(file)


def _patch(subject: str, replace: Callable[[Function], Function], acts: Function) -> Patch:
    return Patch(
        subject=subject,
        why="a tensor made of sizes holds those of the example",
        link=_LINK,
        replace=replace,
        silent=True,
        acts=acts,
    )


PATCHES = (
    _patch("torch.as_tensor", _as_tensor, _of_first),
    _patch("torch.asarray", _as_tensor, _of_first),
    _patch("torch.Tensor.new_tensor", _new_tensor, _of_second),
    _patch("torch.Tensor.new", _new_tensor, _of_list),
    _patch("torch.linspace", _linspace, _of_third),
    _patch("torch._shape_as_tensor", _shape_as_tensor, lambda *_: True),
    Patch(
        subject="torch.SymInt.__repr__",
        why="the text of a size is that of torch's symbol for it, such as s77",
        link=_LINK,
        replace=_as_text,
        silent=True,
        acts=_of_user,
        places=lambda: [Attribute(torch.SymInt, "__repr__")],
    ),
)
"""All of them."""
