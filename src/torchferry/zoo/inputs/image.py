"""Images: alone, with a mask, and with points to segment around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from torchferry.zoo.inputs.text import Inputs, parameters_of

__all__ = ["CONVOLUTION_SIZES", "image_inputs", "image_sets", "mask_image_sets", "point_sets"]

CONVOLUTION_SIZES = ((2, 96, 128), (5, 128, 64), (1, 64, 160))
"""Convolutions take any (batch, height, width); unequal sides tell height from width."""


def image_inputs(
    model: nn.Module, batch: int, height: int, width: int, *, generator: torch.Generator
) -> Inputs:
    """Return ``pixel_values`` (batch, channels, height, width), normally distributed."""
    config: Any = model.config
    vision = getattr(config, "vision_config", config)
    channels = getattr(vision, "num_channels", 3)
    return {"pixel_values": torch.randn(batch, channels, height, width, generator=generator)}


def image_sets(
    model: nn.Module, generator: torch.Generator, sizes: Sequence[tuple[int, int, int]] = ()
) -> list[Inputs]:
    """Images in several sizes.

    Args:
        model: a model of images.
        generator: where the pixels come from.
        sizes: (batch, height, width) of each set; without, the size that the configuration
            states, or `CONVOLUTION_SIZES` where it states none.
    """
    config: Any = model.config
    fixed = getattr(getattr(config, "vision_config", config), "image_size", None)
    if not sizes and fixed is None:
        sizes = CONVOLUTION_SIZES
    elif not sizes and fixed is not None:
        height, width = (fixed, fixed) if isinstance(fixed, int) else tuple(fixed)
        sizes = [(batch, height, width) for batch in (2, 5, 1)]
    return [image_inputs(model, *size, generator=generator) for size in sizes]


def mask_image_sets(
    model: nn.Module, generator: torch.Generator, sizes: Sequence[tuple[int, int, int]] = ()
) -> list[Inputs]:
    """Images of a detector, with ``pixel_mask`` (batch, height, width) where it takes one.

    In every set of more than one image the last one is padded, on its right and at its bottom.
    """
    sets = image_sets(model, generator, sizes)
    if "pixel_mask" not in parameters_of(model):
        return sets
    for inputs in sets:
        batch, _, height, width = inputs["pixel_values"].shape
        mask = torch.ones(batch, height, width, dtype=torch.int64)
        if batch > 1:
            mask[-1, height * 3 // 4 :] = 0
            mask[-1, :, width * 2 // 3 :] = 0
        inputs["pixel_mask"] = mask
    return sets


def point_sets(
    model: nn.Module, generator: torch.Generator, sizes: Sequence[tuple[int, int, int]] = ()
) -> list[Inputs]:
    """Images with points on them, as Segment Anything takes them.

    Returns:
        ``pixel_values``; ``input_points`` (batch, prompts, points, 2), in pixels, x before y;
        ``input_labels`` (batch, prompts, points): 1 for an object, 0 for the background.
    """
    sets = image_sets(model, generator, sizes)
    for inputs, (prompts, points) in zip(sets, ((4, 3), (3, 6), (1, 2)), strict=True):
        batch, _, height, width = inputs["pixel_values"].shape
        place = torch.rand(batch, prompts, points, 2, generator=generator)
        inputs["input_points"] = place * torch.tensor([float(width), float(height)])
        labels = torch.arange(batch * prompts * points).reshape(batch, prompts, points)
        inputs["input_labels"] = (labels % 3 != 1).long()
    return sets
