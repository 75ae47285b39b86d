"""Looks for sizes that fulfil conditions, or break one of them, near those wanted."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from torchferry.dims import Condition
from torchferry.observer import Observation

__all__ = ["SizeSearch", "Sizes"]

Sizes = dict[str, int]

_ALTERNATIVES = 4  # sizes that break a condition; PyTorch may refuse some
_GROWTH = 4  # how often the largest recorded size is the largest that is made
_FAR = 2  # the same, of sizes that break a condition far from the recorded ones
_COMBINATIONS = 500  # sizes looked at for those that fulfil every condition
_INNER = 100  # of those that break one, how many are looked at for such as are not at its border
_BROKEN = 24  # of those that break one, how many are looked at for such as break no other
_NEGATIVE = (-1, -3)  # integers that are tried where a condition excludes such
_EFFORT = 6_000  # conditions that are evaluated, at a millisecond each if they are long


class SizeSearch:
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
        names_of = [argument.names for argument in seen.arguments]
        self.arguments = [[n for n in self.names if n in one] for one in names_of]
        # Those that a condition compares with 0 or 1.
        self.asked = {name for one in self.conditions if one.of_special for name in one.names}
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
