from __future__ import annotations

from typing import Any

import pytest

from torchferry.zoo import families, variants
from torchferry.zoo.families.audio import AUDIO
from versions import cache_in

NAMES = families("audio")
WAVES = [f"{row.name}/{task}" for row in AUDIO if row.name != "whisper" for task in row.tasks]


@pytest.mark.parametrize("name", [v for name in NAMES for v in variants(name)])
def test_it_runs(name: str, check_runs: Any) -> None:
    check_runs(name)


@pytest.mark.parametrize("name", WAVES)
def test_the_mask_and_the_samples_matter(name: str, how_far: Any) -> None:
    def mask(inputs: dict[str, Any]) -> None:
        inputs["attention_mask"][1, -100:] = 0

    assert how_far(name, mask) > 1e-3

    def click(inputs: dict[str, Any]) -> None:
        inputs["input_values"][0, 200:210] += 3

    assert how_far(name, click) > 1e-3


@pytest.mark.parametrize("state", ["prefill", "encoder"])
def test_a_feature_matters(state: str, nudged: Any) -> None:
    assert nudged(f"whisper/{state}", "input_features") > 1e-3


@pytest.mark.parametrize("part", ["self_attention_cache", "cross_attention_cache"])
def test_an_element_of_either_cache_matters(part: str, how_far: Any) -> None:
    def change(inputs: dict[str, Any]) -> None:
        getattr(cache_in(inputs), part).layers[0].values[0, 1, 2, 1] += 1

    assert how_far("whisper", change) > 1e-3
