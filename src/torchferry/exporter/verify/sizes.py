"""Which other sizes to try: larger, one at a time 1, all 1, empty caches, broken conditions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchferry.dims import Condition
from torchferry.exporter.verify.size_search import Sizes, SizeSearch
from torchferry.observer import Observation

__all__ = ["Group", "Sizes", "further_sizes", "lengths_of_caches", "other_sizes"]

_TOO_LARGE = 10_000  # a size that is not tried, as it may not fit in memory
_PAIRS = 6  # pairs of names that are 1 together
_CHOICES = 3  # of operators, that are tried beside each size of 1


@dataclass(frozen=True)
class Group:
    """Sizes of one kind, of which one is enough.

    Attributes:
        alternatives: the first that the model itself accepts is meant.
        breaks: the condition that they do not fulfil; ``None`` for sizes that fulfil all.
    """

    alternatives: list[Sizes]
    breaks: Condition | None = None


def other_sizes(
    seen: Observation,
    *,
    keep: Mapping[str, int] | None = None,
    bounds: Mapping[str, tuple[int, int | None]] | None = None,
    conditions: Sequence[Condition] = (),
) -> list[Group]:
    """Sizes that were not recorded, to verify a model at.

    They are legal as far as `Observation.legal` says, at most four times the largest recorded
    unless a condition is broken beyond only, and fulfil every condition but the one that a group
    names.

    Args:
        seen: what was observed.
        keep: names that must stay at one size, because the model takes no other.
        bounds: the least and largest size a program was traced for: the sizes next to them are
            where it is wrong, if it is.
        conditions: what a program took for granted of the sizes: some that break each are tried,
            near the recorded ones and farther away.
    """
    search = SizeSearch(seen, dict(keep or {}), conditions)
    if not search.names:
        return []
    names, largest, middle = search.names, search.largest, search.middle
    larger = search.larger()
    groups = [
        Group(search.fulfilled([
            larger,
            {name: largest[name] * (2 + i % 3) for i, name in enumerate(names)},
            {name: largest[name] * 2 for name in names},
        ]))
    ]  # fmt: skip
    singles = [({**middle, name: 1}, [name]) for name in names]
    singles += [({**middle, name: 0}, [name]) for name in lengths_of_caches(seen) if name in names]
    singles.append((dict.fromkeys(names, 1), names))
    singles += [({**middle, **dict.fromkeys(pair, 1)}, [*pair]) for pair in _pairs(search)]
    singles += [({**middle, **sizes}, [*sizes]) for sizes in _beside_integers(search)]
    singles += [({**middle, name: end}, [name]) for name, end in _stated_ends(seen, names)]
    for name, (low, high) in (bounds or {}).items():
        if name in middle and low > 2:
            singles.append(({**middle, name: low - 1}, [name]))
        if name in middle and high is not None and high < _TOO_LARGE:
            singles.append(({**middle, name: high + 1}, [name]))
    groups += [Group(search.fulfilled([sizes], pinned)) for sizes, pinned in singles]
    broken = {condition: [*search.breaking(condition)] for condition in search.conditions}
    groups += [Group(sizes, condition) for condition in broken for sizes in broken[condition]]
    groups += itertools.islice(_beside_choices(search, broken), _PAIRS)
    return _ordered(_unseen(groups, search.recorded), search)


def _ordered(groups: list[Group], search: SizeSearch) -> list[Group]:
    """Groups with those early that break a condition which a recorded call breaks.

    That call is refused until sizes like its own have shown that it need not be.
    """
    asked = [one for one in search.conditions if any(map(one.broken_by, search.recorded))]

    def is_late(group: Group) -> bool:
        return not any(one.broken_by(sizes) for one in asked for sizes in group.alternatives[:1])

    return groups[:1] + sorted(groups[1:], key=is_late)


def further_sizes(
    seen: Observation,
    names: Iterable[str],
    *,
    keep: Mapping[str, int] | None = None,
    conditions: Sequence[Condition] = (),
) -> list[Group]:
    """Sizes for dimensions of which the model refused every size that `other_sizes` has.

    One dimension is changed at a time, from each of the recorded calls: the sizes next to those
    recorded, and their multiples and halves.

    Args:
        seen: what was observed.
        names: of those dimensions.
        keep: see `other_sizes`.
        conditions: see `other_sizes`.
    """
    search = SizeSearch(seen, dict(keep or {}), conditions)
    groups = []
    for name in names:
        wanted = [
            {**sizes, name: size}
            for sizes in search.recorded
            if name in sizes
            for at in [sizes[name]]
            for size in (at + 1, at - 1, 2 * at, at // 2, 3 * at, at + 2, at - 2)
            if size > 0
        ]
        groups.append(Group(search.fulfilled(wanted, [name])))
    return _unseen(groups, search.recorded)


def _pairs(search: SizeSearch) -> Iterator[tuple[str, str]]:
    """Names that may make a difference only where both are 1, those of one argument first.

    ``x.shape[:2] == (1, 1)`` compares the second size only where the first is 1.
    """
    within = [
        pair
        for names in search.arguments
        for pair in itertools.combinations(names, 2)
        if not search.asked.isdisjoint(pair)
    ]
    across = itertools.combinations([name for name in search.names if name in search.asked], 2)
    pairs = {frozenset(pair): pair for pair in (*within, *across)}.values()
    return itertools.islice(pairs, _PAIRS if len(search.names) > 2 else 0)


def _beside_integers(search: SizeSearch) -> Iterator[Sizes]:
    """An integer of 0 beside a size of 0 or 1: ``(past, step) == (0, 0)``, the first call."""
    names = [name for name in search.names if name in search.asked or name in search.integers]
    pairs = ((name, other) for other in search.integers for name in names if name != other)
    for name, other in itertools.islice(pairs, _PAIRS):
        yield from ({name: size, other: 0} for size in (0, 1))


def _beside_choices(
    search: SizeSearch, broken: Mapping[Condition, Sequence[list[Sizes]]]
) -> Iterator[Group]:
    """Sizes at which an operator chooses another way, and one more is 1.

    Of a window and a step of one token neither may make a difference alone.
    """
    choices = [one for one in search.conditions if one.choice and one.matters]
    for condition in choices[:_CHOICES]:
        *_, farthest = [[], *broken[condition]]  # nearer ones may hold with a 1
        found = [{**sizes, name: 1} for name in sorted(search.asked) for sizes in farthest[:1]]
        found = [one for one in found if not search.holds(condition, one)]
        yield from (Group([one], condition) for one in filter(search.legal.allows, found))


def _stated_ends(seen: Observation, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """The least and the largest size that is stated to be legal."""
    for name in names:
        least, largest = seen.legal.ends(name)
        if least > 0:
            yield name, least
        if largest is not None:
            yield name, largest


def _unseen(groups: Iterable[Group], recorded: Sequence[Sizes]) -> list[Group]:
    """Groups without the sizes that were recorded or stand in an earlier group."""
    known = [dict(sizes) for sizes in recorded]
    kept = []
    for group in groups:
        fresh = []
        for sizes in group.alternatives:
            if sizes not in known:
                known.append(sizes)
                fresh.append(sizes)
        if fresh:
            kept.append(Group(fresh, group.breaks))
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
