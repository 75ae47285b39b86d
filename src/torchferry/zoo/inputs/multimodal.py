"""Text and images together: to be compared, or the image as a part of the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from torchferry.zoo.inputs.image import image_inputs, image_sets
from torchferry.zoo.inputs.text import (
    Inputs,
    cache_name,
    encoder_inputs,
    parameters_of,
    run_quietly,
    token_ids,
)

__all__ = ["ANSWERING", "caption_sets", "decode_sets", "prefill_sets"]

ANSWERING = ("llava", "qwen2_vl", "qwen2_5_vl")
"""The ``model_type`` of models that answer questions about images, as they are known here."""

_SIZES = ((3, 5, 8), (2, 4, 6), (1, 1, 4))
"""Images, each in a sequence of its own; new tokens; tokens before or after the image."""
_GRIDS = ((4, 6), (6, 4), (4, 4))


def caption_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """Captions to choose from and images to choose for, as CLIP and SigLIP take them.

    Returns:
        ``input_ids`` and ``attention_mask`` (captions, tokens), whose last token is the end of
        the text, and ``pixel_values`` (images, channels, height, width).
    """
    config: Any = model.config
    end = config.text_config.eos_token_id
    sets = []
    sizes = ((4, 9, (0, 3)), (3, 12, (0, 0, 5)), (1, 7, ()))
    for images, (batch, sequence, padding) in zip(
        image_sets(model, generator), sizes, strict=True
    ):
        text = encoder_inputs(
            model, batch=batch, sequence=sequence, generator=generator, padding=padding
        )
        ends = text["attention_mask"].sum(1) - 1
        text["input_ids"][torch.arange(batch), ends] = end
        sets.append({**text, **images})
    return sets


def prefill_sets(
    model: nn.Module, generator: torch.Generator, grids: Sequence[tuple[int, int]] = _GRIDS
) -> list[Inputs]:
    """A text with one image in it: the prompt of a model that answers questions about images.

    Args:
        model: of transformers.
        generator: of the values.
        grids: rows and columns of patches of the images, of models that take images of any size.

    Returns:
        ``input_ids``, ``attention_mask``, ``position_ids`` and ``pixel_values``; of the Qwen-VL
        models also ``image_grid_thw``, and their positions are (3, batch, sequence).
    """
    return [
        _prompt(model, number, (batch, text), grids[number], generator)
        for number, (batch, _, text) in enumerate(_SIZES)
    ]


def decode_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """The next tokens after such a prompt: text only, the image is in the cache."""
    sets = []
    for prompt, (batch, new, _) in zip(prefill_sets(model, generator), _SIZES, strict=True):
        _, cache = run_quietly(model, prompt)
        mask = torch.nn.functional.pad(prompt["attention_mask"], (0, new), value=1)
        after = prompt["position_ids"].amax(dim=-1, keepdim=True)
        if after.ndim == 3:  # the image's rows and columns count too
            after = after.amax(dim=0, keepdim=True).expand(3, -1, -1)
        sets.append(
            {
                "input_ids": token_ids(model, (batch, new), generator),
                "attention_mask": mask,
                "position_ids": after + 1 + torch.arange(new),
                cache_name(model): cache,
            }
        )
    return sets


def _prompt(
    model: nn.Module,
    number: int,
    sizes: tuple[int, int],
    grid: tuple[int, int],
    generator: torch.Generator,
) -> Inputs:
    config: Any = model.config
    batch, text = sizes
    if "image_grid_thw" in parameters_of(model):
        rows, columns = grid
        images = _patches(config.vision_config, batch, rows, columns, generator)
        tokens = rows * columns // config.vision_config.spatial_merge_size**2
    else:
        size = config.vision_config.image_size
        images = image_inputs(model, batch, size, size, generator=generator)
        tokens = (size // config.vision_config.patch_size) ** 2
    before = text // 2
    ids = token_ids(model, (batch, text + tokens), generator)
    is_image = torch.zeros_like(ids)
    is_image[:, before : before + tokens] = 1
    ids = torch.where(ids == config.image_token_id, 3, ids)
    ids = torch.where(is_image == 1, config.image_token_id, ids)
    mask = torch.ones_like(ids)
    if number == 1:  # the second set is padded on the left
        mask[-1, :2] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if "image_grid_thw" in images:
        inner: Any = model.model
        inputs["position_ids"], _ = inner.get_rope_index(
            ids, is_image, images["image_grid_thw"], attention_mask=mask
        )
    else:
        inputs["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    return {**inputs, **images}


def _patches(
    config: Any, images: int, rows: int, columns: int, generator: torch.Generator
) -> Inputs:
    """Pixels as Qwen-VL takes them: (patches of all images, values of a patch).

    Every other image lies on its side, so that their sizes differ and their tokens are as many.
    """
    values = config.in_channels * config.temporal_patch_size * config.patch_size**2
    grid = torch.tensor([[1, rows, columns], [1, columns, rows]] * images)[:images]
    pixels = torch.randn(images * rows * columns, values, generator=generator)
    return {"pixel_values": pixels, "image_grid_thw": grid}
