"""At which sizes each dynamic dimension was verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torchferry.capturer import Fixed
from torchferry.dims import names_in
from torchferry.exporter.verify.limits import Limits
from torchferry.exporter.verify.verify import Check
from torchferry.observer import Observation

__all__ = ["DimensionCheck", "check_dimensions"]

Status = Literal["verified", "verified where", "fixed", "differs", "unverified"]


@dataclass(frozen=True)
class DimensionCheck:
    """One independent dynamic dimension.

    Attributes:
        name: what it is called.
        places: ``input_ids[1]``, where it stands alone or in a sum.
        status: ``verified`` at two sizes or more, or ``verified where`` the conditions in
            ``where`` hold; ``fixed`` when the program holds it constant; ``differs`` when
            outputs differ at some size of it while every other dimension has a size that is right
            elsewhere; ``unverified`` when fewer than two sizes could be compared.
        agreed: sizes at which every output agreed.
        failed: sizes of it that explain a difference.
        note: what else is to be known.
        where: conditions that calls must meet.
    """

    name: str
    places: tuple[str, ...]
    status: Status
    agreed: tuple[int, ...]
    failed: tuple[int, ...]
    note: str = ""
    where: tuple[str, ...] = ()


def check_dimensions(
    seen: Observation,
    fixed: Sequence[Fixed],
    checks: Sequence[Check],
    limits: Limits | None = None,
) -> list[DimensionCheck]:
    """Say of every dynamic dimension at which sizes the two models agree.

    Checks at sizes that the exported model refuses say nothing of it.
    """
    limits = limits or Limits()
    by_name = {f.name: f for f in fixed}
    inside = [check for check in checks if limits.meets(check.sizes)]
    where = {name: tuple(map(str, limits.on(name))) for name in seen.dynamic_names}
    return [
        _check(name, seen, by_name.get(name), inside, where[name]) for name in seen.dynamic_names
    ]


def _check(
    name: str,
    seen: Observation,
    fixed: Fixed | None,
    checks: Sequence[Check],
    where: tuple[str, ...],
) -> DimensionCheck:
    places = tuple(
        argument.name if axis.index < 0 else f"{argument.name}[{axis.index}]"
        for argument in seen.arguments
        for axis in argument.sizes
        if name in names_in(axis.size)
    )
    ran = [check for check in checks if check.refused is None and name in check.sizes]
    agreed = tuple(sorted({check.sizes[name] for check in ran if check.ok}))
    failed = tuple(sorted({c.sizes[name] for c in ran if _is_culprit(name, c, ran)} - {*agreed}))
    refused = {c.sizes[name] for c in checks if c.refused is not None} - {*agreed, *failed, 0}
    note = f"PyTorch refuses {', '.join(map(str, sorted(refused)))}" if refused else ""
    if stated := seen.legal.text(name):
        note = f"stated as {stated}{'; ' if note else ''}{note}"
    status: Status = "verified where" if where else "verified"
    if fixed is not None:
        tied = "fixed to" if isinstance(fixed.size, int) else "tied to"
        by = f" by {fixed.line}" if fixed.line else ""
        status, note = "fixed", f"{tied} {fixed.size}{by}"
    elif failed:
        status = "differs"
    elif len(agreed) < 2:
        status = "unverified"
    return DimensionCheck(name, _shortened(places), status, agreed, failed, note, where)


def _is_culprit(name: str, failing: Check, ran: Sequence[Check]) -> bool:
    """Whether a check can have failed because of this dimension.

    It cannot when another dimension alone explains it: one at a size where no check passed, while
    this one's size did pass elsewhere or was never tried without the other.
    """
    if not failing.failed:
        return False
    passed = [check for check in ran if check.ok]
    others = {other for other in failing.sizes if other != name}
    doubtful = {
        other
        for other in others
        if all(check.sizes[other] != failing.sizes[other] for check in passed)
    }
    return not doubtful


def _shortened(places: tuple[str, ...], limit: int = 4) -> tuple[str, ...]:
    if len(places) <= limit:
        return places
    return (*places[: limit - 1], f"… {len(places) - limit + 1} more")
