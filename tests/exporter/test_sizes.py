from __future__ import annotations

import inspect

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.dims import Condition
from torchferry.exporter.sizes import Group, Sizes, other_sizes
from torchferry.observer import Call, Observation
from torchferry.values import make_dynamic_cache


def decode(x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
    return x


def observation(*shapes: tuple[int, ...]) -> Observation:
    calls = [Call((), {"x": torch.zeros(shape)}) for shape in shapes]
    return Observation(inspect.signature(decode), "Model", calls)


def flat(groups: list[Group]) -> list[Sizes]:
    return [sizes for group in groups for sizes in group.alternatives]


def test_nothing_varies_nothing_to_try() -> None:
    assert other_sizes(observation((2, 3), (2, 3))) == []


def test_one_dimension() -> None:
    groups = other_sizes(observation((3, 4), (5, 4)))
    assert [group.alternatives[0] for group in groups] == [{"batch_size": 6}, {"batch_size": 1}]


def test_batch_1_is_not_tried_again_when_it_was_recorded() -> None:
    sizes = flat(other_sizes(observation((1, 4), (5, 4))))
    assert {"batch_size": 1} not in sizes
    assert {"batch_size": 6} in sizes


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=2, max_size=4))
def test_each_dimension_gets_1_and_a_size_that_was_not_seen(shapes: list[tuple[int, int]]) -> None:
    seen = observation(*shapes)
    recorded = [seen.sizes_of(call) for call in seen.calls]
    groups = other_sizes(seen)
    tried = flat(groups)
    assert not [sizes for sizes in tried if sizes in recorded]
    assert len({tuple(sizes.items()) for sizes in tried}) == len(tried)
    for name in seen.dynamic_names:
        assert any(sizes[name] == 1 for sizes in recorded + tried)
        assert max(s[name] for s in groups[0].alternatives) > max(s[name] for s in recorded)
    assert all(set(sizes) == set(seen.dynamic_names) for sizes in tried)


def test_alternatives_to_sizes_that_do_not_divide() -> None:
    first = other_sizes(observation((3, 4), (5, 8)))[0].alternatives
    assert first == [
        {"batch_size": 6, "x_dim_1": 10},
        {"batch_size": 10, "x_dim_1": 24},
        {"batch_size": 10, "x_dim_1": 16},
    ]


def test_one_at_a_time_keeps_the_others_as_in_the_best_call() -> None:
    sizes = flat(other_sizes(observation((3, 4), (5, 8))))
    assert {"batch_size": 1, "x_dim_1": 4} in sizes
    assert {"batch_size": 3, "x_dim_1": 1} in sizes
    assert {"batch_size": 1, "x_dim_1": 1} in sizes


def test_a_size_that_must_stay_stays() -> None:
    sizes = flat(other_sizes(observation((3, 4), (5, 8)), keep={"x_dim_1": 4}))
    assert sizes
    assert {one["x_dim_1"] for one in sizes} == {4}
    assert other_sizes(observation((3, 4), (5, 4)), keep={"batch_size": 3}) == []


def cached(*lengths: int) -> Observation:
    calls = []
    for batch, length in enumerate(lengths, 2):
        layer = (torch.zeros(batch, 2, length, 4), torch.zeros(batch, 2, length, 4))
        past = make_dynamic_cache([layer])
        calls.append(Call((), {"x": torch.zeros(batch, 3), "y": past}))
    return Observation(inspect.signature(decode), "Model", calls)


def test_sizes_that_break_a_condition_are_tried_beside_one_that_must_stay() -> None:
    seen = observation((2, 3), (4, 5))
    batch, rows = seen.dynamic_names
    longer = Condition("n0 < 2 * n1", (batch, rows))
    tried = flat(other_sizes(seen, conditions=[longer]))
    assert any(sizes[batch] >= 2 * sizes[rows] > 2 for sizes in tried)
    tried = flat(other_sizes(seen, keep={rows: 5}, conditions=[longer]))
    assert {sizes[rows] for sizes in tried} == {5}
    assert any(sizes[batch] >= 10 for sizes in tried)


def test_a_cache_is_tried_empty_and_nothing_else_is() -> None:
    sizes = flat(other_sizes(cached(5, 8)))
    assert {"batch_size": 2, "past_sequence_length": 0} in sizes
    assert all(one["batch_size"] > 0 for one in sizes)


def test_a_cache_of_fixed_length_is_not_emptied() -> None:
    sizes = flat(other_sizes(cached(5, 5)))
    assert sizes
    assert set().union(*sizes) == {"batch_size"}


@pytest.mark.parametrize("shapes", [((0, 4), (1, 4)), ((0, 0), (1, 1))])
def test_empty_tensors_were_recorded(shapes: tuple[tuple[int, ...], ...]) -> None:
    groups = other_sizes(observation(*shapes))
    assert all(size >= 1 for sizes in flat(groups) for size in sizes.values())
