import collections
import logging
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.values.caches import cache_pairs, make_dynamic_cache, make_static_cache
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff


@given(
    st.recursive(
        st.integers()
        | st.text(max_size=2)
        | st.lists(st.integers(0, 2**63), max_size=3).map(np.array),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
        max_leaves=8,
    )
)
def test_a_copy_is_equal(value):
    assert max_diff(value, clone(value)).abs == 0


def test_changing_the_original_leaves_the_copy():
    x = torch.zeros(2, 3)
    array = np.zeros(2)
    value = {"x": (x, [x[0]]), "a": array}
    copied = clone(value)
    x.add_(1)
    array += 1
    value["x"][1].append(5)
    assert not copied["x"][0].any()
    assert not copied["x"][1][0].any()
    assert not copied["a"].any()
    assert len(copied["x"][1]) == 1


def test_one_tensor_stays_one():
    x, names = torch.zeros(2), ["a"]
    copied = clone([x, {"x": x}, names, names])
    assert copied[0] is copied[1]["x"]
    assert copied[0] is not x
    assert copied[2] is copied[3]


def test_views_of_one_storage_stay_views():
    x = torch.arange(12.0).reshape(3, 4)
    copied = clone((x, x[1:], x.t(), x.view(torch.int32)))
    for one, two in zip(copied, (x, x[1:], x.t(), x.view(torch.int32)), strict=True):
        assert torch.equal(one, two)
        assert one.stride() == two.stride()
        assert one.dtype is two.dtype
    copied[0][1, 0] = -1
    assert copied[1][0, 0] == copied[2][0, 1] == -1
    assert x[1, 0] == 4


def test_a_lone_view_does_not_take_its_whole_storage_along():
    view = torch.zeros(1000)[:2]
    assert clone([view])[0].untyped_storage().nbytes() == 8


@pytest.mark.parametrize(
    "x",
    [
        torch.tensor(3.0),
        torch.zeros(0, 3),
        torch.tensor([True]),
        torch.tensor([1, float("nan")]),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]).conj(),
        torch.eye(2).to_sparse(),
    ],
)
def test_any_tensor(x):
    copied = clone([x, x])
    assert copied[0] is copied[1]
    assert copied[0] is not x
    assert copied[0].dtype is x.dtype
    assert max_diff(x, copied[0]).abs == 0


def test_requires_grad_and_class():
    weight = torch.nn.Parameter(torch.ones(2))
    frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    result = weight * 2
    copied = clone([weight, frozen, result, result.detach()])
    assert [type(x) for x in copied] == [torch.nn.Parameter] * 2 + [torch.Tensor] * 2
    assert [x.requires_grad for x in copied] == [True, False, True, False]
    assert copied[2].is_leaf
    # result and its detached view shared storage
    assert copied[2].data_ptr() == copied[3].data_ptr()


def test_meta_tensors_stay_meta():
    assert clone(torch.zeros(2, device="meta")).device.type == "meta"


def test_caches():
    # No zeros: transformers before 5 counts the tokens of a static cache that have none.
    pairs = [(torch.full((1, 2, 3, 4), 2.0), torch.full((1, 2, 3, 4), 2.0))]
    for cache in (make_dynamic_cache(pairs), make_static_cache(pairs, 6)):
        copied = clone({"cache": cache})["cache"]
        assert type(copied) is type(cache)
        more = torch.ones(1, 2, 1, 4)
        cache.update(more, more, 0, {"cache_position": torch.tensor([3])})
        assert int(copied.get_seq_length()) == 3
        assert not (cache_pairs(copied)[0][0] == 1).any()
        assert (cache_pairs(cache)[0][0] == 1).any()


def test_modules_and_functions_are_not_copied():
    value = [torch.nn.Linear(1, 1), len, int, torch.float32]
    assert all(one is two for one, two in zip(clone(value), value, strict=True))


def test_unknown_objects_are_copied_with_what_they_share():
    class Holder:
        def __init__(self, x):
            self.x = x

    x = torch.zeros(2)
    holder = Holder(x)
    copied = clone([x, holder, {1, 2}, collections.deque([1])])
    assert copied[1] is not holder
    assert copied[1].x is copied[0]
    assert copied[2:] == [{1, 2}, collections.deque([1])]


def test_what_cannot_be_copied_is_kept_and_logged(caplog):
    lock = threading.Lock()
    with caplog.at_level(logging.DEBUG, logger="torchferry"):
        assert clone([lock])[0] is lock
    assert "lock is kept" in caplog.text


def test_object_arrays_are_copied_deeply():
    array = np.array([[1], [2, 3]], dtype=object)
    copied = clone(array)
    array[0].append(9)
    assert copied[0] == [1]
