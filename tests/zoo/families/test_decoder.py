from __future__ import annotations

from typing import Any

import pytest
import torch

from torchferry.zoo import families, variants
from torchferry.zoo.families.decoder import DECODERS
from torchferry.zoo.inputs.text import CACHE_NAMES, cache_name
from versions import cache_in

NAMES = families("decoder")
STATEFUL = {"mamba", "mamba2", "bamba", "jamba"}
LAYER_KINDS = {
    "llama": ["DynamicLayer", "DynamicLayer"],
    "mistral": ["DynamicSlidingWindowLayer", "DynamicSlidingWindowLayer"],
    "gemma3": ["DynamicSlidingWindowLayer", "DynamicLayer"],
    "gpt_oss": ["DynamicSlidingWindowLayer", "DynamicLayer"],
    "mamba": ["LinearAttentionLayer", "LinearAttentionLayer"],
}


@pytest.mark.parametrize("name", [v for name in NAMES for v in variants(name)])
def test_it_runs(name: str, check_runs: Any) -> None:
    check_runs(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_token_of_the_prompt_matters(name: str, how_far: Any) -> None:
    def mask(inputs: dict[str, Any]) -> None:
        inputs["attention_mask"][1, 2] = 0

    assert how_far(f"{name}/prefill", mask) > 1e-3


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"mamba", "mamba2"}))
def test_a_masked_token_in_the_cache_matters(name: str, how_far: Any) -> None:
    def mask(inputs: dict[str, Any]) -> None:
        inputs["attention_mask"][1, 2] = 0

    assert how_far(name, mask) > 1e-3


def test_a_state_has_no_mask_when_it_is_all_there_is(built: Any) -> None:
    for name in ("mamba", "mamba2"):
        assert list(built(name).input_sets[0]) == ["input_ids", cache_name(built(name).model)]


# ALiBi and states count for themselves
@pytest.mark.parametrize("name", sorted(set(NAMES) - STATEFUL - {"bloom"}))
def test_a_position_matters(name: str, how_far: Any) -> None:
    def move(inputs: dict[str, Any]) -> None:
        inputs["position_ids"][0, -1] += 3

    assert how_far(name, move) > 1e-3


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_an_element_of_the_cache_matters(name: str, layer: int, how_far: Any) -> None:
    def change(inputs: dict[str, Any]) -> None:
        chosen = cache_in(inputs).layers[layer]
        if hasattr(chosen, "recurrent_states"):
            chosen.recurrent_states[0].view(-1)[0] += 1  # the one that fades slowest
        else:
            chosen.values[0, -1, 2, 1] += 1

    assert how_far(name, change) > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_a_cached_step_continues_what_one_long_run_computes(name: str, built: Any) -> None:
    """The cache is the model's own: without it, the whole text gives the same."""
    empty = built(f"{name}/prefill-empty-cache")
    inputs = {k: v for k, v in empty.input_sets[0].items() if k not in CACHE_NAMES}
    with torch.no_grad():
        whole = empty.model(**inputs).logits
        first = {name: value[:, :-1] for name, value in inputs.items()}
        cache = cache_in(empty.model(**first))
        last = {name: value[:, -1:] for name, value in inputs.items()}
        last["attention_mask"] = inputs["attention_mask"]
        if name in ("mamba", "mamba2"):
            del last["attention_mask"]
        step = empty.model(**last, **{cache_name(empty.model): cache}).logits
    assert torch.allclose(step[:, -1], whole[:, -1], atol=1e-4)


@pytest.mark.parametrize("name", sorted(LAYER_KINDS))
def test_the_cache_has_the_layers_that_transformers_makes(name: str, built: Any) -> None:
    cache = cache_in(built(name).input_sets[0])
    assert [type(layer).__name__ for layer in cache.layers] == LAYER_KINDS[name]
    empty = cache_in(built(f"{name}/prefill-empty-cache").input_sets[0])
    assert [type(layer).__name__ for layer in empty.layers or cache.layers] == LAYER_KINDS[name]
    assert all(getattr(layer, "keys", None) is None for layer in empty.layers)
    kept = [getattr(layer, "recurrent_states", None) or {} for layer in empty.layers]
    states = [state for states in kept for state in states.values()]
    assert all(state is None for state in states)


@pytest.mark.parametrize("row", [d for d in DECODERS if "sliding_window" in d.sizes])
def test_a_full_window_has_dropped_tokens(row: Any, built: Any) -> None:
    window = row.sizes["sliding_window"]
    full = built(f"{row.name}/decode-full-window").input_sets
    lengths = [cache_in(inputs).layers[0].keys.shape[2] for inputs in full]
    assert lengths == [window - 1] * 3
    assert all(inputs["attention_mask"].shape[1] > window for inputs in full)
    below = built(f"{row.name}/decode").input_sets
    assert all(inputs["attention_mask"].shape[1] < window for inputs in below)


@pytest.mark.parametrize("name", NAMES)
def test_padding_is_on_the_left(name: str, built: Any) -> None:
    for state in ("prefill", "prefill-empty-cache", "no-cache"):
        padded = built(f"{name}/{state}").input_sets[1]
        assert padded["attention_mask"].sum(1).tolist() == [14, 9]
        assert padded["attention_mask"][1, :6].tolist() == [0, 0, 0, 0, 0, 1]


def test_stateful_models_take_one_token_at_a_time(built: Any) -> None:
    for name in STATEFUL:
        assert {s["input_ids"].shape[1] for s in built(name).input_sets} == {1}
    seen = [
        (*s["input_ids"].shape, s["attention_mask"].shape[1]) for s in built("llama").input_sets
    ]
    assert seen == [(3, 5, 19), (2, 7, 16), (1, 1, 7)]
