"""Sizes near those wanted that fulfil conditions, and such that break one of them alone."""

from __future__ import annotations

import torch

from torchferry.dims import Condition
from torchferry.exporter.verify.size_search import SizeSearch
from torchferry.observer import Observation

EVEN = Condition("n0 % 2 == 0", ("rows",))
WIDER = Condition("n1 > n0", ("rows", "columns"))


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


def search(*conditions: Condition) -> SizeSearch:
    sets = [((torch.zeros(rows, columns),), {}) for rows, columns in ((4, 6), (8, 9))]
    seen = Observation.from_inputs(Sum(), sets)
    rows, columns = seen.dynamic_names
    renamed = [
        Condition(one.test, tuple({"rows": rows, "columns": columns}[n] for n in one.sizes))
        for one in conditions
    ]
    return SizeSearch(seen, {}, renamed)


def test_the_nearest_sizes_fulfil_every_condition() -> None:
    found = search(EVEN, WIDER)
    rows, columns = found.names
    assert found.arguments == [[rows, columns]]
    sizes = found.nearest({rows: 5, columns: 5})
    assert sizes is not None
    assert sizes[rows] % 2 == 0
    assert sizes[columns] > sizes[rows]


def test_pinned_sizes_stay_or_there_are_none() -> None:
    found = search(EVEN)
    rows, columns = found.names
    assert found.nearest({rows: 6, columns: 3}, [rows]) == {rows: 6, columns: 3}
    assert found.nearest({rows: 5, columns: 3}, [rows]) is None


def test_a_condition_is_broken_alone() -> None:
    found = search(EVEN, WIDER)
    even, wider = found.conditions
    groups = [*found.breaking(even)]
    assert groups
    for sizes in (one for group in groups for one in group):
        assert not found.holds(even, sizes)
        assert found.holds(wider, sizes)


def test_larger_sizes_are_not_alike() -> None:
    found = search()
    larger = found.larger()
    assert all(size > found.largest[name] for name, size in larger.items())
    assert len({*larger.values()}) == 2
