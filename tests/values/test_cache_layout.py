import inspect
import json
import warnings

import pytest
import torch
from torch.utils import _pytree as pytree
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, StaticCache, cache_utils
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from torchferry.errors import UsageError
from torchferry.values.cache_layout import fill_layer
from torchferry.values.caches import (
    cache_pairs,
    make_dynamic_cache,
    make_encoder_decoder_cache,
    make_sliding_window_cache,
    make_static_cache,
)
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.flatten import (
    flatten,
    map_leaves,
    register_pytrees,
    structure_from_json,
    structure_to_json,
    unflatten,
)

# torch.export's own copy of a program, in PyTorch 2.13.
pytestmark = pytest.mark.filterwarnings("ignore:.isinstance.treespec, LeafSpec.:FutureWarning")

CONFIG = LlamaConfig(
    hidden_size=32,
    intermediate_size=32,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_hidden_layers=1,
    vocab_size=50,
    max_position_embeddings=64,
)


def pairs(layers=2, length=3, batch=2):
    return [
        (torch.randn(batch, 2, length, 8), torch.randn(batch, 2, length, 8)) for _ in range(layers)
    ]


def updated(cache, given):
    for index, (key, value) in enumerate(given):
        cache.update(key, value, index)
    return cache


def rebuilt(value):
    leaves, structure = flatten(value)
    data = json.loads(json.dumps(structure_to_json(structure)))
    assert structure_from_json(data) == structure
    return unflatten([leaf for _, leaf in leaves], structure)


def linear_cache():
    made = getattr(cache_utils, "LinearAttentionAndFullAttentionLayer", None)
    if made is None:
        pytest.skip("transformers before 5.5 has no such layers")
    layer = made()
    layer.update_conv_state(torch.randn(1, 2, 4))
    cache = make_dynamic_cache(pairs(layers=1, batch=1))
    cache.layers.append(layer)
    return cache


def layer_of(name):
    """A layer of any class this transformers has, with something in it."""
    made = getattr(cache_utils, name, None)
    if made is None:
        pytest.skip(f"this transformers has no {name}")
    options = {"max_cache_len": 8, "sliding_window": 4}
    named = inspect.signature(made).parameters
    layer = made(**{key: value for key, value in options.items() if key in named})
    advance(layer)
    return layer


def advance(layer):
    if hasattr(layer, "update_conv_state"):
        layer.update_conv_state(torch.ones(2, 4, 3))
        layer.update_recurrent_state(torch.ones(2, 4, 5))
    if hasattr(layer, "update_indexer"):
        layer.update_indexer(torch.ones(2, 1, 8))
    position = {"cache_position": torch.tensor([int(layer.get_seq_length() or 0)])}
    layer.update(torch.ones(2, 2, 1, 8), torch.ones(2, 2, 1, 8), position)


@pytest.mark.parametrize(
    "name",
    [
        "DynamicLayer", "DynamicSlidingWindowLayer", "DynamicIndexedLayer", "StaticLayer",
        "StaticSlidingWindowLayer", "StaticIndexedLayer", "Fp8QuantizedLayer",
        "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer",
        "LinearAttentionAndStaticFullAttentionLayer",
        "LinearAttentionAndStaticSlidingWindowAttentionLayer",
    ],
)  # fmt: skip
def test_every_layer_class_goes_on_after_it_was_rebuilt(name):
    cache = make_dynamic_cache([])
    cache.layers.append(layer_of(name))
    copies = [rebuilt(map_leaves(torch.clone, cache)), clone(cache)]
    assert all(isinstance(leaf, torch.Tensor) for _, leaf in flatten(cache)[0])
    advance(cache.layers[0])
    for copied in copies:
        assert type(copied.layers[0]) is type(cache.layers[0])
        advance(copied.layers[0])
        assert max_diff(cache, copied).abs == 0
        assert int(copied.layers[0].get_seq_length()) == 2


def updated_second():
    cache = DynamicCache()
    cache.layers = [DynamicLayer()]
    cache.update(*pairs(1)[0], 1)
    return cache


CACHES = {
    "dynamic": lambda: make_dynamic_cache(pairs()),
    "no layer": DynamicCache,
    "no token": lambda: make_dynamic_cache(pairs(length=0)),
    "layers not initialized": lambda: DynamicCache(config=CONFIG),
    "second layer only": updated_second,
    "sliding": lambda: make_sliding_window_cache(pairs(), 8),
    "sliding, full": lambda: make_sliding_window_cache(pairs(length=6), 4),
    "static": lambda: make_static_cache(pairs(), 5),
    "static, not initialized": lambda: StaticCache(config=CONFIG, max_cache_len=5),
    "encoder-decoder": lambda: make_encoder_decoder_cache(pairs(), pairs(length=5)),
    "linear attention": linear_cache,
}


def settings(layer):
    """What a layer knows, tensors aside; dtype and sizes may be noted down or not."""
    noted = ("dtype", "batch_size", "max_batch_size", "num_heads", "head_dim")
    return {
        name: value
        for name, value in vars(layer).items()
        if not isinstance(value, torch.Tensor | dict) and name not in noted
    }


@pytest.mark.parametrize("name", CACHES)
def test_round_trip(name):
    cache = CACHES[name]()
    again = rebuilt(cache)
    assert type(again) is type(cache)
    diff = max_diff(cache, again)
    assert (diff.abs, diff.reason) == (0.0, None)
    assert flatten(again)[1] == flatten(cache)[1]
    for one, two in zip(getattr(cache, "layers", ()), getattr(again, "layers", ()), strict=True):
        assert type(one) is type(two)
        assert settings(one).items() <= settings(two).items()


def mask_sizes(cache):
    takes = inspect.signature(cache.get_mask_sizes).parameters
    length = torch.tensor([cache.get_seq_length()]) if "cache_position" in takes else 1
    return cache.get_mask_sizes(length, 0)


@pytest.mark.parametrize("name", ["dynamic", "sliding", "sliding, full", "static"])
def test_a_rebuilt_cache_goes_on_as_the_first(name):
    cache = CACHES[name]()
    again = rebuilt(map_leaves(torch.clone, cache))
    more = torch.randn(2, 2, 1, 8)
    for one in (cache, again):
        one.update(more, more, 0)
    assert max_diff(cache, again).abs == 0
    assert int(cache.get_seq_length()) == int(again.get_seq_length())
    if name != "static":
        assert mask_sizes(cache) == mask_sizes(again)


def test_paths():
    leaves, _ = flatten({"cache": make_dynamic_cache(pairs())})
    assert [path for path, _ in leaves] == [
        ("cache", "key_cache", 0),
        ("cache", "key_cache", 1),
        ("cache", "value_cache", 0),
        ("cache", "value_cache", 1),
    ]
    static = make_static_cache(pairs())
    counts = {"cumulative_length"} & vars(static.layers[0]).keys()  # a tensor from 5.4 on
    names = {path[0] for path, _ in flatten(static)[0]}
    assert names == {"key_cache", "value_cache"} | counts


def test_an_empty_dynamic_cache_still_grows_after_a_round_trip():
    again = rebuilt(DynamicCache())
    assert cache_pairs(updated(again, pairs()))[1][0].shape == (2, 2, 3, 8)


def test_however_a_dynamic_cache_was_made_its_structure_is_one():
    config = LlamaConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=2)
    made = [
        make_dynamic_cache(pairs()),
        updated(DynamicCache(), pairs(length=5)),
        updated(DynamicCache(config=config), pairs(batch=3)),
    ]
    structures = [flatten(cache)[1] for cache in made]
    assert structures[0] == structures[1] == structures[2]
    assert hash(structures[0]) == hash(structures[1])


def test_structures_that_must_differ():
    one, two = make_dynamic_cache(pairs(1)), make_dynamic_cache(pairs(2))
    assert flatten(one)[1] != flatten(two)[1]
    assert flatten(one)[1] != flatten(make_sliding_window_cache(pairs(1), 8))[1]
    windows = [make_sliding_window_cache(pairs(1), window) for window in (8, 9)]
    assert flatten(windows[0])[1] != flatten(windows[1])[1]


def test_the_count_of_a_window_is_part_of_the_structure_once_tokens_are_gone():
    within = [make_sliding_window_cache(pairs(1, length), 8) for length in (3, 7)]
    beyond = [make_sliding_window_cache(pairs(1, length), 8) for length in (8, 9)]
    assert flatten(within[0])[1] == flatten(within[1])[1]
    assert flatten(beyond[0])[1] != flatten(beyond[1])[1]
    assert rebuilt(beyond[1]).get_seq_length() == 9


def test_leaves_may_become_anything():
    shapes = map_leaves(lambda x: tuple(x.shape), make_sliding_window_cache(pairs(1), 8))
    assert shapes.layers[0].keys == (2, 2, 3, 8)


def test_a_cache_names_only_layers_of_transformers():
    data = structure_to_json(flatten(make_dynamic_cache(pairs(1)))[1])
    data["context"][0][0][0] = "subprocess:Popen"
    with pytest.raises(UsageError, match="subprocess:Popen is no layer"):
        unflatten([1, 2], structure_from_json(data))


def test_a_damaged_structure_is_a_usage_error():
    data = structure_to_json(flatten(make_dynamic_cache(pairs(1)))[1])
    for context in ([1], None, [[["transformers.cache_utils:DynamicLayer"]], []]):
        with pytest.raises(UsageError, match="DynamicCache cannot be put together"):
            unflatten([1, 2], structure_from_json(data | {"context": context}))


def test_fill_layer_follows_the_tensors():
    layer = DynamicSlidingWindowLayer(sliding_window=6)
    layer.keys = layer.values = torch.ones(1, 2, 3, 4, dtype=torch.float16)
    fill_layer(layer)
    assert (layer.dtype, layer.device) == (torch.float16, torch.device("cpu"))


class Grow(torch.nn.Module):
    """Adds to a cache and reads all of it."""

    def forward(self, x, cache):
        key, value = cache.update(x, 2 * x, 0)
        return (key * value).sum(dim=2), cache


def exported(make, length=3, more=5):
    register_pytrees()
    some = torch.export.Dim.DYNAMIC
    sizes = {0: some, 2: some}
    program = torch.export.export(
        Grow(),
        (torch.randn(2, 2, more, 8), make(pairs(1, length))),
        dynamic_shapes=(sizes, [[sizes], [sizes]]),
    )
    return program, program.run_decompositions()


@pytest.mark.parametrize(
    "make", [make_dynamic_cache, lambda given: make_sliding_window_cache(given, 16)]
)
def test_export_with_a_cache_of_any_size(make):
    program, decomposed = exported(make)
    assert not program.constants  # nothing of rebuilding the cache is in the graph
    assert "torch.float32" not in program.graph_module.code
    for batch, length, more in ((2, 3, 5), (1, 4, 1), (3, 9, 2)):
        given, x = pairs(1, length, batch), torch.randn(batch, 2, more, 8)
        expected = Grow()(x, make(given))
        for one in (program, decomposed):
            got = one.module()(x, make(given))
            assert max_diff(expected, got).abs < 1e-5
            assert got[1].get_seq_length() == length + more


def test_the_count_of_a_window_is_open_when_a_program_may_have_dropped_tokens():
    program, _ = exported(lambda given: make_sliding_window_cache(given, 16), more=20)
    given = pairs(1)
    for more in (13, 25):  # the window keeps 15, and PyTorch guards the program on more
        x = torch.randn(2, 2, more, 8)
        cache = program.module()(x, make_sliding_window_cache(given, 16))[1]
        assert cache.layers[0].cumulative_length is None
    with pytest.raises(TypeError):  # rather than positions that are wrong
        cache.update(x, x, 0)
    assert flatten(cache)[1] != flatten(make_sliding_window_cache(given, 16))[1]


def test_an_exported_program_takes_a_cache_made_with_a_configuration():
    program, _ = exported(make_dynamic_cache)
    given, x = pairs(1), torch.randn(2, 2, 5, 8)
    config = LlamaConfig(num_hidden_layers=1, hidden_size=16, num_attention_heads=2)
    got = program.module()(x, updated(DynamicCache(config=config), given))
    assert max_diff(Grow()(x, make_dynamic_cache(given)), got).abs < 1e-5


def test_an_exported_program_refuses_a_window_that_dropped_tokens():
    program, _ = exported(lambda given: make_sliding_window_cache(given, 16))
    full = make_sliding_window_cache(pairs(1, length=20), 16)
    with pytest.raises(ValueError, match="input tree spec"):
        program.module()(torch.randn(2, 2, 5, 8), full)


def test_transformers_may_register_afterwards():
    from transformers.integrations.executorch import register_dynamic_cache_export_support

    register_pytrees()
    register_dynamic_cache_export_support()
    assert type(make_dynamic_cache(pairs(1))) not in register_pytrees()
    paths = pytree.tree_flatten_with_path(make_dynamic_cache(pairs(1)))[0]
    assert [pytree.keystr(path) for path, _ in paths] == ["['key_cache'][0]", "['value_cache'][0]"]


def test_a_spec_with_caches_is_written_and_read():
    register_pytrees()
    value = (
        make_encoder_decoder_cache(pairs(1), pairs(1)),
        make_sliding_window_cache(pairs(1), 8),
    )
    spec = pytree.tree_structure(value)
    assert pytree.treespec_loads(pytree.treespec_dumps(spec)) == spec


def test_what_a_llama_returns():
    model = LlamaForCausalLM(CONFIG).eval()
    with torch.no_grad():
        output = model(input_ids=torch.arange(6).reshape(2, 3))
    again = rebuilt(output)
    assert type(again) is type(output)
    assert list(again.keys()) == list(output.keys())
    assert again.logits is output.logits
    diff = max_diff(output, again)
    assert (diff.abs, diff.n) == (0.0, 2 * 3 * 50 + 2 * 2 * 2 * 3 * 8)


def test_a_sliding_cache_has_no_more_leaves_within_a_trace():
    seen = []

    def forward(keys, values):
        config = LlamaConfig(sliding_window=4, num_hidden_layers=1)
        config.layer_types = ["sliding_attention"]
        cache = DynamicCache(config=config)
        cache.update(keys, values, 0)
        leaves, structure = flatten(cache)
        seen.append((torch.jit.is_tracing(), len(leaves)))
        again = unflatten([leaf for _, leaf in leaves], structure)
        return again.layers[0].keys, again.layers[0].cumulative_length + keys.sum()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # jit.trace is deprecated; sizes are compared
        traced = torch.jit.trace(forward, pairs(1)[0], check_trace=False)
    assert seen == [(True, 2)]
    for length in (3, 6):
        given = pairs(1, length)[0]
        assert torch.equal(traced(*given)[0], forward(*given)[0])


def test_what_a_static_sliding_layer_counts_is_data():
    config = LlamaConfig(sliding_window=4, num_hidden_layers=1)
    config.layer_types = ["sliding_attention"]
    cache = updated(StaticCache(config=config, max_cache_len=8), pairs(1))
    if not isinstance(cache.layers[0].cumulative_length, torch.Tensor):
        pytest.skip("this transformers counts in a number, which is part of the structure")
    assert "cumulative_length" in {path[0] for path, _ in flatten(cache)[0]}
