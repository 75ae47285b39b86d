from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchferry.dims import evaluate, parse_size
from torchferry.errors import UsageError
from torchferry.observer.vary import infer_axes, sizes_in

FIRST = {"a": 4, "b": 6, "c": 9}
VALUES = {"a": [8, 5, 3], "b": [7, 12, 5], "c": [10, 18, 8]}


@pytest.mark.parametrize(
    ("function", "size"),
    [
        (lambda a: a, "a"),
        (lambda a: 2 * a, "2*a"),
        (lambda a: 3 * a + 1, "3*a + 1"),
        (lambda a: 40 - a, "-a + 40"),
        (lambda a: a // 2, "a//2"),
        (lambda a: (a + 2) // 3, "(a + 2)//3"),
        (lambda a: a * a, "a*a"),
        (lambda a, b: a + b, "a + b"),
        (lambda a, b: a * b, "a*b"),
        (lambda a, b: a * b + 2 * a - 1, "a*b + 2*a - 1"),
        (lambda a, b, c: a * b * c, "a*b*c"),
        (lambda a, b, c: a * (b + c), "a*b + a*c"),
    ],
)
def test_expressions(function: Callable[..., int], size: str) -> None:
    names = inspect.signature(function).parameters
    found = infer_axes(
        {n: FIRST[n] for n in names},
        {n: VALUES[n] for n in names},
        lambda sizes: {("x",): torch.zeros(function(**sizes), 2), ("n",): function(**sizes)},
        "make",
    )
    assert found.keys() == {(("x",), 0), (("n",), -1)}
    for one in found.values():
        assert one == parse_size(size)
        other = {"a": 11, "b": 13, "c": 17}
        given = {n: other[n] for n in names}
        assert evaluate(one, given) == function(**given)


def test_what_follows_no_rule_is_left_out() -> None:
    def leaves(sizes: dict[str, int]) -> dict[Any, torch.Tensor]:
        return {("x",): torch.zeros(sizes["a"], {4: 9, 8: 2, 5: 7, 3: 8}[sizes["a"]])}

    found = infer_axes({"a": 4}, {"a": VALUES["a"]}, leaves, "make")
    assert {axis: str(size) for (_, axis), size in found.items()} == {0: "a"}


def test_sizes_without_inputs_are_passed_over() -> None:
    def leaves(sizes: dict[str, int]) -> dict[Any, torch.Tensor] | None:
        return None if sizes["a"] % 4 else {("x",): torch.zeros(2 * sizes["a"])}

    found = infer_axes({"a": 4}, {"a": [5, 8, 6, 12]}, leaves, "make")
    assert str(found[("x",), 0]) == "2*a"


def test_a_parameter_that_changes_nothing_is_a_mistake() -> None:
    with pytest.raises(UsageError, match=r"make: its parameter b changes no size.*Leave it out"):
        infer_axes(
            {"a": 4, "b": 6}, {"a": [5], "b": [7]}, lambda s: {("x",): torch.zeros(s["a"])}, "make"
        )


@pytest.mark.parametrize("other", [lambda n: (2,) * n, lambda n: (2,)])
def test_another_structure_at_another_size_is_a_mistake(other: Any) -> None:
    def leaves(sizes: dict[str, int]) -> dict[Any, torch.Tensor]:
        if other(3) == (2,):
            return {(str(i),): torch.zeros(sizes["a"]) for i in range(sizes["a"])}
        return {("x",): torch.zeros(other(sizes["a"]))}

    with pytest.raises(UsageError, match="make: with a=5 the inputs have other tensors"):
        infer_axes({"a": 4}, {"a": [5]}, leaves, "make")


def test_sizes_of_tensors_and_integers() -> None:
    leaves = {("x",): torch.zeros(2, 3), ("n",): 4, ("flag",): True, ("s",): "text"}
    assert sizes_in(leaves) == {(("x",), 0): 2, (("x",), 1): 3, (("n",), -1): 4}
