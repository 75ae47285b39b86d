"""Every exception torchferry raises on purpose.

FerryError
├─ UsageError          wrong input
├─ CaptureError        torch.export failed; ``attempts`` holds what each strategy said
├─ ConversionError     the exported program could not be written in ONNX
│   ├─ MissingLowering   operators without an ONNX form, all of them at once
│   └─ LoweringFailed    one operator, with what it was given
├─ RunError            onnxruntime refused to load or run the model
├─ Mismatch            the exported model does not compute what PyTorch does
└─ RuleBroke           a rule of the optimizer made an invalid graph
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar

__all__ = [
    "CaptureError",
    "ConversionError",
    "FerryError",
    "LoweringFailed",
    "Mismatch",
    "MissingLowering",
    "RuleBroke",
    "RunError",
    "UsageError",
]


class FerryError(Exception):
    """Base of all errors that torchferry raises on purpose.

    The message says what happened, where, and what to do, in 12 lines or fewer.
    ``exit_code`` is what the command line exits with.
    """

    exit_code = 3
    initial: ClassVar[str] = ""
    """The letter of the codes of the class."""

    @property
    def code(self) -> str:
        """The message's entry in the documentation's index of errors, as ``TF-U12``.

        A message without an entry has that of its class, ``TF-U``; it may be empty.
        """
        text = " ".join(str(self).split())
        for code, parts in _entries():
            if code[3] == self.initial and _fits(text, parts):
                return code
        return f"TF-{self.initial}" if self.initial else ""


class UsageError(FerryError):
    """The input is wrong: a missing file, an unknown name, inputs that do not fit ``forward``."""

    initial = "U"
    exit_code = 2


class CaptureError(FerryError):
    """``torch.export`` failed with every strategy.

    Attributes:
        attempts: one ``(strategy, reason)`` pair per strategy tried, in order.
        line: ``file:line: code`` of the user's that it failed at, when known.
        declined: constructs there that were not rewritten, and why.
    """

    initial = "C"

    def __init__(
        self,
        message: str,
        attempts: Sequence[tuple[str, str]] = (),
        *,
        line: str | None = None,
        declined: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.attempts = tuple(attempts)
        self.line = line
        self.declined = tuple(declined)


class ConversionError(FerryError):
    """A part of the exported program has no ONNX form.

    Attributes:
        node: name of the FX node at fault, or ``None`` when it is the program as a whole.
        source_line: the user's ``file:line``, when known.
    """

    initial = "V"

    def __init__(
        self, message: str, *, node: str | None = None, source_line: str | None = None
    ) -> None:
        super().__init__(message)
        self.node = node
        self.source_line = source_line


class MissingLowering(ConversionError):  # noqa: N818  (the name says what is missing)
    """Operators of the program have no ONNX form.

    Attributes:
        operators: name of each overload and how many nodes of the program call it.
    """

    initial = "O"

    def __init__(
        self,
        message: str,
        operators: Mapping[str, int],
        *,
        node: str | None = None,
        source_line: str | None = None,
    ) -> None:
        super().__init__(message, node=node, source_line=source_line)
        self.operators = dict(operators)


class LoweringFailed(ConversionError):  # noqa: N818  (the name says it)
    """One operator could not be written with what it was given."""

    initial = "L"


class RunError(FerryError):
    """Onnxruntime could not load or run the model.

    Attributes:
        node: name of the ONNX node onnxruntime blames, when it names one.
    """

    initial = "R"
    exit_code = 4

    def __init__(self, message: str, *, node: str | None = None) -> None:
        super().__init__(message)
        self.node = node


class Mismatch(FerryError):  # noqa: N818  (the name says what there is)
    """The exported model does not compute what PyTorch does.

    Attributes:
        worst: the largest difference, when it is known.
    """

    initial = "M"
    exit_code = 1

    def __init__(self, message: str, *, worst: Any = None) -> None:
        super().__init__(message)
        self.worst = worst


class RuleBroke(FerryError):  # noqa: N818  (the name says who did what)
    """A rule made an invalid graph, which is a fault in the rule.

    Attributes:
        rule: its name.
    """

    initial = "B"

    def __init__(self, message: str, *, rule: str) -> None:
        super().__init__(message)
        self.rule = rule


@cache
def _entries() -> list[tuple[str, list[str]]]:
    """Code of every message and the parts of its text, those with the most words first.

    ``messages.txt`` has a line for each, with ``{}`` between the parts for what is filled in.
    """
    lines = files("torchferry").joinpath("messages.txt").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    rows.sort(key=lambda row: -len(row[2].replace("{}", "")))
    return [(code, template.split("{}")) for code, _, template in rows]


def _fits(text: str, parts: Sequence[str]) -> bool:
    """Whether the text consists of the parts, in this order, with anything between them."""
    first, *middle, last = parts if len(parts) > 1 else (*parts, "")
    if not text.startswith(first) or (len(parts) == 1 and text != first):
        return False
    end = len(first)
    for part in middle:
        start = text.find(part, end)
        if start < 0:
            return False
        end = start + len(part)
    return text.endswith(last) and len(text) - len(last) >= end
