"""Which other sizes to try: larger ones, one at a time 1, all 1, empty caches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from torchferry.dims import Condition
from torchferry.observer import Observation

__all__ = ["Sizes", "lengths_of_caches", "other_sizes"]

Sizes = dict[str, int]

_ALTERNATIVES = 4  # sizes that break a condition; PyTorch may refuse some
_TOO_LARGE = 10_000  # a size that is not tried, as it may not fit in memory


def other_sizes(
    seen: Observation,
    *,
    keep: Mapping[str, int] | None = None,
    bounds: Mapping[str, tuple[int, int | None]] | None = None,
    conditions: Sequence[Condition] = (),
) -> list[list[Sizes]]:
    """Sizes that were not recorded, to verify a model at.

    Args:
        seen: what was observed.
        keep: names that must stay at one size, because the model takes no other.
        bounds: the least and largest size a program was traced for: the sizes next to them are
            where it is wrong, if it is.
        conditions: what a program took for granted of the sizes: some that break each are tried.

    Returns:
        Groups of alternatives: of each group, the first that the model itself accepts is meant.
    """
    keep = dict(keep or {})
    names = [name for name in seen.dynamic_names if name not in keep]
    if not names:
        return []
    recorded = [seen.sizes_of(call) for call in seen.calls]
    largest = {name: max(s.get(name, 0) for s in recorded) for name in names}
    middle = {name: max(2, seen.sizes_of(seen.best).get(name, 2)) for name in names}
    groups: list[list[Sizes]] = [
        [
            {name: largest[name] + 1 + i for i, name in enumerate(names)},
            {name: largest[name] * (2 + i) for i, name in enumerate(names)},
            {name: largest[name] * 2 for name in names},
        ]
    ]
    groups += [[{**middle, name: 1}] for name in names]
    groups += [[{**middle, name: 0}] for name in lengths_of_caches(seen) if name in names]
    groups.append([dict.fromkeys(names, 1)])
    for name, (low, high) in (bounds or {}).items():
        if name in middle and low > 2:
            groups.append([{**middle, name: low - 1}])
        if name in middle and high is not None and high < _TOO_LARGE:
            groups.append([{**middle, name: high + 1}])
    for condition in conditions:
        if condition.names <= middle.keys() | keep.keys():
            possible = ({**sizes, **_of(keep, condition)} for sizes in condition.samples())
            broken = (sizes for sizes in possible if not condition.holds(sizes))
            groups.append([{**middle, **sizes} for sizes in islice(broken, _ALTERNATIVES)])
    return _unseen([[{**sizes, **keep} for sizes in group] for group in groups], recorded)


def _of(sizes: Mapping[str, int], condition: Condition) -> Sizes:
    return {name: size for name, size in sizes.items() if name in condition.names}


def _unseen(groups: Sequence[list[Sizes]], recorded: Sequence[Sizes]) -> list[list[Sizes]]:
    """Groups without the sizes that were recorded or stand in an earlier group."""
    known = [dict(sizes) for sizes in recorded]
    kept = []
    for group in groups:
        fresh = []
        for sizes in group:
            if sizes not in known:
                known.append(sizes)
                fresh.append(sizes)
        if fresh:
            kept.append(fresh)
    return kept


def lengths_of_caches(seen: Observation) -> list[str]:
    """The names of the dimensions that are tokens in a cache and nothing else."""
    names: dict[str, None] = {}
    for argument in seen.arguments:
        if argument.cached:
            axis = argument.axes[-2]
            name = getattr(axis.size, "name", None)
            if name is not None:
                names.setdefault(name)
    return list(names)
