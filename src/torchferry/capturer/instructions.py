"""Which instructions of the user's code Python runs."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any

from torchferry.values.source_line import is_library, is_own, package_of, shown_line

__all__ = ["first_line", "is_users", "line_of", "run_instructions"]

_TYPED = "<string>"  # python -c, and exec; what libraries generate is called so too


@contextmanager
def run_instructions() -> Iterator[set[tuple[CodeType, int]]]:
    """Collect the instructions that run inside the block, but for those of installed packages.

    Each is a piece of code and the place in its bytecode. Packages ask for sizes to save time, and
    their users have run them at all sizes.
    """
    found: set[tuple[CodeType, int]] = set()

    def enter(frame: FrameType, _event: str, _: Any) -> Any:
        if not is_users(frame.f_code.co_filename):
            return None
        frame.f_trace_lines = False
        frame.f_trace = note  # Python 3.13 forgets the next line where nobody traces the frame
        frame.f_trace_opcodes = True
        return note

    def note(frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            found.add((frame.f_code, frame.f_lasti))
        return note

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks in settrace whether any frame has it
    sys.settrace(enter)
    try:
        yield found
    finally:
        sys.settrace(before)


@cache  # Python asks at every call, of a few hundred files
def is_users(file: str) -> bool:
    """Whether a file is no installed package's, nor torchferry's."""
    is_torchs = is_library(file) and file != _TYPED
    return not (is_torchs or is_own(file) or package_of(file))


def line_of(code: CodeType, offset: int) -> tuple[str, int]:
    """File and number of the line that an instruction stands in; 0 where it stands in none."""
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return code.co_filename, line or 0
    return code.co_filename, 0


def first_line(instructions: Collection[tuple[CodeType, int]]) -> str:
    """``file:line: code`` of the instruction that stands first in its file; ``""`` of none."""
    places = [place for one in instructions if (place := line_of(*one))[1]]
    return shown_line(*min(places)) if places else ""
