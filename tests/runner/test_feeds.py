from dataclasses import replace

import pytest
import torch

from torchferry.errors import Mismatch, UsageError
from torchferry.runner.feeds import Feeder
from torchferry.values import make_dynamic_cache
from torchferry.values.flatten import flatten
from torchferry.values.signature import Signature, Slot

IDS = torch.arange(6).reshape(2, 3)
LENGTH = ["batch", 1, "past", 4]


def cache(batch=2, length=5):
    return make_dynamic_cache(
        [(torch.ones(batch, 1, length, 4), torch.zeros(batch, 1, length, 4))]
    )


@pytest.fixture
def signature():
    return Signature(
        parameters=("input_ids", "scale", "cache"),
        inputs=(
            Slot("input_ids", ("input_ids",)),
            Slot("past_key_values.0.key", ("cache", "key_cache", 0)),
            Slot("past_key_values.0.value", ("cache", "value_cache", 0)),
        ),
        constants={"scale": 2},
        outputs=flatten(())[1],
        leaves=(),
    )


@pytest.fixture
def infos():
    return {
        "input_ids": (torch.int64, ["batch", "seq"]),
        "past_key_values.0.key": (torch.float32, LENGTH),
        "past_key_values.0.value": (torch.float32, LENGTH),
    }


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
@pytest.mark.parametrize("positional", [True, False])
def test_finds_every_input(signature, infos, name, positional):
    args, kwargs = ((IDS,), {}) if positional else ((), {"input_ids": IDS})
    feeds = Feeder(signature, infos)(args, {**kwargs, name: cache()})
    assert list(feeds) == [slot.name for slot in signature.inputs]
    assert torch.equal(feeds["input_ids"], IDS)
    assert torch.equal(feeds["past_key_values.0.key"], torch.ones(2, 1, 5, 4))
    assert torch.equal(feeds["past_key_values.0.value"], torch.zeros(2, 1, 5, 4))


@pytest.mark.parametrize("kwargs", [{}, {"past_key_values": make_dynamic_cache([])}])
def test_an_empty_cache_has_length_zero_and_the_batch_of_the_others(signature, infos, kwargs):
    feeds = Feeder(signature, infos)((IDS,), kwargs)
    assert feeds["past_key_values.0.key"].shape == (2, 1, 0, 4)
    assert feeds["past_key_values.0.value"].dtype == torch.float32


def test_constants_may_be_repeated_but_not_changed(signature, infos):
    Feeder(signature, infos)((IDS, 2, cache()), {})
    with pytest.raises(UsageError, match="exported as 2 and cannot be 3"):
        Feeder(signature, infos)((IDS, 3, cache()), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {"cache": cache()}, "no value for input input_ids"),
        ((IDS,), {"labels": IDS}, "no input for argument labels"),
        ((IDS,), {"input_ids": IDS}, "input_ids is given twice"),
        ((IDS.int(),), {"cache": cache()}, "input_ids is torch.int32"),
        ((IDS[0],), {"cache": cache()}, "has shape 3, but the model takes batch x seq"),
        ((IDS,), {"cache": make_dynamic_cache([(torch.ones(2, 2, 5, 4),) * 2])}, "2x2x5x4"),
        ((IDS, 2, cache(), IDS), {}, "too many positional arguments"),
        (("words",), {}, "input_ids is a str, but the model takes a tensor"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(signature, infos, args, kwargs, message):
    with pytest.raises(UsageError, match=message):
        Feeder(signature, infos)(args, kwargs)


def test_what_was_exported_by_position_may_be_given_by_name(infos):
    signature = Signature(
        parameters=("input_ids", "scale"),
        inputs=(Slot("input_ids", (0,)),),
        constants={"1": 2, "0.k": 1},
        outputs=flatten(())[1],
        leaves=(),
    )
    for args, kwargs in (((IDS, 2), {}), ((IDS,), {"scale": 2}), ((), {"input_ids": IDS})):
        assert torch.equal(Feeder(signature, infos)(args, kwargs)["input_ids"], IDS)
    with pytest.raises(UsageError, match="argument scale was exported as 2"):
        Feeder(signature, infos)((), {"input_ids": IDS, "scale": 3})


def test_numbers_and_arrays_become_tensors_of_the_inputs_type():
    signature = Signature(("x",), (Slot("x", ("x",)),), {}, flatten(())[1], ())
    infos = {"x": (torch.float64, [])}
    with pytest.raises(UsageError, match=r"input x is float, and was exported as a tensor"):
        Feeder(signature, infos)((2.5,), {})
    with pytest.raises(UsageError, match=r"x is torch.float32, but the model takes torch.float64"):
        Feeder(signature, infos)((IDS.float().numpy().sum(),), {})
    assert Feeder(signature, infos)((IDS.numpy().sum() / 2,), {})["x"].item() == 7.5
    with pytest.raises(UsageError, match="shape 2x3, but the model takes a scalar"):
        Feeder(signature, infos)((IDS.double(),), {})


def test_an_empty_cache_needs_the_other_sizes_from_somewhere(signature, infos):
    infos["past_key_values.0.key"] = (torch.float32, ["other", 1, "past", 4])
    with pytest.raises(UsageError, match=r"no other input tells its other"):
        Feeder(signature, infos)((IDS,), {})


def test_an_empty_cross_attention_is_refused(infos):
    path = ("past_key_values", "cross_attention_cache", "key_cache", 0)
    slots = (Slot("input_ids", ("input_ids",)), Slot("past_key_values.0.key", path))
    signature = Signature(("input_ids",), slots, {}, flatten(())[1], ())
    with pytest.raises(UsageError, match=r"no value for input past_key_values.0.key"):
        Feeder(signature, infos)((IDS,), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((IDS.int(),), {"cache": cache()}, "input_ids is torch.int32"),
        ((IDS,), {"cache": cache(batch=3)}, "has 2 at axis 0, which is batch .batch = 2|has 3 at"),
        ((IDS, 3), {"cache": cache()}, "exported as 2 and cannot be 3"),
        ((None,), {"cache": cache()}, "no value for input input_ids"),
        ((IDS,), {"cache": cache(), "labels": IDS}, "no input for argument labels"),
        ((IDS, 2, cache(), IDS), {}, "too many positional arguments"),
    ],
)
def test_calls_after_others_are_checked_as_the_first(signature, infos, args, kwargs, message):
    feed = Feeder(signature, infos)
    for _ in range(2):
        feed((IDS,), {"cache": cache()})
        feed((IDS, 2), {"cache": cache()})
    for _ in range(2):
        with pytest.raises(UsageError, match=message) as caught:
            feed(args, kwargs)
    with pytest.raises(UsageError) as first:
        Feeder(signature, infos)(args, kwargs)
    assert str(caught.value) == str(first.value)


def test_calls_of_many_structures_find_their_own_tensors(signature, infos):
    absent = {f"none_{number}": "None" for number in range(20)}
    feed = Feeder(replace(signature, containers=absent), infos)
    with pytest.raises(UsageError, match="argument none_20 is None, and was exported as nothing"):
        feed((IDS, 2, cache()), {"none_20": None})
    for number in [*range(20), 0, 19, 3]:
        nothing = {f"none_{number}": None}
        ids = torch.full((1, 2), number)
        got = feed((), {"input_ids": ids, "cache": cache(1, number), **nothing})
        assert got["input_ids"] is ids
        assert got["past_key_values.0.key"].shape == (1, 1, number, 4)
    assert list(feed((IDS, 2, cache()), {})) == [slot.name for slot in signature.inputs]


def test_a_none_where_a_tensor_was_is_none(signature, infos):
    feed = Feeder(signature, infos)
    with_cache = feed((IDS, 2, cache()), {"input_ids": None})
    assert with_cache["past_key_values.0.key"].shape == (2, 1, 5, 4)
    assert feed((None, 2, cache()), {"input_ids": IDS})["input_ids"] is IDS


@pytest.mark.parametrize(
    ("scale", "shown"),
    [(None, "None"), (2.0, "2.0"), (True, "True"), (torch.tensor(2), "T7r0"), (3, "3")],
)
def test_a_constant_is_the_one_exported_in_type_too(signature, infos, scale, shown):
    """``x * 2.0`` is another dtype, and code may ask ``if scale is None``."""
    with pytest.raises(UsageError, match=f"scale was exported as 2 and cannot be {shown}"):
        Feeder(signature, infos)((IDS, scale, cache()), {})


def test_a_mapping_in_another_order_is_refused():
    """As torch.export does: code that walks it would compute something else."""
    slots = tuple(Slot(name, ("d", name)) for name in ("b", "a"))
    infos = {name: (torch.int64, ["n", 3]) for name in ("a", "b")}
    containers = {"d": "a dict of 'b', 'a'"}
    feed = Feeder(Signature(("d",), slots, {}, flatten(())[1], (), containers=containers), infos)
    assert list(feed(({"b": IDS, "a": IDS},), {})) == ["b", "a"]
    with pytest.raises(UsageError, match=r"d is a dict of .a., .b., and was exported as"):
        feed(({"a": IDS, "b": IDS},), {})


def test_a_sparse_tensor_is_refused(signature, infos):
    with pytest.raises(UsageError, match=r"input input_ids is .*, but the model takes a dense"):
        Feeder(signature, infos)((IDS.to_sparse(), 2, cache()), {})


def test_integers_are_sizes_like_others(infos):
    slots = (Slot("x", ("x",)), Slot("n", ("n",)))
    infos = {"x": (torch.int64, ["rows", "n + 1"]), "n": (torch.int64, [])}
    conditions = (("n0 % 2 == 0", ("n",), "m.py:3: if n % 2:"),)
    signature = Signature(
        ("x", "n"), slots, {}, flatten(())[1], (), conditions=conditions, integers={"n": "n"}
    )
    feed = Feeder(signature, infos)
    assert feed((IDS, 2), {})["n"].item() == 2
    with pytest.raises(UsageError, match=r"input x has 3 at axis 1, which is n \+ 1 .n = 4"):
        feed((IDS, 4), {})
    with pytest.raises(UsageError, match=r"with n % 2 == 0, and n is 1: .*\(m.py:3: if n % 2:\)"):
        feed((IDS[:, :2], 1), {})


def test_a_model_that_was_never_found_right_is_not_run(signature, infos):
    broken = replace(signature, unproven="output y differs from PyTorch's by up to 2")
    with pytest.raises(Mismatch, match="not found right in any call: output y differs"):
        Feeder(broken, infos)((IDS, 2, cache()), {})


def test_complex_numbers_become_pairs_where_the_model_takes_them():
    slots, outputs = (Slot("z", ("z",)),), flatten(())[1]
    infos = {"z": (torch.float32, ["n", 2])}
    z = torch.tensor([1 + 2j, 3j]).conj()
    signature = Signature(("z",), slots, {}, outputs, (), complex=("z",))
    for given in (z, torch.view_as_real(z.resolve_conj())):
        got = Feeder(signature, infos)((given,), {})["z"]
        assert got.tolist() == [[1, -2], [0, -3]]
    with pytest.raises(UsageError, match=r"complex64, but the model takes torch\.float32"):
        Feeder(Signature(("z",), slots, {}, outputs, ()), infos)((z,), {})


def test_a_class_that_was_not_known_at_the_first_call(signature, infos, monkeypatch):
    """As a cache, of a library that was imported after it, in the place of a tensor."""
    feed = Feeder(signature, infos)
    with pytest.raises(UsageError, match="no input for argument past_key_values"):
        feed((IDS,), {"cache": torch.ones(2)})
    told = []
    monkeypatch.setattr("torchferry.runner.feeds.register_pytrees", lambda: told.append(1))
    with pytest.raises(UsageError):
        feed((IDS,), {"cache": object()})
    assert told
