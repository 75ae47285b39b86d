"""The guards that torch records while it traces: which, from which line, and later ones."""

from __future__ import annotations

import math
import operator
import os
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx
from torch.export import ExportedProgram

from torchferry.errors import CaptureError
from torchferry.observer.tree import program_inputs
from torchferry.seams.pytorch import guards_of
from torchferry.seams.symbols import hints_of
from torchferry.values.source_line import is_own, user_line

__all__ = [
    "chosen",
    "deferred_guards",
    "guard_lines",
    "later_guards",
    "later_hints",
    "line_of_torch",
    "mixed_numbers",
    "note_choices",
    "note_guards",
    "noted_guards",
]

_TORCH = str(Path(torch.__file__).parent) + os.sep
_OPERATORS = tuple(
    _TORCH + name for name in ("_ops.py", "_prims", "_refs", "_meta_reg", "_subclasses", "_decomp")
)
_LATER: WeakKeyDictionary[Any, list[Any]] = WeakKeyDictionary()
"""By torch's notes on the sizes of a program: guards added since it was captured."""
_PICKS = {torch.sym_max: operator.gt, torch.sym_min: operator.lt}
# What makes the same number of an integer and of a float of the same value.
_SAME = {
    math.trunc, math.floor, math.ceil, torch.sym_float, torch.sym_int, operator.truediv,
    operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
}  # fmt: skip
_CHOICES: WeakKeyDictionary[Any, frozenset[str]] = WeakKeyDictionary()


def guard_lines(
    program: ExportedProgram, heard: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The user's line that decided each guard, by the guard; of a program from a file, none.

    Args:
        program: as torch.export made it, in this process.
        heard: lines by expression of torch's symbols, if somebody listened while it traced.
    """
    heard = heard or {}
    return {
        text: heard.get(str(guard.expr)) or line_of_torch(guard.sloc)
        for text, guard in noted_guards(program)
    }


@contextmanager
def note_guards(program: ExportedProgram) -> Iterator[None]:
    """Remember the guards that torch adds inside the block, while it decomposes operators.

    ``conditions_of`` reads them from then on. The program itself holds only the guards of its
    capture, and torch adds no guard twice.
    """
    environment = _shape_environment(program)
    count = 0 if environment is None else len(environment.guards)
    try:
        yield
    finally:
        if environment is not None and len(environment.guards) > count:
            _LATER.setdefault(environment, []).extend(environment.guards[count:])


def later_guards(program: ExportedProgram) -> list[Any]:
    """The guards that `note_guards` has noted of a program."""
    environment = _shape_environment(program)
    return [] if environment is None else _LATER.get(environment, [])


def later_hints(program: ExportedProgram) -> dict[Any, int]:
    """Return the traced value of each symbol; a second trace adds symbols for fixed integers."""
    environment = _shape_environment(program)
    return {} if environment is None else hints_of(environment)


def deferred_guards(program: ExportedProgram) -> Iterator[tuple[Any, str]]:
    """Tests that torch was asked to defer, each with its line: those of floats it never writes."""
    deferred = getattr(_shape_environment(program), "deferred_runtime_asserts", {})
    for one in (one for group in deferred.values() for one in group):
        yield one.expr, user_line("".join(one.stack.format())) or ""


def noted_guards(program: ExportedProgram) -> list[tuple[str, Any]]:
    """Each guard as text, with what torch has noted of it; of a program from a file, nothing."""
    environment = _shape_environment(program)
    if environment is None:
        return []
    # What depends on data is checked by the program itself, not by a guard on its inputs.
    later = later_guards(program)
    guards = [
        guard
        for guard in environment.guards
        if not any(guard is one for one in later)
        and not any(str(name).startswith(("u", "zu")) for name in guard.expr.free_symbols)
    ]
    texts = guards_of(program)
    return list(zip(texts, guards, strict=True)) if len(guards) == len(texts) else []


def note_choices(program: ExportedProgram, expressions: Collection[str]) -> None:
    """Remember which guards of a program, in torch's symbols, only operators asked."""
    if (environment := _shape_environment(program)) is not None:
        _CHOICES[environment] = frozenset(expressions)


def chosen(program: ExportedProgram) -> set[str]:
    """The guards that make a choice: those noted, and those that PyTorch's Python code decided.

    ``view`` asks whether sizes are equal to find strides, and computes the same either way; what
    ``if`` decides may be anything. PyTorch's modules are Python code.
    """
    noted = _CHOICES.get(_shape_environment(program), frozenset())
    return {
        text
        for text, guard in noted_guards(program)
        if str(guard.expr) in noted or _is_decided_by_operator(guard.sloc)
    }


def _is_decided_by_operator(place: Any) -> bool:
    frame = getattr(place, "framework_loc", None)
    return isinstance(frame, traceback.FrameSummary) and frame.filename.startswith(_OPERATORS)


def line_of_torch(place: Any) -> str:
    """The place that torch noted of a guard, if it is in the user's code."""
    frame = getattr(place, "framework_loc", None)
    if isinstance(frame, traceback.FrameSummary) and not frame.filename.startswith(_TORCH):
        if is_own(frame.filename):  # the user's was typed in, which torch leaves out
            return ""
        return f"{frame.filename}:{frame.lineno}: {(frame.line or '').strip()}"
    # Of code that Dynamo interprets: ``code  # file:line in function``.
    code, _, where = str(getattr(place, "maybe_user_loc", None) or "").rpartition("  # ")
    return f"{where.split(' in ')[0]}: {code}" if code else ""


def mixed_numbers(program: ExportedProgram) -> Iterator[Any]:
    """Where an integer and a float compete: what makes the float win, as expressions of sizes.

    Python returns the one that wins, torch always a float: ``i * max(1, n / 4)`` of integers has
    integers where 1 wins. Where it does so in the example, the program is wrong for that, and
    nothing is yielded; nor where either gives the same.

    Raises CaptureError where data decides the numbers, which nobody can ask before a call.
    """
    hints = later_hints(program)
    for node in program.graph.nodes:
        wins = _PICKS.get(node.target)
        if wins is None or len(node.args) != 2 or not _matters(node):
            continue
        whole, real = sorted(node.args, key=_was_real)
        tested = wins(_expression(real), _expression(whole))
        example = tested.subs(hints)
        if example.free_symbols:  # of numbers that data decides there is no example
            if _was_real(real) and not _was_real(whole):
                raise CaptureError(
                    f"{user_line(node.stack_trace) or 'the model'}: data decides whether this max"
                    " or min gives its integer or its float, and a graph has one dtype for both:"
                    " write both numbers as floats, or both as integers"
                )
            continue
        if not _was_real(real) and not example:
            tested, example = wins(_expression(whole), _expression(real)), True  # or the other one
        if not _was_real(whole) and example:
            yield tested


def _was_real(number: Any) -> bool:
    """Whether it surely was a float before torch made one of it: neither 1.0 nor a size."""
    if isinstance(number, fx.Node):
        return number.target is not torch.sym_float and not isinstance(
            number.meta.get("val"), torch.SymInt
        )
    return isinstance(number, float) and not number.is_integer()


def _expression(number: Any) -> Any:
    return number.meta["val"].node.expr if isinstance(number, fx.Node) else number


def _matters(node: fx.Node) -> bool:
    """Whether a number reaches where its being an integer shows."""
    return any(map(_shows, node.users))


def _shows(user: fx.Node) -> bool:
    if user.op == "call_function" and not isinstance(user.meta.get("val"), torch.Tensor):
        return user.target not in _SAME and _matters(user)
    tensors = [one.meta["val"] for one in user.all_input_nodes
               if isinstance(one.meta.get("val"), torch.Tensor)]  # fmt: skip
    floats = [one.is_floating_point() or one.is_complex() for one in tensors]
    return not floats or not all(floats)


def _shape_environment(program: ExportedProgram) -> Any:
    """What torch knows of the symbols of a program; ``None`` when it has none."""
    for _, node in program_inputs(program):
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            return value.node.shape_env
        if (mode := getattr(value, "fake_mode", None)) is not None:
            return mode.shape_env
    return None
