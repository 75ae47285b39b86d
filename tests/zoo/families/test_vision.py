from __future__ import annotations

from typing import Any

import pytest

from torchferry.zoo import families, variants
from torchferry.zoo.families.vision import VISION

NAMES = families("vision")
FIXED = {"deit", "sam", "vit"}


@pytest.mark.parametrize("name", [v for name in NAMES for v in variants(name)])
def test_it_runs_and_a_pixel_matters(name: str, check_runs: Any, how_far: Any) -> None:
    check_runs(name)

    def paint(inputs: dict[str, Any]) -> None:
        inputs["pixel_values"][1, 0, 7:10, 9:12] += 3

    assert how_far(name, paint) > 1e-3


def test_the_mask_of_a_detector_matters(how_far: Any) -> None:
    def mask(inputs: dict[str, Any]) -> None:
        inputs["pixel_mask"][0, -24:] = 0

    assert how_far("detr", mask) > 1e-3


@pytest.mark.parametrize("key", ["input_points", "input_labels"])
def test_the_points_of_a_prompt_matter(key: str, how_far: Any) -> None:
    def move(inputs: dict[str, Any]) -> None:
        value = inputs[key]
        value[0, 1, 2] = 1 - value[0, 1, 2] if key == "input_labels" else value[0, 1, 2] + 9

    assert how_far("sam", move) > 1e-3


@pytest.mark.parametrize("row", VISION, ids=lambda row: row.name)
def test_height_and_width_differ(row: Any, built: Any) -> None:
    sides = {tuple(s["pixel_values"].shape[2:]) for s in built(row.name).input_sets}
    assert len(sides) == (1 if row.name in FIXED else 3)
    if row.name != "sam":
        assert all(height != width for height, width in sides)
