"""Caches of state space models and of hybrids, as models of the installed version make them."""

import inspect
import json
from types import SimpleNamespace

import pytest
import torch
import transformers

from torchferry.dumper import open_dump, read_dump
from torchferry.values import (
    cache_tensors,
    clone,
    flatten,
    max_diff,
    register_pytrees,
    string_type,
    structure_from_json,
    structure_to_json,
    unflatten,
)
from torchferry.values.state_layout import STATES, states_of

SMALL = {"vocab_size": 32, "hidden_size": 32, "pad_token_id": 0, "bos_token_id": 1,
         "eos_token_id": 2}  # fmt: skip
ATTENTION = {"num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 32}
MODELS = {
    "Mamba": {"state_size": 4, "num_hidden_layers": 2},
    "Mamba2": {"state_size": 4, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 16,
               "n_groups": 1, "chunk_size": 8},
    "FalconMamba": {"state_size": 4, "num_hidden_layers": 2},
    "Bamba": {"num_hidden_layers": 2, "attn_layer_indices": [1], "mamba_n_heads": 4,
              "mamba_d_head": 16, "mamba_d_state": 4, "mamba_n_groups": 1, **ATTENTION},
    "Jamba": {"num_hidden_layers": 2, "attn_layer_period": 2, "attn_layer_offset": 1,
              "mamba_d_state": 4, "mamba_dt_rank": 2, "num_experts": 2, "num_experts_per_tok": 1,
              "use_mamba_kernels": False, **ATTENTION},
    "Qwen3Next": {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"],
                  "linear_num_key_heads": 2, "linear_num_value_heads": 2, "head_dim": 16,
                  "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2,
                  "num_experts_per_tok": 1, "moe_intermediate_size": 16,
                  "shared_expert_intermediate_size": 16, **ATTENTION},
}  # fmt: skip
HYBRIDS = ("Bamba", "Jamba", "Qwen3Next")


def model_of(name):
    cls = getattr(transformers, f"{name}ForCausalLM", None)
    if cls is None:
        pytest.skip(f"transformers {transformers.__version__} has no {name}")
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SMALL, **MODELS[name])
    return cls(config).eval()


def cache_in(output):
    names = ("cache_params", "past_key_values", "cache")
    return next(value for name in names if (value := output.get(name)) is not None)


@pytest.fixture(params=MODELS)
def filled(request):
    """A model and the cache it returns after three tokens."""
    model = model_of(request.param)
    ids = torch.tensor([[3, 4, 5], [6, 7, 8]])
    parameters = inspect.signature(model.forward).parameters
    given = {}
    module = inspect.getmodule(type(model))
    made = [c for n, c in vars(module).items() if n.endswith("HybridMambaAttentionDynamicCache")]
    if made:  # these models make no cache of their own, generate() does
        given["past_key_values"] = made[0](model.config, 2, torch.float32)
    with torch.no_grad():
        output = model(ids, use_cache=True, **given)
    cache = cache_in(output)
    name = next(n for n in ("cache_params", "cache", "past_key_values") if n in parameters)
    return request.param, model, cache, name


def rebuilt(value):
    leaves, structure = flatten(value)
    data = json.loads(json.dumps(structure_to_json(structure)))
    assert structure_from_json(data) == structure
    return unflatten([leaf for _, leaf in leaves], structure)


def decoded(model, cache, name):
    """The logits of one more token."""
    given = {name: cache}
    parameters = inspect.signature(model.forward).parameters
    if "cache_position" in parameters:
        given["cache_position"] = torch.tensor([3])
    with torch.no_grad():
        return model(torch.tensor([[9], [10]]), use_cache=True, **given).logits


@pytest.mark.filterwarnings("ignore")  # transformers' own, of kernels that are not installed
def test_a_cache_goes_on_after_it_was_copied_rebuilt_and_stored(filled, tmp_path):
    _, model, cache, name = filled
    with open_dump(tmp_path / "x.safetensors") as dump:
        dump.add("cache", cache)
    again = [clone(cache), rebuilt(clone(cache)), read_dump(tmp_path / "x.safetensors")["cache"]]
    for other in again:
        assert type(other) is type(cache)
        diff = max_diff(cache, other)
        assert (diff.abs, diff.reason) == (0.0, None)
        assert diff.n > 0
    expected = decoded(model, cache, name)
    for other in again:
        assert max_diff(expected, decoded(model, other, name)).abs == 0


@pytest.mark.filterwarnings("ignore")
def test_a_copy_is_of_its_own(filled):
    _, model, cache, name = filled
    before = clone(cache)
    kept = [leaf.clone() for _, leaf in flatten(before)[0] if isinstance(leaf, torch.Tensor)]
    decoded(model, cache, name)
    after = [leaf for _, leaf in flatten(before)[0] if isinstance(leaf, torch.Tensor)]
    assert all(torch.equal(one, other) for one, other in zip(kept, after, strict=True))
    assert max_diff(before, cache).abs > 0


@pytest.mark.filterwarnings("ignore")
def test_layers_are_read_in_one_way(filled):
    name, _, cache, _ = filled
    found = cache_tensors(cache)
    assert {len(getattr(found, state)) for state in STATES} == {2}
    attention = [False, name in HYBRIDS]
    for layer, attends in enumerate(attention):
        for state in ("key_cache", "value_cache"):
            tensor = getattr(found, state)[layer]
            assert (tensor is not None) is attends
            assert not attends or tensor.shape[:3] == (2, 2, 3)
        for state in ("conv_states", "recurrent_states"):
            tensor = getattr(found, state)[layer]
            assert (tensor is None) is attends
            assert attends or tensor.shape[0] == 2


@pytest.mark.filterwarnings("ignore")
def test_it_is_told_in_one_line(filled):
    _, _, cache, _ = filled
    text = string_type(cache, with_shape=True)
    assert text.startswith(f"{type(cache).__name__}(")
    assert "conv_states=" in text
    assert "T1s2x" in text


@pytest.mark.filterwarnings("ignore")
def test_pytorch_sees_the_tensors(filled):
    _, _, cache, _ = filled
    register_pytrees()
    seen = torch.utils._pytree.tree_leaves(cache)
    known = [leaf for _, leaf in flatten(cache)[0] if isinstance(leaf, torch.Tensor)]
    assert sum(isinstance(leaf, torch.Tensor) for leaf in seen) == len(known) > 0


def test_states_have_one_name_and_none_for_nothing():
    cache = SimpleNamespace(
        conv_states={0: torch.ones(2, 3, 4), 1: torch.ones(2, 3, 4)},
        ssm_states=torch.ones(2, 2, 3, 4),
        key_cache=[torch.tensor([[]] * 2), torch.ones(2, 1, 5, 3)],
    )
    found = states_of(cache)
    assert found["key_cache"] == [None, cache.key_cache[1]]
    assert found["value_cache"] == [None, None]
    assert [s.shape for s in found["recurrent_states"]] == [(2, 3, 4)] * 2
    assert len(found["conv_states"]) == 2
