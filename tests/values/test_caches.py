import pytest
import torch
from transformers import cache_utils

from torchferry.errors import UsageError
from torchferry.values.caches import (
    cache_pairs,
    cache_tensors,
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_hybrid_cache,
    make_mamba_cache,
    make_sliding_window_cache,
    make_static_cache,
)
from torchferry.values.clone import clone


def pairs(layers=2, length=3, batch=2, heads=4, size=8, value_size=None):
    return [
        (
            torch.randn(batch, heads, length, size),
            torch.randn(batch, heads, length, value_size or size),
        )
        for _ in range(layers)
    ]


def test_a_dynamic_cache_holds_the_very_tensors():
    given = pairs()
    cache = make_dynamic_cache(given)
    assert type(cache).__name__ == "DynamicCache"
    assert cache.get_seq_length() == 3
    for (key, value), (k, v) in zip(given, cache_pairs(cache), strict=True):
        assert k is key
        assert v is value


def test_a_dynamic_cache_goes_on_growing():
    given = pairs(layers=1)
    cache = make_dynamic_cache(given)
    more = torch.randn(2, 4, 5, 8)
    key, _ = cache.update(more, more, 0)
    assert torch.equal(key, torch.cat([given[0][0], more], dim=2))
    cache.update(more, more, 1)  # a layer it had not
    assert [k.shape[2] for k, _ in cache_pairs(cache)] == [8, 5]


def test_no_layer():
    cache = make_dynamic_cache([])
    assert cache_pairs(cache) == []
    assert cache.get_seq_length() == 0
    assert cache_pairs(make_static_cache([], 4)) == []


def test_no_token_yet():
    cache = make_dynamic_cache(pairs(layers=1, length=0))
    assert cache.get_seq_length() == 0
    assert cache_pairs(cache)[0][0].shape == (2, 4, 0, 8)


def test_keys_and_values_may_have_heads_of_different_size():
    cache = make_dynamic_cache(pairs(size=8, value_size=6))
    assert cache_pairs(cache)[0][1].shape == (2, 4, 3, 6)


def test_a_sliding_window_keeps_the_last_tokens():
    given = pairs(layers=1, length=6)
    cache = make_sliding_window_cache(given, sliding_window=4)
    assert cache.get_seq_length() == 6
    assert torch.equal(cache_pairs(cache)[0][0], given[0][0][:, :, -3:])


def test_a_window_needs_two_tokens():
    with pytest.raises(UsageError, match="sliding_window is 1; give a whole number of 2"):
        make_sliding_window_cache(pairs(), sliding_window=1)


def test_a_static_cache_is_filled_from_its_start():
    given = pairs()
    cache = make_static_cache(given, max_cache_len=5)
    assert type(cache).__name__ == "StaticCache"
    assert int(cache.get_seq_length()) == 3
    key, value = cache_pairs(cache)[1]
    assert key.shape == (2, 4, 5, 8)
    assert torch.equal(key[:, :, :3], given[1][0])
    assert torch.equal(value[:, :, :3], given[1][1])
    assert not key[:, :, 3:].any()


def test_a_static_cache_has_just_room_enough_by_default():
    assert cache_pairs(make_static_cache(pairs()))[0][0].shape[2] == 3


def test_a_static_cache_without_room():
    with pytest.raises(UsageError, match="max_cache_len=2 is less than the 3 tokens"):
        make_static_cache(pairs(), max_cache_len=2)


def test_an_encoder_decoder_cache():
    own, cross = pairs(length=3), pairs(length=7)
    cache = make_encoder_decoder_cache(own, cross)
    assert cache.get_seq_length() == 3
    assert cache.is_updated == {0: True, 1: True}
    assert [k.shape[2] for k, _ in cache_pairs(cache)] == [3, 3, 7, 7]


def test_layers_that_hold_nothing_are_left_out():
    from transformers import DynamicCache, LlamaConfig

    config = LlamaConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=2)
    cache = DynamicCache(config=config)
    assert cache_pairs(cache) == []
    cache.update(torch.ones(1, 2, 3, 8), torch.ones(1, 2, 3, 8), 1)
    assert len(cache_pairs(cache)) == 1


def test_caches_that_are_two_lists():
    class Old:
        key_cache = (torch.ones(1),)
        value_cache = (torch.zeros(1),)

    assert cache_pairs(Old()) == [(Old.key_cache[0], Old.value_cache[0])]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (5, "a list of .key, value., not a int"),
        ([torch.ones(1, 1, 1, 1)], "pair 0 is no .key, value. but a Tensor"),
        ([(torch.ones(1, 1, 1, 1),)], "pair 0 is no .key, value. but a tuple"),
        ([(torch.ones(1, 1, 1, 1), None)], "pair 0: value is no tensor but a NoneType"),
        ([(torch.ones(1, 1, 1), torch.ones(1, 1, 1))], r"key has shape \(1, 1, 1\), not"),
        ([*pairs(1, length=2), (torch.ones(2, 4, 3, 8), torch.ones(2, 4, 2, 8))], "pair 1: key"),
        ([*pairs(1, batch=2), *pairs(1, batch=3)], "pair 1 has batch 3, pair 0 has 2"),
    ],
)
@pytest.mark.parametrize("make", [make_dynamic_cache, make_static_cache])
def test_wrong_pairs(make, given, message):
    with pytest.raises(UsageError, match=message):
        make(given)


def test_cache_pairs_of_something_else():
    with pytest.raises(UsageError, match="dict is no cache"):
        cache_pairs({})


HAS_LINEAR_LAYERS = hasattr(cache_utils, "LinearAttentionLayer")
needs_linear_layers = pytest.mark.skipif(
    not HAS_LINEAR_LAYERS, reason="transformers before 5.5 has no such layers"
)


def states(layers=2, batch=2):
    return [(torch.randn(batch, 6, 4), torch.randn(batch, 6, 3)) for _ in range(layers)]


def test_a_hybrid_cache_has_layers_of_each_kind():
    given = pairs(layers=3, length=6)
    types = ["full_attention", "sliding_attention", "chunked_attention"]
    cache = make_hybrid_cache(given, types, sliding_window=4)
    assert [type(layer).__name__ for layer in cache.layers] == [
        "DynamicLayer", "DynamicSlidingWindowLayer", "DynamicSlidingWindowLayer",
    ]  # fmt: skip
    found = cache_pairs(cache)
    assert found[0][0] is given[0][0]
    for (key, value), (k, v) in zip(given[1:], found[1:], strict=True):
        assert torch.equal(k, key[:, :, -3:])
        assert torch.equal(v, value[:, :, -3:])
    more = torch.randn(2, 4, 1, 8)
    assert cache.update(more, more, 0)[0].shape[2] == 7
    assert cache.update(more, more, 1)[0].shape[2] == 4


def test_a_hybrid_cache_of_one_kind_is_a_dynamic_cache():
    given = pairs()
    cache = make_hybrid_cache(given, ["full_attention"] * 2)
    more = torch.randn(2, 4, 5, 8)
    cache.update(more, more, 2)  # a layer it had not
    assert [k.shape[2] for k, _ in cache_pairs(cache)] == [3, 3, 5]
    assert cache_pairs(make_hybrid_cache([], [])) == []


@needs_linear_layers
def test_a_hybrid_cache_with_linear_attention():
    (key, value), (conv, recurrent) = pairs(1)[0], states(1)[0]
    cache = make_hybrid_cache(
        [(conv, recurrent), (key, value)], ["linear_attention", "full_attention"]
    )
    found = cache_tensors(cache)
    assert found.key_cache == [None, key]
    assert found.value_cache == [None, value]
    assert torch.equal(found.conv_states[0], conv)
    assert torch.equal(found.recurrent_states[0], recurrent)
    assert found.conv_states[1] is found.recurrent_states[1] is None
    assert found.conv_states[0] is not conv  # a layer writes to its states in place


@pytest.mark.parametrize(
    ("given", "types", "window", "message"),
    [
        (pairs(2), ["full_attention"], None, "2 pairs and 1 layer_types"),
        (pairs(1), ["full"], None, "no layer type is called 'full'; give full_attention"),
        (pairs(1), ["sliding_attention"], None, "sliding_window is None; give a whole number"),
        (pairs(1), ["sliding_attention"], 1, "sliding_window is 1; give a whole number of 2"),
        ([(1, 2)], ["full_attention"], None, "key is no tensor"),
        ([(1, 2)], ["linear_attention"], None, "conv_state is no tensor of 3 dimensions"),
    ],
)
def test_wrong_hybrids(given, types, window, message):
    with pytest.raises(UsageError, match=message):
        make_hybrid_cache(given, types, window)


@pytest.mark.skipif(HAS_LINEAR_LAYERS, reason="transformers from 5.5 on has such layers")
def test_linear_attention_needs_a_later_transformers():
    with pytest.raises(UsageError, match=r"install 5\.\d or later"):
        make_hybrid_cache(states(1), ["linear_attention"])


def test_a_mamba_cache_holds_copies_of_its_states():
    given = states()
    cache = make_mamba_cache(given)
    assert type(cache).__name__ == ("DynamicCache" if HAS_LINEAR_LAYERS else "MambaCache")
    found = cache_tensors(cache)
    for (conv, recurrent), c, r in zip(
        given, found.conv_states, found.recurrent_states, strict=True
    ):
        assert torch.equal(conv, c)
        assert torch.equal(recurrent, r)
        assert c is not conv
    assert found.key_cache == [None, None]
    assert cache_pairs(cache) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([torch.ones(2, 3, 4)], "pair 0 is no .conv_state, recurrent_state. but a Tensor"),
        ([(torch.ones(2, 3, 4), None)], "pair 0: recurrent_state is no tensor"),
        ([(torch.ones(2, 3), torch.ones(2, 3, 4))], r"conv_state .* \(2, 3\)"),
        ([*states(1), (torch.ones(2, 3, 4), torch.ones(3, 3, 4))], "pair 1: 2 and 3 in the batch"),
    ],
)
def test_wrong_states(given, message):
    with pytest.raises(UsageError, match=message):
        make_mamba_cache(given)


def test_layers_of_an_encoder_decoder_cache_are_read_one_after_the_other():
    own, cross = pairs(length=3), pairs(length=7)
    found = cache_tensors(make_encoder_decoder_cache(own, cross))
    assert [key.shape[2] for key in found.key_cache] == [3, 3, 7, 7]
    assert found.conv_states == [None] * 4


@pytest.mark.parametrize("count", ["4", 4.0, True, -1])
def test_counts_are_whole_numbers(count):
    for make in (make_static_cache, make_sliding_window_cache):
        with pytest.raises(UsageError, match=f"is {count!r}; give a whole number"):
            make(pairs(), count)
    with pytest.raises(UsageError, match="seen is"):
        make_sliding_window_cache(pairs(), 4, seen=count)


def test_a_sliding_cache_that_dropped_tokens():
    kept = [(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4))] * 2
    assert make_sliding_window_cache(kept, 4).get_seq_length() == 3
    cache = make_sliding_window_cache(kept, 4, seen=7)
    assert cache.get_seq_length() == 7
    assert clone(cache).get_seq_length() == 7
    more = torch.zeros(1, 2, 1, 4)
    cache.update(more, more, 0)
    assert cache.layers[0].keys.shape[2] == 3
    with pytest.raises(UsageError, match="3 tokens are given of 7 seen, but the window keeps 7"):
        make_sliding_window_cache(kept, 8, seen=7)
    with pytest.raises(UsageError, match="seen is 2; give a whole number of 3 or more"):
        make_sliding_window_cache(kept, 4, seen=2)


def test_both_halves_of_an_encoder_decoder_cache_have_one_batch():
    two, one = torch.zeros(2, 2, 3, 4), torch.zeros(1, 2, 3, 4)
    with pytest.raises(UsageError, match="self_pairs have batch 2, cross_pairs 1"):
        make_encoder_decoder_cache([(two, two)], [(one, one)])
    cache = make_encoder_decoder_cache([(two, two)], [])
    assert cache.self_attention_cache.get_seq_length() == 3
