"""Layers of a drawn graph: which box is in which, in what order, and where."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from torchferry.graph.diagram import Arrow

__all__ = ["Net", "arrange"]

_ORDERING, _MOVING = 12, 8  # sweeps; later ones change nothing that can be seen
_PATIENCE = 60_000  # places times sweeps, so that a model of thousands of operators takes seconds
_STRAIGHT = 4.0  # how much more a place in the middle of a long arrow resists being moved


@dataclass
class Net:
    """Boxes and the places of long arrows, layer by layer.

    Attributes:
        rows: the names in each layer.
        layer: of each name.
        paths: for each arrow the names it passes: source, a place in each layer between, target.
            Arrows of one value share their places.
        up: neighbours of each name in the layer above.
        down: and below.
        cyclic: the name of a box that depends on itself.
    """

    rows: list[list[str]] = field(default_factory=list)
    layer: dict[str, int] = field(default_factory=dict)
    paths: list[tuple[Arrow, list[str]]] = field(default_factory=list)
    up: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    down: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    cyclic: str = ""

    @classmethod
    def of(cls, names: Sequence[str], arrows: Sequence[Arrow]) -> Net:
        """Give every box its layer; both ends of the arrows are among the names."""
        net = cls()
        net.layer, net.cyclic = _layers(names, arrows)
        if net.cyclic:
            return net
        net.rows = [[] for _ in range(max(net.layer.values(), default=-1) + 1)]
        for name in names:
            net.rows[net.layer[name]].append(name)
        for arrow in arrows:
            net._lead(arrow)
        return net

    def _lead(self, arrow: Arrow) -> None:
        path = [arrow.source]
        for layer in range(self.layer[arrow.source] + 1, self.layer[arrow.target]):
            name = f"{arrow.source}|{arrow.label}|{layer}"
            if name not in self.layer:
                self.layer[name] = layer
                self.rows[layer].append(name)
            path.append(name)
        path.append(arrow.target)
        for above, below in pairwise(path):
            if below not in self.down[above]:
                self.down[above].append(below)
                self.up[below].append(above)
        self.paths.append((arrow, path))


def _layers(names: Sequence[str], arrows: Sequence[Arrow]) -> tuple[dict[str, int], str]:
    """One below the last source; a box without sources stands just above what takes it."""
    following: dict[str, list[str]] = defaultdict(list)
    waiting = dict.fromkeys(names, 0)
    for arrow in arrows:
        following[arrow.source].append(arrow.target)
        waiting[arrow.target] += 1
    sources = {name for name, count in waiting.items() if not count}
    layer = dict.fromkeys(names, 0)
    ready = [name for name in names if name in sources]
    for name in ready:
        for other in following[name]:
            layer[other] = max(layer[other], layer[name] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    if len(ready) < len(names):
        return layer, next(name for name in names if waiting[name])
    for name in sources:
        if following[name]:
            layer[name] = min(layer[other] for other in following[name]) - 1
    return layer, ""


def arrange(net: Net, widths: Mapping[str, float], gap: float) -> dict[str, float]:
    """Order the rows of a net, in place, and place them.

    Args:
        net: without a cycle.
        widths: of boxes, in pixels; other names are places of arrows and have none.
        gap: pixels between two boxes.

    Returns:
        the middle of each name.
    """
    places = sum(map(len, net.rows))
    sweeps = max(2, min(_ORDERING, _PATIENCE // max(places, 1)))
    _order(net, sweeps)
    x: dict[str, float] = {}
    for row in net.rows:
        offsets = _offsets(row, widths, gap)
        middle = offsets[-1] / 2 if row else 0.0
        x |= {name: offset - middle for name, offset in zip(row, offsets, strict=True)}
    for _ in range(max(2, min(_MOVING, _PATIENCE // max(places, 1)))):
        # Looking one way only carries a long arrow straight through all its layers.
        for row in net.rows[1:]:
            _settle(row, net.up, x, widths, gap)
        for row in net.rows[-2::-1]:
            _settle(row, net.down, x, widths, gap)
    return x


def _order(net: Net, sweeps: int) -> None:
    best, least = [list(row) for row in net.rows], _crossings(net)
    for sweep in range(sweeps):
        rows, neighbours = (net.rows, net.up) if sweep % 2 == 0 else (net.rows[::-1], net.down)
        at: dict[str, float] = {}
        for row in rows:
            wanted = {
                name: sum(at[other] for other in near) / len(near)
                for name in row
                if (near := neighbours[name])
            }
            row.sort(key=_keeping(row, wanted))
            at |= {name: number / max(len(row) - 1, 1) for number, name in enumerate(row)}
        crossings = _crossings(net)
        if crossings < least:
            best, least = [list(row) for row in net.rows], crossings
    net.rows = best


def _keeping(row: Sequence[str], wanted: Mapping[str, float]) -> Callable[[str], float]:
    """What to sort by: what nothing pulls keeps its place among the others."""
    last = max(len(row) - 1, 1)
    return {name: wanted.get(name, i / last) for i, name in enumerate(row)}.__getitem__


def _crossings(net: Net) -> int:
    count = 0
    for row, below in pairwise(net.rows):
        at = {name: number for number, name in enumerate(below)}
        seen: list[int] = []
        for name in row:
            ends = [at[other] for other in net.down[name]]
            count += sum(len(seen) - bisect_left(seen, end + 1) for end in ends)
            for end in ends:
                insort(seen, end)
    return count


def _offsets(row: Sequence[str], widths: Mapping[str, float], gap: float) -> list[float]:
    """Where the middles stand when the row is packed, the first at 0."""
    found = [0.0] * len(row)
    for index in range(1, len(row)):
        one, other = widths.get(row[index - 1]), widths.get(row[index])
        between = gap if one is not None or other is not None else gap / 2
        found[index] = found[index - 1] + ((one or 0.0) + (other or 0.0)) / 2 + between
    return found


def _settle(
    row: Sequence[str],
    neighbours: Mapping[str, Sequence[str]],
    x: dict[str, float],
    widths: Mapping[str, float],
    gap: float,
) -> None:
    """Move a row as near to its neighbours as its order and the gaps allow.

    The sum of squares is least when runs that would overlap stand together, around the mean of
    where they want to be: pool adjacent violators (Ayer et al., 1955).
    """
    offsets = _offsets(row, widths, gap)
    pools: list[tuple[float, float, int]] = []  # where, weight, how many
    for name, offset in zip(row, offsets, strict=True):
        near = [x[other] for other in neighbours.get(name, ())]
        where = (sum(near) / len(near) if near else x[name]) - offset
        weight = 1.0 if name in widths else _STRAIGHT
        count = 1
        while pools and pools[-1][0] > where:
            before, heavy, many = pools.pop()
            where = (before * heavy + where * weight) / (heavy + weight)
            weight, count = weight + heavy, count + many
        pools.append((where, weight, count))
    starts = [where for where, _, count in pools for _ in range(count)]
    for name, start, offset in zip(row, starts, offsets, strict=True):
        x[name] = start + offset
