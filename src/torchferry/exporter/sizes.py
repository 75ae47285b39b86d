"""Which other sizes to try: larger, one at a time 1, all 1, empty caches, broken conditions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from torchferry.dims import Condition
from torchferry.observer import Observation

__all__ = ["Group", "Sizes", "further_sizes", "lengths_of_caches", "other_sizes"]

Sizes = dict[str, int]

_ALTERNATIVES = 4  # sizes that break a condition; PyTorch may refuse some
_TOO_LARGE = 10_000  # a size that is not tried, as it may not fit in memory
_PAIRS = 6  # pairs of names that are 1 together
_CHOICES = 3  # of operators, that are tried beside each size of 1
_GROWTH = 4  # how often the largest recorded size is the largest that is made
_FAR = 2  # the same, of sizes that break a condition far from the recorded ones
_COMBINATIONS = 500  # sizes looked at for those that fulfil every condition
_INNER = 100  # of those that break one, how many are looked at for such as are not at its border
_BROKEN = 24  # of those that break one, how many are looked at for such as break no other
_NEGATIVE = (-1, -3)  # integers that are tried where a condition excludes such
_EFFORT = 6_000  # conditions that are evaluated, at a millisecond each if they are long


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
    search = _Search(seen, dict(keep or {}), conditions)
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
    singles += [({**middle, name: end}, [name]) for name, end in _stated_ends(seen, names)]
    for name, (low, high) in (bounds or {}).items():
        if name in middle and low > 2:
            singles.append(({**middle, name: low - 1}, [name]))
        if name in middle and high is not None and high < _TOO_LARGE:
            singles.append(({**middle, name: high + 1}, [name]))
    groups += [Group(search.fulfilled([sizes], pinned)) for sizes, pinned in singles]
    for condition in search.conditions:
        groups += [Group(sizes, condition) for sizes in search.breaking(condition)]
    groups += itertools.islice(_beside_choices(search), _PAIRS)
    return _unseen(groups, search.recorded)


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
    search = _Search(seen, dict(keep or {}), conditions)
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


class _Search:
    """Looks for sizes that fulfil the conditions, near those wanted."""

    def __init__(self, seen: Observation, keep: Sizes, conditions: Sequence[Condition]) -> None:
        self.keep = keep
        self.legal = seen.legal
        self.names = [name for name in seen.free_names if name not in keep]
        self.recorded = [seen.sizes_of(call) for call in seen.calls]
        best = seen.sizes_of(seen.best)
        known = {*self.names, *keep}
        self.conditions = [c for c in conditions if c.names and c.names <= known]
        integers = {str(one.integer.size) for one in seen.arguments if one.integer is not None}
        self.integers = [name for name in self.names if name in integers]
        sizes = ([axis.size for axis in one.sizes] for one in seen.arguments)
        known_names = (dict.fromkeys(getattr(size, "name", None) for size in one) for one in sizes)
        self.arguments = [[n for n in self.names if n in one] for one in known_names]
        self.small = {name: int(name not in integers) for name in self.names}
        self.largest = {n: max(s.get(n, 0) for s in self.recorded) for n in self.names}
        wanted = {name: max(2, best.get(name, 2)) for name in self.names}
        self._holds: dict[tuple[Condition, tuple[int, ...]], bool] = {}
        self.middle = self.nearest(wanted) or wanted

    @cached_property
    def _parts(self) -> list[tuple[list[str], list[Condition]]]:
        """Names that conditions tie together, with these conditions."""
        parts: list[tuple[set[str], list[Condition]]] = []
        for condition in self.conditions:
            if condition.of_special:
                continue  # sizes of 0 and 1 are tried, alone and together
            names, held = set(condition.names) - self.keep.keys(), [condition]
            for part in [one for one in parts if one[0] & names]:
                parts.remove(part)
                names, held = names | part[0], part[1] + held
            parts.append((names, held))
        return [(sorted(names), held) for names, held in parts]

    def larger(self) -> Sizes:
        """A size above the largest for each name, different ones where there is room for that."""
        sizes: Sizes = {}
        for i, (name, most) in enumerate(self.largest.items()):
            room = range(most + 1, max(_GROWTH * most, most + 1) + 1)
            taken = set(sizes.values())
            fresh = [most + 1 + i] if most + 1 + i in room else []
            fresh += [size for size in room[: len(sizes) + 1] if size not in taken]
            sizes[name] = fresh[0] if fresh else most + 1
        return sizes

    def fulfilled(self, wanted: Iterable[Sizes], pinned: Collection[str] = ()) -> list[Sizes]:
        """For each of the wanted sizes the nearest that fulfil the conditions, or nothing."""
        found = (self.nearest(sizes, pinned) for sizes in wanted)
        return [{**sizes, **self.keep} for sizes in found if sizes is not None]

    def nearest(
        self, wanted: Sizes, pinned: Collection[str] = (), without: Condition | None = None
    ) -> Sizes | None:
        """The nearest sizes that fulfil the conditions.

        Args:
            wanted: one size a name.
            pinned: names whose size stays as wanted.
            without: a condition that need not be fulfilled.
        """
        sizes = {
            name: wanted[name] if name in pinned else self.legal.near(name, wanted[name], 1)[0]
            for name in self.names
        }
        if not self.legal.allows(sizes):
            return None
        for names, held in self._parts:
            asked = [condition for condition in held if condition is not without]
            found = self._solved(names, asked, sizes, pinned)
            if found is None:
                return None
            sizes.update(found)
        return sizes

    def _solved(
        self, names: list[str], held: list[Condition], sizes: Sizes, pinned: Collection[str]
    ) -> Sizes | None:
        if self._hold(held, sizes):
            return {}
        free = [name for name in names if name not in pinned]
        if not self._hold([c for c in held if c.names.isdisjoint(free)], sizes):
            return None
        for chosen in self._combinations(free, sizes):
            if self._hold(held, {**sizes, **chosen}):
                return chosen
            if len(self._holds) > _EFFORT:
                break
        return None

    def _hold(self, conditions: Sequence[Condition], sizes: Sizes) -> bool:
        return all(self.holds(condition, {**sizes, **self.keep}) for condition in conditions)

    def holds(self, condition: Condition, sizes: Sizes) -> bool:
        """Whether sizes fulfil a condition; computed once, as long expressions take time."""
        key = condition, tuple(sizes[name] for name in self._order[condition])
        if key not in self._holds:
            self._holds[key] = condition.holds(sizes)
        return self._holds[key]

    @cached_property
    def _order(self) -> dict[Condition, list[str]]:
        return {condition: sorted(condition.names) for condition in self.conditions}

    def _combinations(self, names: Sequence[str], sizes: Sizes) -> list[Sizes]:
        """Sizes for some names, those that differ least from the given ones first."""
        if not names:
            return []
        count = int(_COMBINATIONS ** (1 / len(names)))
        choices = [self._near(name, sizes[name], count) for name in names]
        found = (dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*choices))
        return sorted(found, key=lambda chosen: _distance(chosen, sizes))

    def _near(self, name: str, wanted: int, count: int) -> list[int]:
        """Sizes of one name that may do: near ones, recorded ones, multiples of their unit."""
        seen = {sizes[name] for sizes in self.recorded if name in sizes}
        unit = max(math.gcd(*seen), 1)
        most = max(_GROWTH * self.largest[name], wanted)
        multiples = range(unit, most + 1, unit)[:_COMBINATIONS]
        special = sorted({*multiples, *seen}, key=lambda size: abs(size - wanted))
        near = [n for n in self.legal.near(name, wanted, count) if 1 <= n <= most]
        chosen = dict.fromkeys([*near[: count - count // 2], *special[: count // 2], *near])
        return [size for size in chosen if self.legal.allows({name: size})][:count]

    def breaking(self, condition: Condition) -> Iterator[list[Sizes]]:
        """Sizes that break one condition and, if possible, no other: near ones, farther ones."""
        names = sorted(condition.names - self.keep.keys())
        near = self._combinations(names, self.middle)
        samples = [_of(s, names) for s in itertools.islice(condition.samples(), _COMBINATIONS)]
        samples += [
            {**_of(self.middle, names), name: value}
            for name in names if name in self.integers for value in _NEGATIVE
        ]  # fmt: skip
        every = {tuple(one.items()): one for one in [*near, *samples]}.values()
        legal = sorted(filter(self.legal.allows, every), key=self._from_middle)
        broken = [one for one in legal if not self.holds(condition, {**one, **self.keep})]
        within = [one for one in broken if self._grown(one) <= _GROWTH] or broken
        if not condition.matters:  # ``a // b > 1`` fails at 0 and at 1: try both
            within = _each_value_first(condition, within, self.keep)
        only = list(itertools.islice(self._breaking_only(condition, within), _ALTERNATIVES))
        if not only:  # whatever breaks it breaks others too
            only = [{**self.middle, **one} for one in within[:_ALTERNATIVES]]
        if condition.of_special:
            # Alone they may break a contract: one token read at the third place of one token.
            small = ({**self.small, **one} for one in within[:_ALTERNATIVES])
            only += filter(self.legal.allows, small)
        large = [one for one in reversed(within) if self._grown(one) <= _FAR]
        # At its border code may give the same either way: ``a < b`` where a equals b.
        inside = [one for one in within[:_INNER] if self._is_inside(condition, one)]
        # Of 0 and 1 one may make a difference where the other makes none.
        tried = [only] if condition.matters else [[sizes] for sizes in only]
        for farther in (inside, large):
            found = itertools.islice(self._breaking_only(condition, farther), _ALTERNATIVES)
            tried.append([one for one in found if not any(one in others for others in tried)])
        for sizes in filter(None, tried):
            yield [{**one, **self.keep} for one in sizes]

    def _is_inside(self, condition: Condition, sizes: Sizes) -> bool:
        """Whether sizes next to these break a condition too."""
        return not any(
            self.holds(condition, {**sizes, **self.keep, name: size + step})
            for name, size in sizes.items()
            for step in (-1, 1)
        )

    def _from_middle(self, sizes: Sizes) -> float:
        return _distance(sizes, self.middle)

    def _grown(self, sizes: Sizes) -> float:
        """How often the largest recorded size the largest of these is."""
        return max(size / max(self.largest[name], 1) for name, size in sizes.items())

    def _breaking_only(self, condition: Condition, broken: Iterable[Sizes]) -> Iterator[Sizes]:
        for one in itertools.islice(broken, _BROKEN):
            if len(self._holds) > _EFFORT:
                return
            sizes = self.nearest({**self.middle, **one}, pinned=one.keys(), without=condition)
            if sizes is not None:
                yield sizes


def _pairs(search: _Search) -> Iterator[tuple[str, str]]:
    """Names that may make a difference only where both are 1, those of one argument first.

    ``x.shape[:2] == (1, 1)`` compares the second size only where the first is 1.
    """
    asked = {name for one in search.conditions if one.of_special for name in one.names}
    within = [
        pair
        for names in search.arguments
        for pair in itertools.combinations(names, 2)
        if not asked.isdisjoint(pair)
    ]
    across = itertools.combinations([name for name in search.names if name in asked], 2)
    pairs = {frozenset(pair): pair for pair in (*within, *across)}.values()
    return itertools.islice(pairs, _PAIRS if len(search.names) > 2 else 0)


def _beside_choices(search: _Search) -> Iterator[Group]:
    """Sizes at which an operator chooses another way, and one more is 1.

    Of a window and a step of one token neither may make a difference alone.
    """
    asked = {name for one in search.conditions if one.of_special for name in one.names}
    choices = [one for one in search.conditions if one.choice and one.matters]
    for condition in choices[:_CHOICES]:
        *_, farthest = [[], *search.breaking(condition)]  # nearer ones may hold with a 1
        found = [{**sizes, name: 1} for name in sorted(asked) for sizes in farthest[:1]]
        found = [one for one in found if not search.holds(condition, one)]
        yield from (Group([one], condition) for one in filter(search.legal.allows, found))


def _each_value_first(
    condition: Condition, broken: Sequence[Sizes], keep: Mapping[str, int]
) -> list[Sizes]:
    """The same sizes, but first some for each number that the condition compares."""
    first: dict[int | None, Sizes] = {}
    for one in broken:
        first.setdefault(condition.tested({**one, **keep}), one)
    return [*first.values(), *(one for one in broken if one not in first.values())]


def _distance(sizes: Sizes, wanted: Sizes) -> float:
    """How far sizes are from those wanted, relative to them; of two alike the larger is nearer."""
    return sum(
        abs(size - wanted[name]) / max(wanted[name], 1) - 1e-9 * size
        for name, size in sizes.items()
    )


def _of(sizes: Mapping[str, int], names: Collection[str]) -> Sizes:
    return {name: size for name, size in sizes.items() if name in names}


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
