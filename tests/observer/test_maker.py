from __future__ import annotations

from typing import Any

import pytest
import torch

from torchferry.dims import Legal
from torchferry.errors import UsageError
from torchferry.observer import Call, Observation
from torchferry.observer.maker import Maker, check_leaves, choose_sizes, size_parameters
from torchferry.observer.tree import leaves_of


def rows(batch_size: int, width: int) -> tuple[torch.Tensor]:
    return (torch.zeros(batch_size, width),)


def maker(function: Any = rows, legal: str | None = None) -> Maker:
    return Maker(function, "make", size_parameters(function), Legal.of(legal))


def accept(_: Any) -> None:
    return None


def test_parameters_are_sizes_unless_their_default_is_something_else() -> None:
    def make(a, b=3, *, c, flag=True, kind="x", dtype=torch.float32, model=None, **more): ...

    assert size_parameters(make) == {"a": None, "b": 3, "c": None}
    assert size_parameters(lambda: None) == {}


def test_a_call_takes_its_own_sizes_the_only_legal_ones_and_defaults() -> None:
    def make(a, b=7, c=8):
        return {"x": (a, b, c)}

    asked = maker(make, "a=1..9, b=4")
    assert asked({"a": 2, "other": 5}) == ((), {"x": (2, 4, 8)})
    assert asked.names == ["a", "c"]
    with pytest.raises(UsageError, match="no size given for a"):
        asked({"b": 4})


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: [(a,)], r"make\(a=2\) gives a list; a function of sizes returns one set"),
        (lambda a: a, "an input set is int"),
        (lambda a: 1 // (a - 2), r"make\(a=2\) raised ZeroDivisionError: "),
    ],
)
def test_what_is_no_set_is_refused(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        maker(function)({"a": 2})


def test_what_it_gives_is_finished() -> None:
    made = Maker(rows, "make", {"batch_size": 2, "width": 3}, finish=lambda one: (one[0] * 2, {}))
    assert len(made({})[0]) == 2


# Which sizes are asked for ----------------------------------------------------------------------


def chosen(made: Maker, accepts: Any = accept) -> list[dict[str, int]]:
    return [sizes for sizes, _ in choose_sizes(made, accepts)]


def test_two_sets_of_small_sizes_that_all_differ() -> None:
    first, second = chosen(maker())
    assert first == {"batch_size": 2, "width": 3}
    assert all(first[name] != second[name] for name in first)


def test_defaults_come_first() -> None:
    def make(batch_size=4, width=224):
        return rows(batch_size, width)

    first, second = chosen(maker(make))
    assert first == {"batch_size": 4, "width": 224}
    assert second["width"] != 224


@pytest.mark.parametrize("multiple", [8, 32, 100])
def test_multiples_are_found(multiple: int) -> None:
    def accepts(arguments: Any) -> str | None:
        width = arguments[0][0].shape[1]
        return None if width % multiple == 0 else f"no multiple: {width}"

    if multiple == 100:  # nothing tells of it
        with pytest.raises(
            UsageError, match=r"give defaults.*given make\(batch_size=2, width=3\)"
        ):
            chosen(maker(), accepts)
        return
    sets = chosen(maker(), accepts)
    assert len({sizes["width"] for sizes in sets}) == 2
    assert all(sizes["width"] % multiple == 0 and sizes["batch_size"] < 10 for sizes in sets)


def test_a_part_is_shorter_than_the_whole_wherever_it_stands() -> None:
    def make(start, length, t):
        if start + t > length:
            raise ValueError("too long")
        return (torch.zeros(length), torch.zeros(t), start)

    sets = chosen(maker(make))
    assert all(one["start"] + one["t"] <= one["length"] for one in sets)
    assert all(len({one[name] for one in sets}) > 1 for name in ("start", "length", "t"))


def test_stated_sizes_are_kept_to() -> None:
    legal = "batch_size=1..3, width=64|128"
    sets = chosen(maker(legal=legal))
    assert all(Legal.of(legal).allows(sizes) for sizes in sets)
    assert {sizes["width"] for sizes in sets} == {64, 128}


def test_where_no_two_may_change_together_each_changes_alone() -> None:
    def accepts(arguments: Any) -> str | None:
        batch, width = arguments[0][0].shape
        return None if batch == 2 or width == 3 else "one of the two stays"

    first, *others = chosen(maker(), accepts)
    assert first == {"batch_size": 2, "width": 3}
    assert [sum(one[name] != first[name] for name in first) for one in others] == [1, 1]


def test_a_parameter_with_one_size_only_is_a_mistake() -> None:
    def accepts(arguments: Any) -> str | None:
        return None if arguments[0][0].shape[1] == 3 else "width is 3"

    with pytest.raises(UsageError, match=r"make: width can be 3 only.*width is 3.*leave"):
        chosen(maker(), accepts)


# What it gives for other sizes ------------------------------------------------------------------


def observed(*calls: dict[str, Any]) -> Observation:
    import inspect

    def forward(x, y=None, flag=1): ...

    return Observation(inspect.signature(forward), "Model", [Call((), one) for one in calls])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": torch.zeros(3, 2)}, None),
        ({"x": torch.zeros(3, 2), "flag": 1}, None),
        ({"x": torch.zeros(3, 2), "y": torch.zeros(1)}, "has y, unlike"),
        ({}, "has no x, unlike"),
        ({"x": torch.zeros(3)}, "gives T1s3 for x"),
        ({"x": torch.zeros(3, 2, dtype=torch.int64)}, "gives T7s3x2 for x"),
        ({"x": 5}, "gives int for x"),
        ({"x": torch.zeros(3, 2), "flag": 2}, "gives int for flag"),
    ],
)
def test_other_arguments_than_those_observed(given: dict[str, Any], message: str | None) -> None:
    seen = observed({"x": torch.zeros(2, 2), "flag": 1}, {"x": torch.zeros(4, 2), "flag": 1})
    arguments = seen.arguments
    leaves = leaves_of((), {"flag": 1, **given})
    if message is None:
        check_leaves(leaves, arguments, "make(a=3)")
        return
    with pytest.raises(UsageError, match=rf"make\(a=3\) {message}"):
        check_leaves(leaves, arguments, "make(a=3)")
