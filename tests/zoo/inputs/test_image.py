from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.zoo.inputs.image import CONVOLUTION_SIZES, image_sets, mask_image_sets, point_sets
from torchferry.zoo.weights import seeded


class Model(nn.Module):
    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = SimpleNamespace(**config)

    def forward(self, pixel_values: Any, pixel_mask: Any = None) -> None:
        """Only its signature is read."""


def shapes(sets: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    return [tuple(inputs["pixel_values"].shape) for inputs in sets]


@pytest.mark.parametrize(
    ("config", "given", "expected"),
    [
        ({}, (), [(b, 3, h, w) for b, h, w in CONVOLUTION_SIZES]),
        ({"image_size": 8, "num_channels": 1}, (), [(2, 1, 8, 8), (5, 1, 8, 8), (1, 1, 8, 8)]),
        ({"image_size": (8, 6)}, (), [(2, 3, 8, 6), (5, 3, 8, 6), (1, 3, 8, 6)]),
        ({"image_size": 8}, ((1, 4, 5),), [(1, 3, 4, 5)]),
        ({"vision_config": SimpleNamespace(image_size=4)}, (), [(b, 3, 4, 4) for b in (2, 5, 1)]),
    ],
)
def test_sizes_are_the_given_or_the_configured(config: Any, given: Any, expected: Any) -> None:
    assert shapes(image_sets(Model(**config), seeded(0), given)) == expected


def test_the_last_image_of_several_is_padded() -> None:
    for inputs in mask_image_sets(Model(), seeded(0)):
        mask = inputs["pixel_mask"]
        batch, _, height, width = inputs["pixel_values"].shape
        assert mask.shape == (batch, height, width)
        assert mask[0].all()
        assert bool(mask[-1].all()) == (batch == 1)
        assert mask[:, 0, 0].all()


def test_points_lie_in_the_image() -> None:
    for inputs in point_sets(Model(image_size=(10, 30)), seeded(0)):
        points, labels = inputs["input_points"], inputs["input_labels"]
        assert points.shape == (*labels.shape, 2)
        assert (points >= 0).all()
        assert (points[..., 0] < 30).all()
        assert (points[..., 1] < 10).all()
        assert labels.dtype == torch.int64
        assert set(labels.unique().tolist()) == {0, 1}
