"""What an exception says of the user's code: why, at which line, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from torchferry.capturer.advice import around
from torchferry.capturer.watch import line_of_error, modules_through, raising_module
from torchferry.errors import CaptureError
from torchferry.values.source_line import is_library, shown_line

__all__ = ["Reason", "advice_for", "explain", "modules_in", "who_raised", "with_code"]


@dataclass(frozen=True)
class Reason:
    """Why an export failed.

    Attributes:
        text: what was said first, without torch's remarks.
        line: the user's ``file:line: code``, where it is known.
        advice: what to do.
    """

    text: str
    line: str | None
    advice: str


_DATA_DEPENDENT = """a value of a tensor decides what the code does: write it with torch.where or
    torch.cond, state what holds of it with torch._check, or leave out .item() and prints of it;
    torchferry.capture(..., rewrite=True) rewrites simple ifs and loops"""
_UNBACKED = """a size depends on values: state its bounds with torch._check(n >= 0) and
    torch._check(n < m)"""
_FIXED = """a size became a constant: take it from x.shape where it is used, and do not pass it
    through int(), range(), math or numpy"""
_NO_FAKE = """torch.export needs to know what the operator returns: register it with
    torch.library.register_fake"""
_NO_ONNX = """the operator has no ONNX form: write that line with others, or teach the converter
    one"""
_WRITES = """the code writes into what it was given: return a new tensor instead (x = x + 1,
    torch.where, index_put)"""
_STATE = "pass what is written to as an argument, and return its new value as an output"
_NOT_FOLLOWED = """the tracer does not follow this call: keep it out of forward, or make it an
    operator with torch.library.custom_op"""
_TRAINS = "call model.eval() first: in training mode it draws random numbers or moves averages"
_RETURNS = """torch.onnx writes tensors only: let the model return no numbers, texts or other
    objects"""
_OTHERWISE = "change that line, or give inputs that do not reach it"

# What torch and torchferry say, and what helps; the first that is found counts.
_ADVICE = {
    r"call model\.eval\(\)": _TRAINS,
    r"translating node return": _RETURNS,
    r"data-dependent|DataDependent|_local_scalar_dense|\.item\(\)|Eq\(u\d": _DATA_DEPENDENT,
    r"unbacked|\bu\d+\b": _UNBACKED,
    r"Constraints violated|specialized|fixed to|tied to|inferred ranges|static shape": _FIXED,
    r"to ONNX opset version|unrecognized namespace": _NO_ONNX,
    r"UnsupportedOperator|no fake impl|fake implementation|meta.*kernel|Meta.*backend": _NO_FAKE,
    r"no ONNX (\w+)|MissingLowering|Unsupported.*[Oo]perator": _NO_ONNX,
    r"conversion of \w+ not implemented": _NO_ONNX,
    r"writes to (buffer|parameter|tensor) ": _STATE,
    r"mutat|writes to|in-?place|is a view": _WRITES,
    r"graph break|torch\._dynamo|skip function|unsupported": _NOT_FOLLOWED,
}

# A file that was written to be run once, and is gone.
_WRITTEN = re.compile(r"\S*torchferry-\w+[/\\]model\.onnx")


def advice_for(text: str) -> str:
    """What to do about a reason.

    >>> advice_for("Constraints violated (batch)!").split(":")[0]
    'a size became a constant'
    """
    found = (advice for pattern, advice in _ADVICE.items() if re.search(pattern, text))
    return " ".join(next(found, _OTHERWISE).split())


def explain(error: BaseException) -> Reason:
    """Read the reason off an exception, and off those it came from.

    >>> explain(ValueError("no such thing")).text
    'no such thing'
    """
    chain = list(_chain(error))
    root = chain[1] if isinstance(error, CaptureError) and len(chain) > 1 else error
    text = _first_line(root)
    line = next((line for line in map(_line_of, chain) if line), None) or _quoted_line(root)
    advice = advice_for(f"{type(root).__name__}: {root}")
    if advice != " ".join(_TRAINS.split()):
        advice = around(line, advice)
    # Without a line there is none to change.
    return Reason(text, line, "" if line is None and advice == _OTHERWISE else advice)


def who_raised(error: BaseException, model: torch.nn.Module) -> str:
    """Which module of a model raised an exception, at which line, in one sentence.

    >>> block = torch.nn.Sequential(torch.nn.Linear(2, 2))
    >>> try:
    ...     block(torch.ones(1, 3))
    ... except RuntimeError as error:
    ...     print(who_raised(error, block).partition(": ")[0])
    module 0 (Linear) raises RuntimeError
    """
    name = raising_module(error, model)
    where = "its own code"
    if name:
        where = f"module {name} ({type(model.get_submodule(name)).__name__})"
    said = (str(error).strip().splitlines() or ["nothing more"])[0][:300]
    line = _line_of(error)
    place = f", at {line}" if line else ""
    return f"{where} raises {type(error).__name__}: {said}{place}"


def modules_in(error: BaseException) -> frozenset[int]:
    """``id`` of the modules whose methods an exception, or one it came from, passed through.

    >>> block = torch.nn.Sequential(torch.nn.Linear(2, 2))
    >>> try:
    ...     block(torch.ones(3))
    ... except RuntimeError as error:
    ...     modules_in(error) == {id(block), id(block[0])}
    True
    """
    return frozenset(id(owner) for one in _chain(error) for owner in modules_through(one))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _line_of(error: BaseException) -> str | None:
    line = getattr(error, "source_line", None) or line_of_error(error)
    return with_code(line) if isinstance(line, str) else None


def with_code(line: str) -> str:
    """``file:line`` with the code that stands there, where it is not there yet."""
    file, _, number = line.rpartition(":")
    return shown_line(file, number) if number.isdigit() else line


def _first_line(error: BaseException) -> str:
    """What the deepest exception said that torch.onnx and others only wrap, in one line."""
    *_, deepest = _causes(error)
    lines = [line.strip() for line in str(deepest).splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"specialized|inferred a static", line)]
    if telling and "Constraints violated" in lines[0]:
        return f"Constraints violated: {telling[0].lstrip('- ')}"
    name = type(deepest).__name__
    if not lines:
        return name
    if lines[0].endswith(":") and any(line.startswith("- ") for line in lines[1:2]):
        return lines[1].lstrip("- ")  # the first of a list
    said = _WRITTEN.sub("the exported file", lines[0])
    return said if " " in said else f"{name}: {said}"  # a bare name says little


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    # torchferry's own errors have said it in a sentence.
    while type(error).__module__.startswith("torch.onnx") and error.__cause__ is not None:
        error = error.__cause__
        yield error


def _quoted_line(error: BaseException) -> str | None:
    """The innermost place of Dynamo's "from user code" in the text of an exception."""
    found = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s+(.+)', str(error))
    if not found:
        return None
    return shown_line(*next((one for one in reversed(found) if not is_library(one[0])), found[-1]))
