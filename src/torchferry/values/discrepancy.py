"""The result of comparing two values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torchferry.errors import UsageError
from torchferry.notebook import table_html

__all__ = ["Discrepancy", "string_diff", "together", "worst"]

_DOCUMENTED = ("abs", "rel", "sum", "n", "dnan", "argm", "dev")


@dataclass(frozen=True)
class Discrepancy:
    """How far two values are apart; ``d["abs"]`` and ``dict(d)`` work as on a dictionary.

    Attributes:
        abs: largest absolute difference; inf when something cannot be compared.
        rel: largest of ``|expected - got| / max(|expected|, 1e-3)``.
        sum: sum of the absolute differences.
        n: number of elements compared.
        dnan: places where only one of the two is NaN.
        argm: index of the largest absolute difference in its tensor; ``None`` without any.
        dev: tensors that are on different devices; no fault by itself.
        reason: why the two can't be equal whatever the numbers say: structure, shape, dtype.
        path: the leaf with the largest absolute difference.
        scale: largest ``|expected|`` below half the largest number of its type (what is above is
            a mask or infinite): what ``abs`` may be measured against.

    ``abs``, ``sum`` and ``scale`` are in the unit of the values, ``rel`` has none.

    >>> import torch
    >>> from torchferry.values import max_diff
    >>> difference = max_diff(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
    >>> difference.abs, difference.rel, difference.argm, difference["n"]
    (0.5, 0.25, (1,), 2)
    """

    abs: float = 0.0
    rel: float = 0.0
    sum: float = 0.0
    n: int = 0
    dnan: int = 0
    argm: tuple[int, ...] | None = None
    dev: int = 0
    reason: str | None = None
    path: str = ""
    scale: float = 0.0

    @property
    def mean(self) -> float:
        """Mean absolute difference; 0 without elements."""
        return self.sum / self.n if self.n else 0.0

    def keys(self) -> tuple[str, ...]:
        """The names ``d[name]`` answers to."""
        return _DOCUMENTED

    def __getitem__(self, key: str) -> Any:
        if key not in _DOCUMENTED:
            raise KeyError(key)
        return getattr(self, key)

    def __str__(self) -> str:
        return string_diff(self)

    def _repr_html_(self) -> str:
        names = [*_DOCUMENTED, *(["reason"] if self.reason else []), "path"]
        rows = [(name, getattr(self, name)) for name in names]
        return table_html("Discrepancy", ("what", "value"), rows)


def string_diff(diff: Discrepancy) -> str:
    """A discrepancy in one line; what counts faults is shown where there are any.

    Args:
        diff: what `max_diff` gives.

    >>> string_diff(Discrepancy(abs=0.5, rel=500.0, n=6, argm=(0, 0)))
    'abs=0.5, rel=500.0, n=6, amax=0,0'
    >>> string_diff(Discrepancy(n=6, reason="x: expected float32, got float16"))
    'abs=0.0, rel=0.0, n=6, reason: x: expected float32, got float16'
    """
    parts = [f"abs={diff.abs}", f"rel={diff.rel}", f"n={diff.n}"]
    if diff.argm:
        parts.append(f"amax={','.join(map(str, diff.argm))}")
    if diff.dnan:
        parts.append(f"dnan={diff.dnan}")
    if diff.dev:
        parts.append(f"dev={diff.dev}")
    if diff.reason is not None:
        parts.append(f"reason: {diff.reason}")
    return ", ".join(parts)


def worst(discrepancies: Iterable[Discrepancy]) -> Discrepancy:
    """The discrepancy that is hardest to accept, the first of several.

    One with a reason goes before any without, then the absolute difference decides, then the
    relative one.

    Raises:
        UsageError: there is none: nothing compared is not the same as equal.

    >>> worst([Discrepancy(abs=0.1), Discrepancy(abs=0.2), Discrepancy()]).abs
    0.2
    """
    found = list(discrepancies)
    if not found:
        raise UsageError("worst(): no discrepancy was given, so nothing was compared")
    return max(found, key=lambda diff: (diff.reason is not None, diff.abs, diff.rel))


def together(parts: Sequence[Discrepancy]) -> Discrepancy:
    """One discrepancy for a whole, of those of its parts: largest, sums and the first reason.

    >>> whole = together([Discrepancy(abs=1.0, sum=1.5, n=3), Discrepancy(abs=0.5, sum=0.5, n=1)])
    >>> whole.abs, whole.sum, whole.n
    (1.0, 2.0, 4)
    """
    if not parts:
        return Discrepancy()
    at = max(parts, key=lambda part: part.abs)
    return Discrepancy(
        abs=at.abs,
        rel=max(part.rel for part in parts),
        sum=math.fsum(part.sum for part in parts),
        n=sum(part.n for part in parts),
        dnan=sum(part.dnan for part in parts),
        argm=at.argm,
        dev=sum(part.dev for part in parts),
        reason=next((part.reason for part in parts if part.reason is not None), None),
        path=at.path,
        scale=max(part.scale for part in parts),
    )
