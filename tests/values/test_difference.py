import collections
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.values.caches import make_dynamic_cache, make_static_cache
from torchferry.values.difference import max_diff, string_diff

ONES = torch.ones(2, 3)


def shifted(by):
    return torch.ones(2, 3) + torch.tensor([[0.0, 0.0, 0.0], [0.0, by, 0.0]])


def test_the_worst_leaf_is_named():
    expected = {"a": ONES, "b": [ONES, (ONES, None)]}
    got = {"a": shifted(0.25), "b": [ONES, (shifted(0.5), None)]}
    diff = max_diff(expected, got)
    assert (diff.abs, diff.path, diff.argm, diff.n) == (0.5, "b.1.0", (1, 1), 18)
    assert diff.sum == 0.75
    assert diff.reason is None
    assert string_diff(diff) == "abs=0.5, rel=0.5, n=18, amax=1,1"


def test_a_tensor_alone():
    assert max_diff(ONES, ONES).abs == 0
    assert max_diff(ONES, ONES)["abs"] == 0
    assert max_diff(ONES, ONES.numpy()).abs == 0


@pytest.mark.parametrize(
    ("expected", "got", "reason"),
    [
        ((ONES,), (ONES, ONES), "the value: expected 1 items, got 2"),
        ({"x": [ONES]}, {"x": []}, "x: expected 1 items, got 0"),
        ({"a": 1, "b": 2}, {"a": 1}, "the value: expected keys ['a', 'b'], got ['a']"),
        ({"x": ONES}, {"x": None}, "x: expected T1s2x3, got None"),
        ({"x": None}, {"x": ONES}, "x: expected None, got T1s2x3"),
        ([ONES], ONES, "the value: expected #1[T1s2x3], got T1s2x3"),
        ([ONES], {0: ONES}, "the value: expected #1[T1s2x3], got {0:T1s2x3}"),
        (["a"], ["b"], "0: expected 'a', got 'b'"),
        ([{1}], [{2}], "0: expected {1}, got {2}"),
        ([1], ["1"], "0: expected int, got str"),
        ([torch.zeros(2)], [torch.zeros(3)], "0: expected shape (2,), got (3,)"),
    ],
)
def test_what_cannot_be_compared_is_infinite_with_a_reason(expected, got, reason):
    diff = max_diff(expected, got)
    assert diff.abs == math.inf
    assert diff.reason == reason


def test_a_dtype_fault_is_not_lost_among_other_leaves():
    diff = max_diff([ONES, ONES, ONES], [shifted(2.0), ONES.half(), ONES])
    assert diff.abs == 2.0
    assert diff.reason == "1: expected dtype float32, got float16"


def test_lists_and_tuples_compare_by_position():
    assert max_diff((ONES, 2), [ONES.numpy(), 2]).reason is None
    assert max_diff(torch.max(ONES, dim=0), list(torch.max(ONES, dim=0))).reason is None


def test_mappings_compare_by_key():
    diff = max_diff({"a": 1, "b": 2}, collections.OrderedDict(b=2, a=1.5))
    assert (diff.abs, diff.reason) == (0.5, None)


def test_model_outputs_compare_with_dictionaries():
    from transformers.modeling_outputs import CausalLMOutput

    assert max_diff(CausalLMOutput(logits=ONES), {"logits": shifted(1.0)}).abs == 1.0


def test_caches():
    def pairs(value):
        return [(torch.zeros(1, 2, 3, 4), torch.full((1, 2, 3, 4), value))]

    diff = max_diff(make_dynamic_cache(pairs(0.0)), make_dynamic_cache(pairs(1.0)))
    assert (diff.abs, diff.path, diff.n) == (1.0, "value_cache.0", 48)
    diff = max_diff(make_dynamic_cache(pairs(0.0)), make_static_cache(pairs(0.0)))
    assert diff.reason.startswith("the value: expected DynamicCache(")
    diff = max_diff(make_dynamic_cache(pairs(0.0)), make_dynamic_cache(pairs(0.0) * 2))
    assert diff.reason == "key_cache: expected 1 items, got 2"


@pytest.mark.parametrize("value", [None, "a", {1, 2}, torch.float32, [], {}, int])
def test_other_leaves_equal_themselves(value):
    diff = max_diff([value], [value])
    assert (diff.abs, diff.n, diff.reason) == (0.0, 0, None)


class Unsure:
    def __eq__(self, other):
        return "perhaps"

    __hash__ = None


class Failing:
    def __eq__(self, other):
        raise OSError("no")

    __hash__ = None


@pytest.mark.parametrize("cls", [Unsure, Failing])
def test_objects_that_do_not_say_whether_they_are_equal(cls):
    assert max_diff(cls(), cls()).reason.startswith("the value: expected something to compare")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array(["2020", "NaT"], "M8[D]"), np.array(["2020", "2021"], "M8[D]")),
        (np.datetime64("2020"), np.datetime64("2021")),
        (np.datetime64("NaT"), np.datetime64("2021")),
        (np.array([None, "x"], dtype=object), np.array([None, "y"], dtype=object)),
        (np.array(["a"]), np.array(["a", "b"])),
    ],
)
def test_texts_and_dates(one, other):
    for value in (one, other):
        assert max_diff(value, value.copy()) == max_diff("a", "a")
    diff = max_diff([one], [other])
    assert diff.abs == math.inf
    assert diff.reason.startswith("0: expected ")


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_compared_by_their_parts():
    one = torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])
    other = torch.nested.nested_tensor([torch.zeros(2), torch.tensor([0.0, 0.5, 0.0])])
    assert max_diff(one, one.clone()).n == 5
    diff = max_diff({"x": one}, {"x": other})
    assert (diff.abs, diff.path, diff.argm) == (0.5, "x.1", (1,))
    assert max_diff(torch.zeros(2, 3), one).reason.startswith("the value: got is nested")


def test_values_that_contain_themselves_or_are_too_deep():
    one, two, three = [1], [1], [2]
    for value in (one, two, three):
        value.append(value)
    assert max_diff(one, two).abs == 0
    assert max_diff(one, three).abs == 1
    deep = []
    for _ in range(5000):
        deep = [deep]
    assert "too deep" in max_diff(deep, deep).reason


def test_integers_of_any_size():
    diff = max_diff([2**70], [2**70 + 1])
    assert (diff.abs, diff.path, diff.n) == (1.0, "0", 1)
    assert diff.rel == 2.0**-70
    assert max_diff(10**400, -(10**400)).abs == math.inf
    assert max_diff(10**400, 10**400).abs == 0
    assert max_diff(0, 1).rel == 1000
    assert max_diff(True, 3).abs == 2


def test_what_raises_when_it_is_taken_apart():
    class Odd(collections.UserDict):
        def items(self):
            raise OSError("gone")

    assert "gone" in max_diff(Odd(x=1), {"x": 1}).reason


def test_within_torch_func():
    found = []

    def note(x):
        found.append(max_diff(x, x))
        return x.sum()

    torch.func.vmap(note)(torch.ones(2, 3))
    assert "torch.func" in found[0].reason


numbers = st.floats(allow_nan=True) | st.integers(-(2**63), 2**63 - 1) | st.booleans()


@given(
    st.recursive(numbers, lambda inner: st.lists(inner) | st.tuples(inner, inner), max_leaves=6)
)
def test_a_value_equals_itself(value):
    diff = max_diff(value, value)
    assert (diff.abs, diff.rel, diff.sum, diff.dnan, diff.reason) == (0, 0, 0, 0, None)


@given(numbers, numbers)
def test_the_difference_is_symmetric(one, two):
    assert max_diff(one, two).abs == max_diff(two, one).abs
