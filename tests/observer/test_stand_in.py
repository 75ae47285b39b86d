import torch

from torchferry.observer.infer import infer_arguments
from torchferry.observer.stand_in import emptied, enlarged, stretched
from torchferry.observer.tree import leaves_of
from torchferry.values import (
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_mamba_cache,
    register_pytrees,
)


def known(*calls):
    register_pytrees()
    found = infer_arguments([leaves_of((), call) for call in calls])
    return {argument.path: argument for argument in found}


def cache(batch, length):
    return make_dynamic_cache([(torch.ones(batch, 2, length, 4), torch.ones(batch, 2, length, 4))])


def test_small_sizes_become_one_that_was_seen_and_is_no_others():
    seen = [{"a": 5, "b": 0, "c": 1}, {"a": 7, "b": 5, "c": 1}, {"a": 5, "b": 9}]
    assert enlarged(seen[0], ["b", "c"], seen) == {"a": 5, "b": 9, "c": 2}
    assert enlarged({"a": 1, "n": 0}, ["a"], []) == {"a": 2, "n": 0}


def test_stretched_tensors_and_integers_by_position_and_name():
    calls = [{"x": torch.ones(1, 3), "n": 1, "mask": None, "k": 4},
             {"x": torch.ones(2, 3), "n": 2, "mask": torch.ones(2), "k": 4},
             {"x": torch.ones(5, 3), "n": 5, "k": 4}]  # fmt: skip
    arguments = known(*calls)
    named = {key: value for key, value in calls[0].items() if key != "x"}
    args, kwargs = stretched((calls[0]["x"],), named, ["x"], arguments, {"batch_size": 6})
    assert args[0].shape == (6, 3)
    assert kwargs == {"n": 6, "mask": None, "k": 4}


def test_an_empty_cache_has_the_batch_of_the_call_that_lacks_it():
    arguments = known({"cache": cache(2, 3)}, {"cache": cache(5, 7)})
    empty = emptied(cache(2, 3), "cache", arguments, {"batch_size": 9}, {})
    assert empty.layers[0].keys.shape == (9, 2, 0, 4)


def test_states_are_zeros():
    def state(batch):
        return make_mamba_cache([(torch.ones(batch, 4, 3), torch.ones(batch, 4, 2))])

    arguments = known({"cache": state(2)}, {"cache": state(5)})
    empty = emptied(state(2), "cache", arguments, {"batch_size": 9}, {})
    leaves = [leaf for leaf in leaves_of((), {"cache": empty}).values()
              if isinstance(leaf, torch.Tensor)]  # fmt: skip
    assert [leaf.shape for leaf in leaves] == [(9, 4, 3), (9, 4, 2)]
    assert not any(leaf.any() for leaf in leaves)


def test_a_tensor_is_empty_along_its_largest_dynamic_axis_and_nothing_stands_for_a_static_one():
    arguments = known({"x": torch.ones(2, 9, 3)}, {"x": torch.ones(4, 8, 3)})
    assert emptied(torch.ones(2, 9, 3), "x", arguments, {}, {}).shape == (2, 0, 3)
    arguments = known({"x": torch.ones(2)}, {"x": torch.ones(2)})
    assert emptied(torch.ones(2), "x", arguments, {}, {}) is None


def test_what_the_call_has_stays_and_only_the_rest_is_empty():
    both = make_encoder_decoder_cache(
        [(torch.ones(2, 2, 3, 4), torch.ones(2, 2, 3, 4))],
        [(torch.ones(2, 2, 7, 4), torch.ones(2, 2, 7, 4))],
    )
    other = make_encoder_decoder_cache(
        [(torch.ones(2, 2, 5, 4), torch.ones(2, 2, 5, 4))],
        [(torch.ones(2, 2, 9, 4), torch.ones(2, 2, 9, 4))],
    )
    arguments = known({"cache": both}, {"cache": other})
    leaves = leaves_of((), {"cache": both})
    cross = {path: leaf for path, leaf in leaves.items() if "cross_attention_cache" in path}
    found = emptied(other, "cache", arguments, {}, cross)
    assert found.self_attention_cache.layers[0].keys.shape == (2, 2, 0, 4)
    assert found.cross_attention_cache.layers[0].keys is next(iter(cross.values()))
    assert emptied(other, "cache", arguments, {}, {}) is None
