from __future__ import annotations

import inspect
import time
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.dims import Condition, Legal
from torchferry.exporter.verify.sizes import Group, Sizes, further_sizes, other_sizes
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


def sizes_of(groups: list[Group]) -> list[Sizes]:
    """Of the groups that break nothing."""
    return flat([group for group in groups if group.breaks is None])


EIGHTS = [Condition("n0 % 8 == 0", ("batch_size",)), Condition("n0 % 8 == 0", ("x_dim_1",))]


def test_sizes_fulfil_all_conditions_but_the_broken_one() -> None:
    groups = other_sizes(observation((16, 24), (32, 40)), conditions=EIGHTS)
    plain = sizes_of(groups)
    assert plain
    assert all(one["batch_size"] % 8 == 0 == one["x_dim_1"] % 8 for one in plain)
    assert (
        max(one["batch_size"] for one in plain) > 32 or max(one["x_dim_1"] for one in plain) > 40
    )
    for condition in EIGHTS:
        broken = [group for group in groups if group.breaks is condition]
        assert len(broken) == 3
        (other,) = [one for one in EIGHTS if one is not condition]
        for sizes in flat(broken):
            assert not condition.holds(sizes)
            assert other.holds(sizes)
        near, _, far = broken
        name = condition.sizes[0]
        middle = {"batch_size": 16, "x_dim_1": 24}[name]
        assert abs(near.alternatives[0][name] - middle) == 1
        assert abs(far.alternatives[0][name] - middle) > 8


def test_conditions_between_names_are_fulfilled_together() -> None:
    batch, rows = "batch_size", "x_dim_1"
    less = Condition("n0 + 3 <= n1", (batch, rows))
    even = Condition("n0 % 2 == 0", (rows,))
    groups = other_sizes(observation((2, 6), (4, 10)), conditions=[less, even])
    plain = sizes_of(groups)
    assert {1} < {one[batch] for one in plain}
    assert all(less.holds(one) and even.holds(one) for one in plain)
    assert all(even.holds(one) for group in groups if group.breaks is less
               for one in group.alternatives)  # fmt: skip


def test_a_condition_that_recorded_sizes_break_is_no_obstacle() -> None:
    groups = other_sizes(
        observation((3, 4), (5, 4)), conditions=[Condition("n0 > 3", ("batch_size",))]
    )
    assert groups[0].alternatives[0] == {"batch_size": 6}
    assert all(one["batch_size"] > 3 for one in sizes_of(groups))
    assert {"batch_size": 1} in flat([group for group in groups if group.breaks])


def test_sizes_that_a_recorded_call_needs_come_early() -> None:
    """One token was recorded: whether others of its kind are right decides whether it is taken."""
    condition = Condition("n0 != 1", ("x_dim_1",))
    seen = observation((2, 5), (3, 1))
    groups = other_sizes(seen, conditions=[condition])
    breaking = [condition.broken_by(group.alternatives[0]) for group in groups]
    assert sum(breaking) > 1
    assert not breaking[0]
    assert all(breaking[1 : 1 + sum(breaking)])


def test_a_condition_that_no_size_fulfils_leaves_what_breaks_it() -> None:
    never = Condition("n0 < 0", ("batch_size",))
    groups = other_sizes(observation((3, 4), (5, 4)), conditions=[never])
    assert {group.breaks for group in groups} == {never}


def test_conditions_broken_together_only_are_broken_together() -> None:
    pair = [Condition("n0 % 4 == 0", ("batch_size",)), Condition("n0 % 4 < 1", ("batch_size",))]
    groups = other_sizes(observation((4, 3), (8, 3)), conditions=pair)
    assert {str(group.breaks) for group in groups if group.breaks} >= {"batch_size % 4 == 0"}


@pytest.mark.parametrize("names", [1, 2, 6, 30])
def test_sizes_stay_within_four_times_the_largest_recorded(names: int) -> None:
    calls = [
        Call((), {"x": {str(i): torch.zeros(2 + (call + i) % 3) for i in range(names)}})
        for call in range(3)
    ]
    seen = Observation(inspect.signature(decode), "Model", calls)
    largest = {n: max(seen.sizes_of(call)[n] for call in calls) for n in seen.dynamic_names}
    tried = flat(other_sizes(seen))
    assert tried
    assert all(size <= 4 * largest[name] for one in tried for name, size in one.items())


def test_a_condition_that_needs_larger_sizes_gets_them() -> None:
    bound = Condition("n0 <= 100", ("batch_size",))
    groups = other_sizes(observation((3, 4), (5, 4)), conditions=[bound])
    (broken,) = [group for group in groups if group.breaks]
    assert broken.alternatives[0] == {"batch_size": 101}
    assert max(one["batch_size"] for one in sizes_of(groups)) <= 20


def test_only_legal_sizes_are_tried_the_ends_among_them() -> None:
    legal = Legal.of("batch_size=2..9, x_dim_1=64..256:64")
    seen = replace(observation((2, 64), (3, 128)), legal=legal)
    odd = Condition("n0 != 5", ("batch_size",))
    small = Condition("n0 > 10", ("x_dim_1",))
    tried = flat(other_sizes(seen, conditions=[odd, small]))
    assert all(legal.allows(one) for one in tried)
    assert {one["batch_size"] for one in tried} >= {2, 5, 9}
    assert {one["x_dim_1"] for one in tried} >= {64, 256}
    assert other_sizes(replace(seen, legal=Legal.of("batch_size=2..3, x_dim_1=64|128"))) == [
        Group([{"batch_size": 3, "x_dim_1": 64}]), Group([{"batch_size": 2, "x_dim_1": 128}]),
    ]  # fmt: skip


def test_further_sizes_change_one_name_near_recorded_ones() -> None:
    (group,) = further_sizes(observation((3, 4), (5, 8)), ["x_dim_1"])
    assert {(one["batch_size"], one["x_dim_1"]) for one in group.alternatives} >= {
        (3, 5), (3, 3), (3, 8), (3, 2), (5, 9), (5, 7), (5, 16), (5, 4),
    }  # fmt: skip
    kept = further_sizes(observation((3, 4), (5, 8)), ["x_dim_1"], conditions=EIGHTS[1:])
    assert all(one["x_dim_1"] % 8 == 0 for one in flat(kept))
    assert further_sizes(observation((3, 4), (5, 8)), []) == []


def test_an_integer_that_varies_is_a_name_like_others() -> None:
    def forward(x, n): ...

    calls = [Call((), {"x": torch.zeros(b, 2), "n": n}) for b, n in ((2, 5), (3, 7))]
    seen = Observation(inspect.signature(forward), "Model", calls)
    even = Condition("n0 % 2 == 1", ("n",))
    groups = other_sizes(seen, conditions=[even])
    assert all(one["n"] % 2 for one in sizes_of(groups))
    assert any(one["n"] % 2 == 0 for group in groups if group.breaks for one in group.alternatives)


def test_many_conditions_take_little_time() -> None:
    names = [f"x_dim_{axis}" for axis in (1, 2, 3)]
    seen = observation((2, 64, 96, 32), (3, 96, 160, 64))
    many = [Condition(f"n0 % {k} == 0", (name,)) for name in names for k in (2, 4, 8, 16, 32)]
    many += [Condition("n0 * n1 % 1024 == 0", (a, b)) for a in names for b in names if a < b]
    start = time.process_time()
    groups = other_sizes(seen, conditions=many)
    assert sizes_of(groups)
    assert time.process_time() - start < 5
