from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.values import cache_pairs
from torchferry.zoo.inputs.text import cache_name
from torchferry.zoo.tiny_llm import get_tiny_llm


@pytest.fixture(scope="module")
def tiny() -> dict[str, Any]:
    return get_tiny_llm()


def logits(made: dict[str, Any], **changes: Any) -> torch.Tensor:
    """Run the model, which calls its cache ``cache`` since transformers 5.24."""
    inputs = {**copy.deepcopy(made["inputs"]), **changes}
    inputs[cache_name(made["model"])] = inputs.pop("past_key_values")
    with torch.no_grad():
        return made["model"](**inputs).logits


def test_it_has_the_documented_sizes(tiny: dict[str, Any]) -> None:
    config, inputs = tiny["configuration"], tiny["inputs"]
    assert (config.hidden_size, config.head_dim, config.vocab_size) == (192, 96, 32000)
    assert not tiny["model"].training
    assert {name: tuple(inputs[name].shape) for name in list(inputs)[:3]} == {
        "input_ids": (2, 3),
        "attention_mask": (2, 33),
        "position_ids": (2, 3),
    }
    ((key, value),) = cache_pairs(inputs["past_key_values"])
    assert key.shape == value.shape == (2, 1, 30, 96)
    assert logits(tiny).shape == (2, 3, 32000)


def test_dynamic_shapes_are_nested_as_the_inputs(tiny: dict[str, Any]) -> None:
    cached = [{0: "batch", 2: "cache_length"}]
    assert list(tiny["dynamic_shapes"]) == list(tiny["inputs"])
    assert tiny["dynamic_shapes"]["past_key_values"] == [cached, cached]
    assert tiny["dynamic_shapes"]["attention_mask"] == {0: "batch", 1: "cache+seq"}


def test_activations_are_of_order_one(tiny: dict[str, Any]) -> None:
    assert 0.3 < logits(tiny).std() < 3


def test_one_bit_of_the_mask_moves_the_logits_of_its_sequence_only(tiny: dict[str, Any]) -> None:
    mask = tiny["inputs"]["attention_mask"].clone()
    mask[0, 5] = 0
    moved = (logits(tiny, attention_mask=mask) - logits(tiny)).abs().amax((1, 2))
    assert moved[0] > 1e-2
    assert moved[1] == 0


def test_positions_and_the_cache_move_the_logits(tiny: dict[str, Any]) -> None:
    expected, inputs = logits(tiny), tiny["inputs"]
    shifted = logits(tiny, position_ids=inputs["position_ids"] + 1)
    assert (shifted - expected).abs().max() > 1e-2
    cache = copy.deepcopy(inputs["past_key_values"])
    cache_pairs(cache)[0][1][:, :, 7] += 1
    assert (logits(tiny, past_key_values=cache) - expected).abs().max() > 1e-2


def test_it_is_the_same_every_time_and_leaves_the_global_generator_alone(
    tiny: dict[str, Any],
) -> None:
    before = torch.get_rng_state()
    again = get_tiny_llm()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(logits(again), logits(tiny))


def test_sizes_and_configuration_can_be_changed() -> None:
    made = get_tiny_llm(3, 5, 2, num_hidden_layers=2, vocab_size=100)
    assert logits(made).shape == (3, 2, 100)
    assert [len(part) for part in made["dynamic_shapes"]["past_key_values"]] == [2, 2]
    assert made["inputs"]["attention_mask"].shape == (3, 7)


def test_an_unknown_configuration_entry_is_refused() -> None:
    with pytest.raises(UsageError, match="no entry 'layers'"):
        get_tiny_llm(layers=2)
