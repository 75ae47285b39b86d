"""The verdict on one value, the same words in every command."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from torchferry.values.discrepancy import Discrepancy

__all__ = ["KINDS", "Kind", "Verdict", "worst_verdict"]

Kind = Literal["equal", "rounding", "random", "incomparable", "differs", "failed"]

KINDS: tuple[Kind, ...] = ("equal", "rounding", "random", "incomparable", "differs", "failed")
"""From the best to the worst."""

_WORDS: dict[Kind, str] = {
    "equal": "equals PyTorch's",
    "rounding": "equals PyTorch's up to rounding",
    "random": "may be one of several values, each of them right",
    "incomparable": "cannot be compared with PyTorch's",
    "differs": "differs from PyTorch's",
    "failed": "could not be computed",
}


@dataclass(frozen=True)
class Verdict:
    """What a comparison of two values says.

    Attributes:
        kind: ``equal`` within the limit; ``rounding``: beyond, but PyTorch itself moves as far
            when numbers are rounded otherwise; ``random``: PyTorch may return another value too;
            ``incomparable``; ``differs``; ``failed``: one side has no value.
        difference: between the two values.
        evidence: why, as a sentence; empty where the numbers say it.
        limit: what passes, and where that comes from: ``0.00011 (float32)``.
        rounding: how far PyTorch itself moves, where that is the evidence.
        chosen: whether each side may choose among equals, without a random number.
    """

    kind: Kind
    difference: Discrepancy = field(default_factory=Discrepancy)
    evidence: str = ""
    limit: str = ""
    rounding: float | None = None
    chosen: bool = False

    @property
    def ok(self) -> bool:
        """Whether the value was compared and is right."""
        return self.kind in ("equal", "rounding")

    @property
    def numbers(self) -> str:
        """How far the values are apart, the limit and the evidence.

        >>> Verdict("differs", Discrepancy(abs=0.5, rel=2.0), "a fault", "0.1 (float32)").numbers
        'max abs 0.5, max rel 2 (limit 0.1 (float32)); a fault'
        """
        difference = self.difference
        if self.kind == "failed":
            return self.evidence
        text = difference.reason or f"max abs {difference.abs:.3g}, max rel {difference.rel:.3g}"
        if difference.dnan and not difference.reason:
            text += f", {difference.dnan} NaN on one side only"
        if self.limit and not difference.reason:
            text += f" (limit {self.limit})"
        return text + (f"; {self.evidence}" if self.evidence else "")

    def about(self, what: str) -> str:
        """The whole sentence.

        >>> Verdict("equal", Discrepancy(abs=1e-7)).about("output y")
        "output y equals PyTorch's: max abs 1e-07, max rel 0"
        """
        return f"{what} {_WORDS[self.kind]}: {self.numbers}"

    def __str__(self) -> str:
        return self.about("the value")


def worst_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that is hardest to accept; ``equal`` without any.

    >>> worst_verdict([Verdict("random"), Verdict("differs"), Verdict("equal")]).kind
    'differs'
    """
    return max(
        verdicts,
        key=lambda one: (KINDS.index(one.kind), one.difference.abs),
        default=Verdict("equal"),
    )
