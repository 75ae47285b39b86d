import collections
import dataclasses
import logging
import threading
import types

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchferry.errors import UsageError
from torchferry.values.caches import cache_pairs, make_dynamic_cache, make_static_cache
from torchferry.values.clone import Again, clone
from torchferry.values.difference import max_diff
from torchferry.values.flatten import flatten


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


class Named(dict):
    def __init__(self, name, items):
        super().__init__(items)
        self.name = name


class Row(list):
    def __init__(self, *items):
        super().__init__(items)
        self.sum = sum(items)


class Pair(tuple):
    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))


class Refusing(collections.UserDict):
    """Its constructor takes nothing, as of classes that read their items from a file."""

    def __init__(self):
        super().__init__()


@dataclasses.dataclass
class Doubled:
    x: torch.Tensor
    unset: torch.Tensor = dataclasses.field(init=False)

    def __post_init__(self):
        self.twice = self.x * 2


class Tagged(torch.Tensor):
    pass


class Weight(torch.nn.Parameter):
    pass


class Holder:
    def __init__(self, x):
        self.x = x


def test_containers_of_any_class_keep_items_and_attributes():
    x = torch.ones(1)
    value = [Named("a", {"x": x}), Row(x, x), Pair(x, 1), Doubled(x)]
    copied = clone(value)
    assert [type(one) for one in copied] == [Named, Row, Pair, Doubled]
    x.add_(1)
    value[1].sum.add_(5)
    value[3].twice.add_(5)
    mine = copied[0]["x"]
    assert mine.tolist() == [1]
    assert copied[0].name == "a"
    assert copied[1][0] is copied[1][1] is copied[2][0] is copied[3].x is mine
    assert copied[1].sum.tolist() == copied[3].twice.tolist() == [2]
    assert not hasattr(copied[3], "unset")


def test_mappings_of_any_class():
    x = torch.ones(1)
    refusing = Refusing()
    refusing["x"] = x
    value = [
        collections.ChainMap({"a": x}, {"a": 2, "b": 3}), refusing,
        types.MappingProxyType({"x": x}),
    ]  # fmt: skip
    chain, mine, proxy = clone(value)
    assert chain.maps == [{"a": mine["x"]}, {"a": 2, "b": 3}]
    assert mine["x"] is proxy["x"] is chain["a"]
    assert mine["x"] is not x
    assert (type(mine), type(proxy)) == (Refusing, types.MappingProxyType)


def test_a_batch_of_a_tokenizer_keeps_what_it_knows():
    transformers = pytest.importorskip("transformers")
    value = transformers.BatchEncoding({"x": torch.ones(2)}, n_sequences=2)
    assert clone(value).n_sequences == 2


def test_values_that_contain_themselves():
    x = torch.ones(1)
    one, two = [x], {}
    one.append((one, two))
    two["self"] = two
    copied = clone(one)
    assert copied[1][0] is copied
    assert copied[1][1]["self"] is copied[1][1]
    assert copied[1][1] is not two


def test_a_value_too_deep_is_refused():
    value = []
    for _ in range(5000):
        value = [value]
    with pytest.raises(UsageError, match="too deep"):
        clone(value)


def test_attributes_of_tensors_and_classes_of_parameters():
    x = torch.ones(2)
    tagged = torch.ones(2).as_subclass(Tagged)
    tagged.note = [x]
    copied = clone([tagged, x, Weight(torch.ones(2)), Weight(x, requires_grad=False)])
    assert type(copied[0]) is Tagged
    assert copied[0].note[0] is copied[1]
    assert copied[1] is not x
    assert [type(one) for one in copied[2:]] == [Weight, Weight]
    assert [one.requires_grad for one in copied[2:]] == [True, False]


def test_results_of_computations_within_objects_and_sets():
    x = torch.ones(2, requires_grad=True) * 2
    mine, holder, found = clone([x, Holder(x), {x}])
    x.detach().add_(1)
    assert mine.tolist() == [2, 2]
    assert holder.x is mine
    assert found == {mine}


def test_an_object_that_cannot_be_copied_is_told_at_once(caplog):
    holder = Holder(threading.Lock())
    with caplog.at_level(logging.WARNING, logger="torchferry"):
        assert clone([holder])[0] is holder
        assert clone(threading.Lock())
    assert "a Holder is kept, not copied, and may change later" in caplog.text
    assert "lock is kept" not in caplog.text


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_tensors_without_plain_memory():
    parts = [torch.zeros(2), torch.zeros(3)]
    nested = torch.nested.nested_tensor(parts)
    copied = clone([nested, nested])
    assert copied[0] is copied[1]
    assert max_diff(list(copied[0].unbind()), parts).abs == 0
    lazy = torch.nn.UninitializedParameter()
    assert clone(lazy) is lazy


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def test_within_torch_func():
    def total(x):
        one, view = clone((x, x[:1]))
        return one.sum() + 0 * view.sum()

    x = torch.ones(3, 2)
    assert torch.func.vmap(total)(x).tolist() == [2, 2, 2]
    assert torch.func.jvp(total, (x,), (x,))[0] == 6
    assert torch.func.functionalize(total)(x) == 6
    weight = torch.ones(2, requires_grad=True)

    def kept(x):
        copied = clone((x, weight))
        assert len(flatten(copied)[0]) == 2
        return (x * weight).sum()

    assert torch.func.grad(kept)(torch.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool]
)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)])
def test_a_tensor_that_is_its_earlier_copy_gets_it_again(dtype, shape):
    again, x = Again(), torch.ones(shape).to(dtype)
    first = clone([x], again)[0]
    assert clone({"x": x}, again)["x"] is first is not x
    assert clone(x.clone(), again) is not first
    assert clone(x) is not first


def write_by_numpy(x):
    x.detach().numpy()[0] = 2


CHANGES = {
    "in place": lambda x: x.detach()[0].fill_(2),
    "data": lambda x: x.data.mul_(2),
    "numpy": write_by_numpy,
    "sign of zero": lambda x: x.data[2:].neg_(),
    "shape": lambda x: setattr(x, "data", x.data[None]),
    "requires_grad": lambda x: x.requires_grad_(False),
    "attribute": lambda x: setattr(x, "scale", 3),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_tensor_that_was_changed_is_copied_anew(name):
    again, x = Again(), torch.tensor([1.0, float("nan"), 0.0], requires_grad=True)
    first = clone(x, again)
    assert clone(x, again) is first  # NaN too: bits are compared
    before = first.detach().clone()
    CHANGES[name](x)
    second = clone(x, again)
    assert second is not first
    assert (second.shape, second.requires_grad) == (x.shape, x.requires_grad)
    assert vars(second) == vars(x)
    for copied, original in ((first, before), (second, x)):
        bits = [t.detach().view(torch.int32).tolist() for t in (copied, original)]
        assert bits[0] == bits[1]


def test_tensors_that_are_dead_are_not_found_again():
    again = Again()
    copies = [clone(torch.ones(3), again) for _ in range(5)]
    assert len({id(copied) for copied in copies}) == 5


def test_views_of_one_storage_and_classes_get_no_copy_again():
    again, x = Again(), torch.ones(4)
    whole, _ = clone([x, x[1:]], again)
    kept = clone(x, again)
    assert kept is not whole
    parameter = torch.nn.Parameter(x)
    copied = clone(parameter, again)
    assert type(copied) is torch.nn.Parameter
    assert clone(parameter, again) is copied is not kept
    pair = torch.ones(2, dtype=torch.complex128)
    assert clone(pair, again) is clone(pair, again)
    last = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert clone(last, again) is clone(last, again)
    spread = torch.rand(2, 6)[:, ::2]
    assert clone(spread, again).is_contiguous()
    assert torch.equal(clone(spread, again), spread)
