from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.observer.sets import (
    Arguments,
    arrange,
    as_arguments,
    as_sets,
    given_values,
    name_positional,
    positional_keys,
    refuse_mixed,
    star_position,
)


def plain(a: Any, b: Any = None, *, c: Any = None, **more: Any) -> None: ...
def starred(a: Any, *xs: Any, c: Any = None) -> None: ...
def only(a: Any, b: Any = None, /, c: Any = None) -> None: ...


def arranged(function: Callable[..., Any], *sets: Arguments) -> list[Arguments]:
    return arrange(inspect.signature(function), sets, "Net.forward")


@pytest.mark.parametrize("one", [[1, 2], {1: 2}, 5, "ab", None], ids=str)
def test_what_is_no_set(one: Any) -> None:
    with pytest.raises(UsageError, match=r"an input set is .*give a tuple"):
        as_arguments(one)


def test_a_tuple_and_a_dict_are_two_positional_arguments_unless_the_first_is_a_tuple() -> None:
    assert as_arguments((1, {"y": 2})) == ((1, {"y": 2}), {})
    assert as_arguments(((1,), {"y": 2})) == ((1,), {"y": 2})
    assert as_arguments(()) == ((), {})


@pytest.mark.parametrize("sets", [None, 3, {"x": 1}, "ab", torch.zeros(2)], ids=str)
def test_what_is_no_list_of_sets(sets: Any) -> None:
    with pytest.raises(UsageError, match="export takes a list of input sets, not"):
        as_sets(sets, "export")


def test_sets_may_come_one_by_one() -> None:
    assert as_sets(iter([(1,), {"x": 2}]), "export") == [((1,), {}), ((), {"x": 2})]


def test_what_is_positional_in_all_stays_so() -> None:
    assert arranged(plain, ((1, 2), {}), ((3, 4), {"c": 5})) == [((1, 2), {}), ((3, 4), {"c": 5})]
    assert arranged(plain, ((1, 2), {}), ((3,), {})) == [((1, 2), {}), ((3,), {})]


def test_what_one_set_names_is_named_in_all() -> None:
    both = arranged(plain, ((1, 2), {}), ((3,), {"b": 4}))
    assert both == [((1,), {"b": 2}), ((3,), {"b": 4})]
    # what follows a named argument can only be named
    both = arranged(plain, ((1, 2), {}), ((), {"a": 3}))
    assert both == [((), {"a": 1, "b": 2}), ((), {"a": 3})]


def test_keywords_come_in_the_order_of_the_signature_and_further_ones_last() -> None:
    one = arranged(plain, ((), {"z": 1, "c": 2, "b": 3, "a": 4}))[0]
    assert list(one[1].items()) == [("a", 4), ("b", 3), ("c", 2), ("z", 1)]


def test_what_stands_before_a_star_stays_positional() -> None:
    both = arranged(starred, ((1, 2, 3), {}), ((), {"a": 1, "c": 4}))
    assert both == [((1, 2, 3), {}), ((1,), {"c": 4})]
    assert star_position(inspect.signature(starred)) == 1
    assert star_position(inspect.signature(plain)) is None


def test_keys_are_names_where_there_can_be_one() -> None:
    assert positional_keys(inspect.signature(plain), 2) == ["a", "b"]
    assert positional_keys(inspect.signature(only), 3) == [0, 1, "c"]
    assert positional_keys(inspect.signature(starred), 3) == [0, 1, 2]


def test_sets_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Net.forward\(a, b=None, .*missing.*'a'[\s\S]*given"):
        arranged(plain, ((), {"b": 1}))
    with pytest.raises(UsageError, match=r"no input set of Net\.forward"):
        arranged(plain)


def test_naming_positional_arguments() -> None:
    assert name_positional(inspect.signature(plain), (1, 2), "f") == {"a": 1, "b": 2}
    assert name_positional(inspect.signature(starred), (1,), "f") == {"a": 1}
    with pytest.raises(UsageError, match=r"\*xs can be given by position only"):
        name_positional(inspect.signature(starred), (1, 2), "f")
    with pytest.raises(UsageError, match=r"f: a can be given by position only"):
        name_positional(inspect.signature(only), (1, 2), "f")
    with pytest.raises(UsageError, match="takes 2 positional arguments, and 3"):
        name_positional(inspect.signature(plain), (1, 2, 3), "f")


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        ([{"b": True}, {}], "b of Net is True"),
        ([{}, {"b": "x"}], "b of Net is 'x'"),
        ([{"b": None}, {"b": 3}], "b of Net is 3"),
        ([{"b": True}, {"b": True}], ""),
        ([{"b": None}, {}], ""),
        ([{"b": [1]}, {}], ""),  # what is within is looked at leaf by leaf
        ([{"d": 3}, {}], ""),  # absent is the default, which is no None
        ([{"d": 3}, {"d": None}], "d of Net is 3"),
    ],
)
def test_a_constant_that_other_calls_leave_at_none_is_refused(
    calls: list[dict[str, Any]], refused: str
) -> None:
    def defaults(a: Any = None, b: Any = None, d: Any = 2) -> None: ...

    signature = inspect.signature(defaults)
    values = given_values([signature.bind(**call) for call in calls])
    if not refused:
        refuse_mixed(values, "Net")
        return
    with pytest.raises(UsageError, match=f"argument {refused} in one call and None in another"):
        refuse_mixed(values, "Net")


def test_the_values_of_all_calls_are_those_given_or_the_defaults() -> None:
    def function(a: Any, /, b: Any = 2, *xs: Any, c: Any) -> None: ...

    bind = inspect.signature(function).bind_partial
    assert given_values([bind(1, c=5), bind(3, 4, 6)]) == {
        "a": [1, 3], "c": [5, None], "b": [2, 4], "xs": [None, (6,)],
    }  # fmt: skip
    assert given_values([]) == {}
