import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.dims import evaluate
from torchferry.errors import UsageError
from torchferry.observer.infer import infer_arguments

KEY, VALUE = ("past_key_values", "key_cache", 0), ("past_key_values", "value_cache", 0)


def sizes(*calls):
    """The sizes inferred from calls given as ``{argument: shape}``, as text."""
    leaves = [
        {path if isinstance(path, tuple) else (path,): torch.zeros(shape) for path, shape in c}
        for c in (call.items() for call in calls)
    ]
    return {a.name: [str(axis.size) for axis in a.axes] for a in infer_arguments(leaves)}


def test_what_differs_is_dynamic_and_what_moves_together_is_one():
    found = sizes({"x": (2, 5, 7), "y": (2, 11)}, {"x": (3, 5, 8), "y": (3, 11)})
    assert found == {
        "x": ["batch_size", "5", "x_dim_2"],
        "y": ["batch_size", "11"],
    }


def test_a_single_call_shows_nothing_dynamic():
    (argument,) = infer_arguments([{("x",): torch.zeros(2, 3)}])
    assert [axis.size for axis in argument.axes] == [2, 3]
    assert argument.axes[0].reason == "2 in the only call → static"


def test_sum_product_and_multiple_are_written_so():
    found = sizes(
        {"a": (2,), "b": (5,), "c": (7,), "d": (10,), "e": (6,)},
        {"a": (3,), "b": (11,), "c": (14,), "d": (33,), "e": (9,)},
        {"a": (4,), "b": (7,), "c": (11,), "d": (28,), "e": (12,)},
    )
    assert found == {
        "a": ["batch_size"],
        "b": ["b_dim_0"],
        "c": ["b_dim_0 + batch_size"],
        "d": ["b_dim_0*batch_size"],
        "e": ["3*batch_size"],
    }


def test_the_reason_tells_every_size_seen():
    calls = [{("x",): torch.zeros(n)} for n in (2, 3, 2)]
    (argument,) = infer_arguments(calls)
    assert argument.axes[0].reason == "2, 3, 2 → dynamic"
    assert argument.axes[0].seen == (2, 3, 2)


def test_a_mask_is_past_and_sequence_and_an_empty_cache_has_length_0():
    found = sizes(
        {"input_ids": (2, 6), "attention_mask": (2, 6)},
        {"input_ids": (2, 1), "attention_mask": (2, 7), KEY: (2, 1, 6, 8), VALUE: (2, 1, 6, 8)},
        {"input_ids": (3, 4), "attention_mask": (3, 13), KEY: (3, 1, 9, 8), VALUE: (3, 1, 9, 8)},
    )
    past = ["batch_size", "1", "past_sequence_length", "8"]
    assert found == {
        "input_ids": ["batch_size", "sequence_length"],
        "attention_mask": ["batch_size", "past_sequence_length + sequence_length"],
        "past_key_values.0.key": past,
        "past_key_values.0.value": past,
    }


def test_a_sequence_that_is_always_one_token_may_be_a_part_of_a_sum():
    found = sizes(
        {"input_ids": (2, 1), "attention_mask": (2, 7), KEY: (2, 1, 6, 8)},
        {"input_ids": (3, 1), "attention_mask": (3, 9), KEY: (3, 1, 8, 8)},
    )
    assert found["attention_mask"] == ["batch_size", "past_sequence_length + 1"]
    assert found["input_ids"] == ["batch_size", "1"]


def test_a_constant_offset_between_other_dimensions_is_a_coincidence():
    found = sizes({"x": (2, 5)}, {"x": (3, 6)}, {"x": (4, 7)})
    assert found == {"x": ["batch_size", "x_dim_1"]}


def test_an_absent_tensor_says_nothing_and_does_not_take_the_name():
    calls = [
        {("mask",): torch.zeros(2, 4), ("x",): torch.zeros(2, 4)},
        {("x",): torch.zeros(3, 5)},
        {("mask",): torch.zeros(4, 5), ("x",): torch.zeros(4, 5)},
    ]
    mask, x = infer_arguments(calls)
    assert mask.optional
    assert not x.optional
    assert [a.size for a in mask.axes] == [a.size for a in x.axes]
    assert mask.axes[0].seen == (2, None, 4)
    assert mask.axes[0].reason == "2, absent, 4 → dynamic"


def test_a_static_axis_counts_the_calls_that_have_it():
    calls = [{("x",): torch.zeros(2), ("y",): torch.zeros(3)}, {("x",): torch.zeros(2)}]
    *_, y = infer_arguments([*calls, calls[0]])
    assert y.axes[0].reason == "3 in all 2 calls that have it → static"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (torch.zeros(2), torch.zeros(2, 2), "argument d.0 changes its rank between calls: 1, 2"),
        (torch.zeros(2), torch.zeros(2).half(), "changes its dtype .*float32, torch.float16"),
        (True, False, "argument d.0 is True in one call and False in another"),
        (1, True, "is 1 in one call and True in another"),
        (2, 2.0, "is 2 in one call and 2.0 in another"),
        ("a", "b", "is 'a' in one call and 'b' in another"),
        (3, torch.zeros(2, 2), "is 3 in one call and a tensor in another"),
        (torch.zeros(2, 2), 3, "is a tensor in one call and 3 in another"),
    ],
)
def test_arguments_that_do_not_agree_are_refused_by_name(first, second, message):
    with pytest.raises(UsageError, match=message):
        infer_arguments([{("d", 0): first}, {("d", 0): second}])


@pytest.mark.parametrize("constant", [True, 3, 2.5, "mean", math.nan])
def test_a_constant_keeps_its_value(constant):
    (argument,) = infer_arguments([{("mode",): constant}, {("mode",): constant}])
    assert argument.dtype is None
    assert argument.axes == ()
    assert argument.value is constant


def test_names_are_unique_and_plain():
    found = sizes(
        {("a", "b"): (5, 2), ("a_b",): (5, 4), (1,): (5, 8), ("a b",): (5, 16)},
        {("a", "b"): (5, 3), ("a_b",): (5, 7), (1,): (5, 9), ("a b",): (5, 31)},
    )
    names = [axes[1] for axes in found.values()]
    assert names == ["a_b_dim_1", "a_b_dim_1_2", "args_1_dim_1", "a_b_dim_1_3"]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_an_expression_is_true_in_every_call(pairs):
    calls = [{("x",): torch.empty(a, b, a + b, a * b, 3 * a)} for a, b in pairs]
    (argument,) = infer_arguments(calls)
    for axis in argument.axes:
        assert (len(set(axis.seen)) > 1) == (not isinstance(axis.size, int))
    named = {axis.size.name: axis.seen for axis in argument.axes if getattr(axis.size, "name", "")}
    for index in range(len(pairs)):
        values = {name: seen[index] for name, seen in named.items()}
        for axis in argument.axes:
            assert evaluate(axis.size, values) == axis.seen[index]


@dataclasses.dataclass
class Unseen:
    x: Any
    n: int = 1


def test_a_class_pytorch_does_not_look_into_may_hold_no_tensors():
    for calls in ([Unseen(torch.ones(2))], [Unseen(torch.ones(2)), Unseen(torch.ones(3))]):
        with pytest.raises(UsageError, match="box is a Unseen, which PyTorch does not look into"):
            infer_arguments([{("box",): value} for value in calls])


def test_a_class_without_tensors_is_a_constant():
    (found,) = infer_arguments([{("box",): Unseen("a")}, {("box",): Unseen("a")}])
    assert found.value == Unseen("a")
    with pytest.raises(UsageError, match="part of the graph"):
        infer_arguments([{("box",): Unseen("a")}, {("box",): Unseen("b")}])


def test_arrays_are_constants():
    same = [{("table",): np.array([1.0, np.nan])} for _ in range(2)]
    assert infer_arguments(same)[0].dtype is None
    for other in (np.array([1.0, 2.0]), np.array([[1.0, np.nan]]), np.array([1], np.int8)):
        with pytest.raises(UsageError, match="argument table"):
            infer_arguments([same[0], {("table",): other}])


def test_an_integer_that_varies_is_dynamic():
    calls = [{("n",): 3, ("k",): 2, ("far",): -1}, {("n",): 5, ("k",): 2, ("far",): -7}]
    n, k, far = infer_arguments(calls)
    assert (n.dtype, n.axes, n.value, str(n.integer.size)) == (None, (), None, "n")
    assert (n.integer.index, n.integer.seen) == (-1, (3, 5))
    assert n.integer.reason == "3, 5 → dynamic"
    assert n.sizes == (n.integer,)
    assert (k.integer, k.value, k.sizes) == (None, 2, ())
    assert far.integer.seen == (-1, -7)


def test_an_integer_that_moves_with_a_dimension_has_its_name():
    found = infer_arguments(
        [
            {("x",): torch.zeros(a, b), ("n",): b, ("total",): a + b, ("batch_size",): a + 9}
            for a, b in ((2, 7), (3, 5), (4, 11))
        ]
    )
    assert [[str(axis.size) for axis in one.sizes] for one in found] == [
        ["batch_size", "x_dim_1"], ["x_dim_1"], ["batch_size + x_dim_1"], ["batch_size_2"],
    ]  # fmt: skip


def test_two_calls_do_not_make_an_integer_a_dimension():
    calls = [{("n",): n, ("x",): torch.zeros(n), ("m",): n} for n in (2, 5)]
    found = infer_arguments(calls)
    assert [str(axis.size) for one in found for axis in one.sizes] == ["n", "batch_size", "m"]


def test_an_integer_may_be_absent_and_stand_inside_others():
    calls = [{("pair", 1): 3, ("m",): 1}, {("pair", 1): 4}, {("pair", 1): 4, ("m",): 2}]
    pair, m = infer_arguments(calls)
    assert (pair.name, str(pair.integer.size)) == ("pair.1", "pair_1")
    assert (m.optional, m.integer.seen) == (True, (1, None, 2))


def test_two_calls_are_too_few_for_sums():
    assert sizes({"x": (2, 4)}, {"x": (4, 8)}) == {"x": ["batch_size", "x_dim_1"]}
    found = sizes(  # 5 = 2 + 3 and 7 = 3 + 4 by accident
        {"input_ids": (2, 3), "attention_mask": (2, 8), KEY: (2, 1, 5, 8)},
        {"input_ids": (3, 4), "attention_mask": (3, 11), KEY: (3, 1, 7, 8)},
    )
    assert found["past_key_values.0.key"] == ["batch_size", "1", "past_sequence_length", "8"]
    assert found["attention_mask"] == ["batch_size", "past_sequence_length + sequence_length"]


@pytest.mark.parametrize("whole", [False, True])
def test_a_preallocated_cache_that_is_absent_has_no_length(whole):
    calls = [{KEY: None}, *[{KEY: torch.zeros(2, 1, 11, 8)}] * 2]
    calls = [{k: v for k, v in call.items() if v is not None} for call in calls]
    (key,) = infer_arguments(calls, [KEY[:1]] if whole else ())
    assert key.axes[2].seen == ((None if whole else 0), 11, 11)
    assert (key.axes[2].size == 11) is whole


def test_an_object_that_holds_tensors_is_named_with_what_to_do():
    class Box:
        def __init__(self, x):
            self.x = x

    column = {("box",): [Box(torch.rand(n, 3)) for n in (2, 4)]}
    calls = [{path: values[n] for path, values in column.items()} for n in (0, 1)]
    with pytest.raises(UsageError, match=r"box is a Box, which holds tensors .* register Box"):
        infer_arguments(calls)
