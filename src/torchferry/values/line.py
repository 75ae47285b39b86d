"""The line of the user's code that is running, or that a stack trace names."""

from __future__ import annotations

import os
import re
import traceback
import warnings
from pathlib import Path

import torch

__all__ = ["line_here", "user_line"]

_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<where>\S+)')
_TORCH = str(Path(torch.__file__).parent) + os.sep
_HERE = str(Path(__file__).parents[1])
_MODES = ("__torch_function__", "__torch_dispatch__")


def user_line(stack_trace: str | None) -> str | None:
    r"""``file:line`` of the innermost frame of a stack trace that is not torch's own.

    >>> user_line('File "/home/me/model.py", line 12, in forward\n    x = x + 1')
    '/home/me/model.py:12'
    """
    frames = [f for f in _FRAME.finditer(stack_trace or "") if not f["file"].startswith(_TORCH)]
    return f"{frames[-1]['file']}:{frames[-1]['line']}" if frames else None


def line_here() -> str | None:
    """``file:line`` of the user's code that is running; None where torch works for a library.

    What of torchferry listens, and how Python tells of warnings, does not count.
    """
    frames = [f for f in traceback.extract_stack() if f.name not in _MODES]
    while frames and frames[-1].filename.startswith((_HERE, warnings.__file__)):
        frames.pop()
    line = user_line("".join(traceback.format_list(frames)))
    return None if line is None or line.startswith(_HERE) else line
