"""Listen to torch's symbolic shapes while it traces: which line of the user's code fixed a size.

torch logs every guard and every symbol that became a constant while the user's forward is on the
Python stack, so the frame that caused it can be read off there.
"""

from __future__ import annotations

import logging
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import torch

from torchferry.seams.table import SIZE_LOGGER
from torchferry.seams.tracing import dynamo_stack
from torchferry.values.source_line import is_library, is_own, shown_line

__all__ = [
    "ShapeEvents", "line_of_error", "line_of_frame", "modules_of", "modules_through",
    "raising_module", "watch_shapes",
]  # fmt: skip

_LOGGER = SIZE_LOGGER

_CREATED = r"create_symbol (\S+) = \S+ for (L.+?) \[-?\w"
_TORCH = str(Path(torch.__file__).parent)
_ASKING = (
    __file__, str(Path(logging.__file__).parent), f"{_TORCH}/fx/experimental/",
)  # fmt: skip
_QUESTIONS = {"data_ptr", "dim_order", "equal", "storage_offset", "stride"}
_ADDED = r"(?:eval|runtime_assert)(?: \(forcing_spec\))? (.+?) \[guard added\]"


@dataclass
class ShapeEvents:
    """What happened to the symbols of one trace.

    Attributes:
        places: where a size comes from, as torch writes it, ``L['x'].size()[0]`` → its symbol.
        lines: symbol → ``file:line: code`` of the user that constrained it last, by a guard
            or by making it a constant.
        guards: guard in torch's symbols → ``file:line: code`` of the user that it comes from.
        undecided: lines of the user whose way only the example's values decided, in order.
        choices: guards in torch's symbols that an operator asked, which computes the same either
            way: ``x.contiguous()`` copies or not.
    """

    places: dict[str, str] = field(default_factory=dict)
    lines: dict[str, str] = field(default_factory=dict)
    guards: dict[str, str] = field(default_factory=dict)
    undecided: dict[str, None] = field(default_factory=dict)
    choices: set[str] = field(default_factory=set)

    def line_of(self, place: tuple[str | int, ...], axis: int) -> str | None:
        """The user's line that fixed an axis of the argument at a path, when it is known."""
        wanted = [str(key) for key in place]
        for text, symbol in self.places.items():
            source, _, index = text.rpartition(".size()") if axis >= 0 else (text, "", "[-1]")
            keys = re.findall(r"\[['\"]?([^\]'\"]+)['\"]?\]|\.(\w+)", source)
            if [a or b for a, b in keys] == wanted and index == f"[{axis}]":
                return self.lines.get(symbol)
        return None


class _Listener(logging.Handler):
    def __init__(self, events: ShapeEvents) -> None:
        super().__init__(logging.INFO)
        self.events = events

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        created = re.match(_CREATED, message)
        if created:
            self.events.places[created[2]] = created[1]
        elif message.startswith("propagate_real_tensors"):
            line = _user_line()
            if line:
                self.events.undecided.setdefault(line)
        elif message.startswith(("set_replacement", "eval ")):
            line = _user_line()
            for symbol in re.findall(r"\b[su]\d+\b", message.split(" [guard added]")[0]):
                fixes = message.startswith(f"set_replacement {symbol} = ")
                if line and (fixes or symbol not in self.events.lines):
                    self.events.lines[symbol] = line
        guard = re.match(_ADDED, message)
        if guard and _is_asked_by_operator():
            self.events.choices.add(guard[1])
        if guard and (line := _user_line()):
            self.events.guards.setdefault(guard[1], line)


@contextmanager
def watch_shapes() -> Iterator[ShapeEvents]:
    """Collect the events of every trace inside the block; logging is as before afterwards."""
    logger = logging.getLogger(_LOGGER)
    level, shown_from = logger.level, logger.getEffectiveLevel()
    events = ShapeEvents()
    listener = _Listener(events)
    # torch's own handlers print whatever the loggers let through. Unless the user asked for it
    # (TORCH_LOGS), nothing is printed: what matters comes back as an error.
    handlers = [(handler, handler.level) for handler in _unasked_handlers()]
    for handler, _ in handlers:
        handler.setLevel(logging.CRITICAL)
    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET)  # who wants to see no log still wants the line
    logger.addHandler(listener)
    logger.setLevel(min(logging.INFO, shown_from))
    try:
        yield events
    finally:
        logging.disable(disabled)
        logger.removeHandler(listener)
        logger.setLevel(level)
        for handler, handler_level in handlers:
            handler.setLevel(handler_level)


def _unasked_handlers() -> Iterator[logging.Handler]:
    """The handlers of torch's loggers and their root, but for those the user set to INFO."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "torch"]
    for logger in (logging.root, *map(logging.getLogger, names)):
        if logger.manager.disable >= logging.INFO or not logger.isEnabledFor(logging.INFO):
            yield from logger.handlers


def line_of_error(error: BaseException) -> str | None:
    """``file:line: code`` of the innermost frame of the user's that an exception went through."""
    return _innermost(traceback.extract_tb(error.__traceback__))


def modules_of(frames: Iterable[tuple[FrameType, int]]) -> Iterator[torch.nn.Module]:
    """The modules whose methods run in frames, as ``traceback.walk_stack`` gives them."""
    for frame, _ in frames:
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            yield owner


def modules_through(error: BaseException) -> Iterator[torch.nn.Module]:
    """The modules whose methods an exception went through, the innermost last."""
    return modules_of(traceback.walk_tb(error.__traceback__))


def raising_module(error: BaseException, model: torch.nn.Module) -> str:
    """The dotted path of the innermost module of a model that an exception went through.

    It is ``""`` where that is the model itself, or none.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    inside = [paths[id(one)] for one in modules_through(error) if id(one) in paths]
    return inside[-1] if inside else ""


def _is_asked_by_operator() -> bool:
    """Whether a function of torch's C++ asks the guard that is logged now.

    Then no Python frame stands between torch's symbols and the mode that torch.export puts around
    every function of torch.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(_ASKING):
        frame = frame.f_back
    if frame is None or frame.f_code.co_name != "__torch_function__":
        return False
    name = getattr(frame.f_locals.get("func"), "__name__", "__")
    return not name.startswith(("__", "is_")) and name not in _QUESTIONS


def _user_line() -> str | None:
    outside = [frame for frame in traceback.extract_stack() if frame.filename != __file__]
    found = _innermost(traceback.StackSummary.from_list(outside))
    # Dynamo interprets the user's code, so that its frames are on no stack of Python's.
    return found or _innermost(dynamo_stack())


def line_of_frame(frame: FrameType | None) -> str:
    """``file:line: code`` of the innermost frame, outwards from one, that is no library's."""
    while frame is not None and (
        is_library(frame.f_code.co_filename)
        or _is_mode(frame.f_code.co_filename, frame.f_code.co_name)
    ):
        frame = frame.f_back
    if frame is None or is_own(frame.f_code.co_filename):
        return ""
    return shown_line(frame.f_code.co_filename, frame.f_lineno)


def _is_mode(file: str, name: str) -> bool:
    """Whether it is a function of ours that stands before each of torch's."""
    return name == "__torch_function__" and is_own(file)


def _innermost(frames: traceback.StackSummary) -> str | None:
    """The innermost frame of the user's model; ``None`` when torch works on its own account."""
    for frame in reversed(frames):
        if _is_mode(frame.filename, frame.name):
            continue
        if is_own(frame.filename):
            return None
        if not is_library(frame.filename):
            return shown_line(frame.filename, frame.lineno or 0, frame.line)
    return None
