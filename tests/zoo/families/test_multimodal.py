from __future__ import annotations

from typing import Any

import pytest

from torchferry.zoo import families, variants
from torchferry.zoo.families.multimodal import MULTIMODAL
from versions import cache_in

NAMES = families("multimodal")
ANSWERS = [row.name for row in MULTIMODAL if row.tasks[0] == "image-text-to-text"]
COMPARES = [row.name for row in MULTIMODAL if row.tasks[0] != "image-text-to-text"]


@pytest.mark.parametrize("name", [v for name in NAMES for v in variants(name)])
def test_it_runs_and_a_masked_token_matters(name: str, check_runs: Any, how_far: Any) -> None:
    check_runs(name)

    def mask(inputs: dict[str, Any]) -> None:
        inputs["attention_mask"][0, 1] = 0

    assert how_far(name, mask) > 1e-3


@pytest.mark.parametrize("name", [*COMPARES, *(f"{name}/prefill" for name in ANSWERS)])
def test_a_pixel_matters(name: str, nudged: Any) -> None:
    assert nudged(name, "pixel_values") > 1e-3


@pytest.mark.parametrize("state", ["prefill", "decode"])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_position_matters(name: str, state: str, how_far: Any) -> None:
    def move(inputs: dict[str, Any]) -> None:
        inputs["position_ids"][..., 0, -1] += 3

    assert how_far(f"{name}/{state}", move) > 1e-3


@pytest.mark.parametrize("name", ANSWERS)
def test_an_element_of_the_cache_matters(name: str, how_far: Any) -> None:
    def change(inputs: dict[str, Any]) -> None:
        cache_in(inputs).layers[1].values[0, 1, 5, 1] += 1

    assert how_far(name, change) > 1e-3


@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl"])
def test_the_grid_of_an_image_matters(name: str, how_far: Any) -> None:
    def turn(inputs: dict[str, Any]) -> None:
        inputs["image_grid_thw"][0] = inputs["image_grid_thw"][0, [0, 2, 1]]

    assert how_far(f"{name}/prefill", turn) > 1e-3


@pytest.mark.parametrize("name", ANSWERS)
def test_the_image_stands_in_the_text_once(name: str, built: Any) -> None:
    for inputs in built(f"{name}/prefill").input_sets:
        marked = (inputs["input_ids"] == 90).sum(1)
        assert len(set(marked.tolist())) == 1
        assert marked[0] > 0
