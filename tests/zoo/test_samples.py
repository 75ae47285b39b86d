from __future__ import annotations

from typing import Any

import pytest
import torch

from torchferry.values import clone, flatten
from torchferry.zoo.inputs.text import cache_name
from torchferry.zoo.samples import SAMPLES


def run(model: torch.nn.Module, inputs: dict[str, Any]) -> list[torch.Tensor]:
    inputs = clone(inputs)
    if "past_key_values" in inputs:
        inputs[cache_name(model)] = inputs.pop("past_key_values")
    with torch.no_grad():
        leaves, _ = flatten(model(**inputs))
    return [leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_model_runs_on_all_of_its_input_sets(name: str) -> None:
    model, sets = SAMPLES[name]()
    assert not model.training
    shapes = [[tuple(leaf.shape) for _, leaf in flatten(inputs)[0]] for inputs in sets]
    assert len(shapes) >= 2
    assert all(shape != shapes[0] for shape in shapes[1:])
    for inputs in sets:
        outputs = run(model, inputs)
        assert all(torch.isfinite(output).all() for output in outputs)
        assert all(0.1 < output.std() < 3 for output in outputs)


def test_the_sets_of_tiny_llm_differ_in_batch_sequence_and_cache() -> None:
    sets = SAMPLES["tiny-llm"]()[1]
    seen = [(*s["input_ids"].shape, s["attention_mask"].shape[1]) for s in sets]
    assert seen == [(2, 3, 33), (3, 5, 22), (1, 1, 13)]


def test_padding_is_on_the_left_and_positions_count_real_tokens() -> None:
    padded = SAMPLES["tiny-llm"]()[1][1]
    assert padded["attention_mask"].sum(1).tolist() == [22, 18, 13]
    assert padded["attention_mask"][2, :10].tolist() == [0] * 9 + [1]
    assert padded["position_ids"][:, 0].tolist() == [17, 13, 8]


def test_images_of_the_resnet_have_unequal_sides() -> None:
    for inputs in SAMPLES["tiny-resnet"]()[1]:
        height, width = inputs["pixel_values"].shape[2:]
        assert height != width
