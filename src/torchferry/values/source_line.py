"""Lines of source as messages show them, and whose code they are."""

from __future__ import annotations

import linecache
import os
import re
import sysconfig
import traceback
import warnings
from pathlib import Path

import torch

__all__ = [
    "LIMIT", "innermost_place", "is_library", "is_own", "line_here", "package_of", "shown_line",
    "user_line",
]  # fmt: skip

LIMIT = 120
"""Characters of code that a message shows."""

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_TORCH = str(Path(torch.__file__).parent) + os.sep
_HERE = str(Path(__file__).parent.parent) + os.sep
_MODELS = str(Path(_HERE, "zoo")) + os.sep  # they stand for a user's
_BETWEEN = tuple(  # called by the user's code while it is captured: further out is the user
    str(Path(_HERE, "capturer", name))
    for name in ("builtin.py", "rewrite", "patching/patching.py", "patches")
)
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_GENERATED = ("<eval_with_key", "<frozen", "<string>", "<unknown")  # not what a user types in
_MODES = ("__torch_function__", "__torch_dispatch__")
_CALLED = ("onnx", "onnx_ir", "onnxruntime", "onnxscript", "sympy")  # by torch


def shown_line(file: str, number: int | str, code: str | None = None) -> str:
    """``file:line: code``, the code cut where it is long.

    Args:
        file: its path.
        number: of the line.
        code: what stands there; read from the file when ``None``.

    >>> shown_line("a.py", 3, " x = 1 ")
    'a.py:3: x = 1'
    """
    text = (linecache.getline(file, int(number)) if code is None else code).strip()
    text = text if len(text) <= LIMIT else f"{text[: LIMIT - 1].rstrip()}…"
    return f"{file}:{number}: {text}" if text else f"{file}:{number}"


def is_library(file: str) -> bool:
    """Whether a file is torch's, the standard library's, of what torch calls, or generated code.

    Other packages, such as transformers, hold models: their lines are worth naming.
    """
    called = package_of(file) in (*_CALLED, "Python")
    return called or file.startswith((_TORCH, *_GENERATED, *_BETWEEN))


def is_own(file: str) -> bool:
    """Whether a file is torchferry's: further out on the stack is who called it."""
    return file.startswith(_HERE) and not file.startswith((_MODELS, *_BETWEEN))


def package_of(line: str | None) -> str:
    """The installed package, or Python, that ``file:line`` or a file belongs to; ``""`` if none.

    >>> package_of("/env/lib/python3.11/site-packages/transformers/cache.py:3: x")
    'transformers'
    >>> package_of("/home/me/model.py:3: x")
    ''
    """
    text = line or ""
    for folder in _PACKAGES:
        if folder in text:
            return re.split(r"[/\\.:]", text.split(folder, 1)[1])[0]
    return "torch" if text.startswith(_TORCH) else "Python" if text.startswith(_STANDARD) else ""


def innermost_place(stack_trace: str | None) -> tuple[str, str] | None:
    """File and line number of the innermost frame of a printed stack that is no library's.

    ``None`` where torch works for torchferry.
    """
    frames: list[tuple[str, str]] = _FRAME.findall(stack_trace or "")
    found = next((frame for frame in reversed(frames) if not is_library(frame[0])), None)
    return None if found is None or is_own(found[0]) else found


def user_line(stack_trace: str | None) -> str | None:
    r"""``file:line`` of the innermost frame of a stack trace that is not torch's or ours.

    >>> user_line('File "/home/me/model.py", line 12, in forward\n    x = x + 1')
    '/home/me/model.py:12'
    """
    return ":".join(innermost_place(stack_trace) or ()) or None


def line_here() -> str | None:
    """``file:line`` of the user's code that is running; None where torch works for a library.

    What of torchferry listens, and how Python tells of warnings, does not count.
    """
    frames = [f for f in traceback.extract_stack() if f.name not in _MODES]
    while frames and frames[-1].filename.startswith((_HERE, warnings.__file__)):
        frames.pop()
    return user_line("".join(traceback.format_list(frames)))
