from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import torch
from torch.export import Dim

from torchferry.observer.hints import (
    fitting_shape,
    nest_shapes,
    use_dyn_not_str,
    use_str_not_dyn,
)
from torchferry.values import make_dynamic_cache

DYNAMIC, AUTO = Dim.DYNAMIC, Dim.AUTO
Point = namedtuple("Point", "left right")

NAMED = {
    "input_ids": {0: "batch", 1: "seq_length"},
    "attention_mask": {0: "batch", 1: "cache+seq"},
    "past_key_values": [[{0: "batch", 2: "cache_length"}], [{0: "batch", 2: "cache_length"}]],
    "flag": None,
    "pair": ({0: "batch"}, ["a", None, 3], {}),
}
HINTED = {
    "input_ids": {0: DYNAMIC, 1: DYNAMIC},
    "attention_mask": {0: DYNAMIC, 1: DYNAMIC},
    "past_key_values": [[{0: DYNAMIC, 2: DYNAMIC}], [{0: DYNAMIC, 2: DYNAMIC}]],
    "flag": None,
    "pair": ({0: DYNAMIC}, [DYNAMIC, None, 3], {}),
}


def test_names_become_hints_in_any_nesting() -> None:
    before = copy.deepcopy(NAMED)
    assert use_dyn_not_str(NAMED) == HINTED
    assert before == NAMED


def test_another_hint_can_be_asked_for() -> None:
    assert use_dyn_not_str(({0: "a"}, None), AUTO) == ({0: AUTO}, None)


def test_what_is_no_name_stays() -> None:
    width = Dim("width")
    given = ({0: width, 1: AUTO, 2: 5, 3: None},)
    assert use_dyn_not_str(given) == given
    assert use_dyn_not_str(None) is None


def test_hints_become_names_of_their_places() -> None:
    assert use_str_not_dyn(HINTED) == {
        "input_ids": {0: "input_ids_dim_0", 1: "input_ids_dim_1"},
        "attention_mask": {0: "attention_mask_dim_0", 1: "attention_mask_dim_1"},
        "past_key_values": [
            [{0: "past_key_values_0_0_dim_0", 2: "past_key_values_0_0_dim_2"}],
            [{0: "past_key_values_1_0_dim_0", 2: "past_key_values_1_0_dim_2"}],
        ],
        "flag": None,
        "pair": ({0: "pair_0_dim_0"}, ["pair_1_dim_0", None, 3], {}),
    }


def test_the_names_are_stable_and_all_different() -> None:
    def leaves(value: Any) -> list[str]:
        if isinstance(value, dict | list | tuple):
            inner = value.values() if isinstance(value, dict) else value
            return [name for item in inner for name in leaves(item)]
        return [value] if isinstance(value, str) else []

    names = leaves(use_str_not_dyn(HINTED))
    assert len(names) == len(set(names)) == 10
    assert leaves(use_str_not_dyn(HINTED)) == names
    # what is around an argument has no say in its names
    assert use_str_not_dyn({"pair": HINTED["pair"]})["pair"] == use_str_not_dyn(HINTED)["pair"]


def test_a_dim_keeps_its_name_and_static_stays() -> None:
    batch = Dim("batch", min=2)
    shapes = ({0: batch, 1: 2 * batch, 2: Dim.STATIC, 3: "given", 4: AUTO, 5: 7},)
    assert use_str_not_dyn(shapes) == (
        {0: "batch", 1: "2*batch", 2: Dim.STATIC, 3: "given", 4: "args_0_dim_4", 5: 7},
    )


def test_an_integer_argument_is_named_after_itself() -> None:
    assert use_str_not_dyn({"n": DYNAMIC}) == {"n": "n"}
    assert use_str_not_dyn(DYNAMIC) == "size"


def test_names_round_trip() -> None:
    assert use_dyn_not_str(use_str_not_dyn(HINTED)) == HINTED


def test_nesting_follows_torch() -> None:
    cache = make_dynamic_cache([(torch.zeros(2, 1, 3, 4), torch.ones(2, 1, 3, 4))] * 2)
    value = OrderedDict(cache=cache, rest=(torch.zeros(1), None, 5))
    shapes = nest_shapes(value, ("x",), lambda path, leaf: path if leaf is not None else None)
    assert type(shapes) is OrderedDict
    assert shapes["cache"] == [
        [("x", "cache", "key_cache", 0), ("x", "cache", "key_cache", 1)],
        [("x", "cache", "value_cache", 0), ("x", "cache", "value_cache", 1)],
    ]
    assert shapes["rest"] == (("x", "rest", 0), None, ("x", "rest", 2))
    assert nest_shapes(torch.zeros(1), ("x",), lambda *_: {0: DYNAMIC}) == {0: DYNAMIC}
    assert nest_shapes([], ("x",), lambda *_: None) == []


def test_a_shape_is_none_where_the_value_is():
    shape = {0: "n"}
    assert fitting_shape(None, shape) is None
    assert fitting_shape(1, shape) == shape
    assert fitting_shape((1, None), (shape, shape)) == (shape, None)
    assert fitting_shape([None], [shape]) == [None]
    assert fitting_shape([1], [shape, shape]) == [shape, shape]  # torch.export says what is wrong


def test_containers_keep_their_type() -> None:
    shape: dict[int, Any] = {0: "n"}
    lists = defaultdict(list, b=shape)
    for container in (Point(shape, None), OrderedDict(a=shape), lists, (shape,), [shape]):
        hinted = use_dyn_not_str(container)
        named = use_str_not_dyn(hinted)
        fitting = fitting_shape(container, named)
        assert type(hinted) is type(named) is type(fitting) is type(container)
    assert use_dyn_not_str(Point(shape, None)) == Point({0: DYNAMIC}, None)
    assert use_dyn_not_str(lists).default_factory is list
    assert fitting_shape(Point(None, 1), Point(shape, shape)) == Point(None, shape)
