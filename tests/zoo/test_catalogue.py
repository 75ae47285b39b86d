from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from torchferry.errors import UsageError
from torchferry.values import flatten
from torchferry.zoo.catalogue import build, names


def run(model: torch.nn.Module, inputs: dict[str, Any]) -> list[torch.Tensor]:
    inputs = dict(inputs)
    if "past_key_values" in inputs:
        inputs["cache"] = inputs.pop("past_key_values")
    with torch.no_grad():
        leaves, _ = flatten(model(**inputs))
    return [leaf for _, leaf in leaves if isinstance(leaf, torch.Tensor)]


def sizes(inputs: dict[str, Any]) -> list[tuple[int, ...]]:
    leaves, _ = flatten(inputs)
    return [tuple(leaf.shape) for _, leaf in leaves if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("name", names())
def test_a_model_runs_on_all_of_its_input_sets(name: str) -> None:
    entry = build(name)
    assert entry.name == name
    assert not entry.model.training
    shapes = [sizes(inputs) for inputs in entry.input_sets]
    assert len(shapes) >= 2
    assert all(shape != shapes[0] for shape in shapes[1:])
    for inputs in entry.input_sets:
        outputs = run(entry.model, inputs)
        assert all(torch.isfinite(output).all() for output in outputs)
        # the gates of the LSTM keep its activations below one
        assert all(0.1 < output.std() < 3 for output in outputs)


def test_the_sets_of_tiny_llm_differ_in_batch_sequence_and_cache() -> None:
    sets = build("tiny-llm").input_sets
    seen = [(*s["input_ids"].shape, s["attention_mask"].shape[1]) for s in sets]
    assert seen == [(2, 3, 33), (3, 5, 22), (1, 1, 13)]


def test_padding_is_on_the_left_and_positions_count_real_tokens() -> None:
    padded = build("tiny-llm").input_sets[1]
    assert padded["attention_mask"].sum(1).tolist() == [22, 18, 13]
    assert padded["attention_mask"][2, :10].tolist() == [0] * 9 + [1]
    assert padded["position_ids"][:, 0].tolist() == [17, 13, 8]


def test_images_of_the_resnet_have_unequal_sides() -> None:
    for inputs in build("tiny-resnet").input_sets:
        height, width = inputs["pixel_values"].shape[2:]
        assert height != width


# a vision transformer takes square images
@pytest.mark.parametrize("name", sorted(set(names()) - {"tiny-vit"}))
def test_the_first_set_has_no_equal_sizes_by_accident(name: str) -> None:
    for shape in sizes(build(name).input_sets[0]):
        assert len(set(shape)) == len(shape)


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="no model 'tiny_lm'; did you mean tiny-llm"):
        build("tiny_lm")
    with pytest.raises(UsageError, match="It has: lstm, mlp, tiny-bert"):
        build("xyzzy")


def test_plain_models_need_no_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    assert build("mlp").input_sets
    with pytest.raises(UsageError, match=r"zoo:tiny-bert needs.*torchferry\[hf\]"):
        build("tiny-bert")
