"""Which instructions of the user's code, and of the model's, Python runs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchferry.capturer.entry import around_forward
from torchferry.values.source_line import is_library, is_own, package_of, shown_line

__all__ = [
    "Instruction",
    "first_line",
    "is_watched",
    "line_of",
    "model_instructions",
    "run_instructions",
]

# Their models were exported, and run at sizes of 1 and others: `make field`, benchmarks/sweep.py.
_TRIED = ("diffusers", "peft", "sentence_transformers", "timm", "torch", "torch_geometric",
          "torchao", "torchaudio", "torchvision", "transformers", "ultralytics")  # fmt: skip
# What stands around models and computes the same for all sizes; some remember sizes to save time.
_AROUND = (
    "_pytest", "absl", "accelerate", "attr", "beartype", "coverage", "einops", "huggingface_hub",
    "hypothesis", "jaxtyping", "lightning", "lightning_fabric", "loguru", "numpy", "omegaconf",
    "opt_einsum", "pluggy", "pydantic", "pytorch_lightning", "rich", "safetensors", "scipy",
    "tqdm", "typeguard", "typing_extensions.py", "wrapt",
)  # fmt: skip
_UNWATCHED = frozenset((*_TRIED, *_AROUND))
Instruction = tuple[CodeType, int]
"""A piece of code, and the place in its bytecode."""

_TYPED = "<string>"  # python -c, and exec; what libraries generate is called so too


@contextmanager
def run_instructions() -> Iterator[set[Instruction]]:
    """Collect the instructions that run inside the block, but for those of well-known packages.

    Each is a piece of code and the place in its bytecode. Well-known packages ask for sizes to
    save time, and their users have run them at all sizes.
    """
    found: set[Instruction] = set()
    # By identity: Python compares code, and computes its hash, by all that is in it.
    places: dict[int, tuple[CodeType, set[int]]] = {}
    watched: dict[str, bool] = {}

    def enter(frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        known = watched.get(code.co_filename)
        if known is None:
            known = watched[code.co_filename] = is_watched(code.co_filename)
        if not known:
            return None
        add = places.setdefault(id(code), (code, set()))[1].add

        def note(frame: FrameType, event: str, _: Any) -> Any:
            if event == "opcode":
                add(frame.f_lasti)
            return note

        frame.f_trace_lines = False
        frame.f_trace = note  # Python 3.13 forgets the next line where nobody traces the frame
        frame.f_trace_opcodes = True
        return note

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # its callbacks are not the model's code
    sys._getframe().f_trace_opcodes = True  # Python 3.12 asks in settrace whether any frame has it
    sys.settrace(enter)
    try:
        yield found
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
        found.update((code, one) for code, offsets in places.values() for one in offsets)


@cache  # Python asks at every call, of a few hundred files
def is_watched(file: str) -> bool:
    """Whether a file is the user's own, or of an installed package that is not well known."""
    known = package_of(file) in _UNWATCHED or is_library(file) or is_own(file)
    return file == _TYPED or not known


@contextmanager
def model_instructions(model: torch.nn.Module) -> Iterator[set[Instruction]]:
    """Collect as `run_instructions` does what runs in ``forward``; nothing of models of packages.

    Args:
        model: to be called, or traced, inside the block.
    """
    found: set[Instruction] = set()
    methods = [value for cls in {type(one) for one in model.modules()} for value in _methods(cls)]
    if not any(is_watched(one.__code__.co_filename) for one in methods):
        yield found
        return

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def entered(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_dynamo_compiling():
                return forward(*args, **kwargs)
            ran: set[Instruction] = set()
            try:
                with run_instructions() as ran, _Unwatched():
                    return forward(*args, **kwargs)
            finally:
                found.update(ran)

        return entered

    with around_forward(model, wrap):
        yield found


class _Unwatched(TorchFunctionMode):
    """Nobody watches what torch's functions run, which takes most of the time of a trace."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return func(*args, **(kwargs or {}))
        watching = sys.gettrace()
        sys.settrace(None)
        try:
            return func(*args, **(kwargs or {}))
        finally:
            sys.settrace(watching)


def _methods(cls: type) -> Iterator[FunctionType]:
    for one in cls.__mro__:
        yield from (value for value in vars(one).values() if isinstance(value, FunctionType))


def line_of(code: CodeType, offset: int) -> tuple[str, int]:
    """File and number of the line that an instruction stands in; 0 where it stands in none."""
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return code.co_filename, line or 0
    return code.co_filename, 0


def first_line(instructions: Collection[Instruction]) -> str:
    """``file:line: code`` of the instruction that stands first in its file; ``""`` of none."""
    places = [place for one in instructions if (place := line_of(*one))[1]]
    return shown_line(*min(places)) if places else ""
