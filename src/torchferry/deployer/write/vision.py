"""A vision-language model in the three parts that genai runs: images, embeddings, decoder.

https://onnxruntime.ai/docs/genai/reference/config.html: ``vision`` gives features of images,
``embedding`` puts them where the image's tokens stand, ``decoder`` goes on from embeddings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.source import Source
from torchferry.zoo.inputs.multimodal import decode_sets
from torchferry.zoo.inputs.text import cache_name, parameters_of
from torchferry.zoo.weights import seeded

__all__ = ["EmbeddedStep", "ImageFeatures", "MergedEmbeddings", "split_vision"]

_SHAPES = ((2, 7, 5), (3, 5, 4), (1, 9, 3))
"""Texts, their tokens, and how many tokens of the first are an image's: no size twice in a set."""


class ImageFeatures(nn.Module):
    """The encoder of images and its projection, alone."""

    def __init__(self, model: Any) -> None:
        """Take a model of transformers."""
        super().__init__()
        self.model = model

    def forward(
        self, pixel_values: torch.Tensor, image_grid_thw: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """``image_features`` (tokens of all images, hidden)."""
        grid = {} if image_grid_thw is None else {"image_grid_thw": image_grid_thw}
        outputs = self.model.get_image_features(pixel_values, **grid)
        # transformers 5 returns the encoder's outputs, 4 the features: an entry for each image.
        features = getattr(outputs, "pooler_output", outputs)
        return {"image_features": torch.cat(tuple(features))}


class MergedEmbeddings(nn.Module):
    """Embeddings of tokens, with features of images in the places of theirs.

    Without features, as in later steps, each token is a word. With some, a token of an image that
    has none reads out of range, which onnxruntime refuses.
    """

    def __init__(self, model: Any) -> None:
        """Take a model of transformers."""
        super().__init__()
        self.embedding, self.token = model.get_input_embeddings(), model.config.image_token_id

    def forward(
        self, input_ids: torch.Tensor, image_features: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """``inputs_embeds`` (batch, sequence, hidden)."""
        embeds = self.embedding(input_ids)
        words = embeds.flatten(0, 1)
        count, total = image_features.shape[0], words.shape[0]
        is_image = input_ids.flatten() == self.token
        rank = is_image.to(torch.int64).cumsum(0) - 1
        own = torch.arange(total) + count
        rank = torch.where(rank < count, rank, own + count * total)
        both = torch.cat([image_features, words])[torch.where(is_image, rank, own)]
        return {"inputs_embeds": both.reshape(embeds.shape)}


class EmbeddedStep(nn.Module):
    """New tokens of the decoder, given as embeddings."""

    def __init__(self, model: Any) -> None:
        """Take a model of transformers."""
        super().__init__()
        self.model, self.cache = model, cache_name(model)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        past_key_values: Any,
    ) -> dict[str, Any]:
        """``logits`` (batch, sequence, vocabulary), and keys and values of all tokens."""
        outputs = self.model(
            inputs_embeds=inputs_embeds, attention_mask=attention_mask, position_ids=position_ids,
            use_cache=True, **{self.cache: past_key_values},
        )  # fmt: skip
        return {"logits": outputs.logits, "past_key_values": outputs[self.cache]}


def split_vision(source: Source) -> Mapping[str, Source]:
    """The parts of a vision-language model with inputs: ``model``, ``embedding``, ``vision``.

    Args:
        source: the model, with prompts that hold images.

    Raises:
        UsageError: the inputs are others.
    """
    model: Any = source.model
    sets = [fed for _, fed in source.input_sets]
    if any(not {"input_ids", "pixel_values"} <= {*fed} for fed in sets):
        raise UsageError(
            f"{source.title} has inputs that are no prompts with images: leave out the state of "
            "the model, or --inputs, or let them give input_ids and pixel_values"
        )
    vision, embedding, step = ImageFeatures(model), MergedEmbeddings(model), EmbeddedStep(model)
    seen = parameters_of(vision)
    images = [{n: x for n, x in fed.items() if n in seen} for fed in sets]
    modules: dict[str, tuple[nn.Module, list[dict[str, Any]]]] = {
        "model": (step, _steps(model)),
        "embedding": (embedding, _texts(model)),
        "vision": (vision, images),
    }
    return {
        name: Source(f"{source.title} ({name})", module.eval(), [((), fed) for fed in feeds])
        for name, (module, feeds) in modules.items()
    }


def _texts(model: Any) -> list[dict[str, Any]]:
    """Tokens and features of images, as many as there are tokens for them."""
    draw, table = seeded(1), model.get_input_embeddings().weight
    sets = []
    for batch, length, count in _SHAPES:
        ids = torch.randint(len(table), (batch, length), generator=draw)
        ids = torch.where(ids == model.config.image_token_id, 0, ids)
        ids[0, 1 : 1 + count] = model.config.image_token_id
        features = torch.randn(count, table.shape[1], generator=draw).to(table.dtype)
        sets.append({"input_ids": ids, "image_features": features})
    return sets


def _steps(model: Any) -> list[dict[str, Any]]:
    """What follows prompts with images, whose keys and values are in the cache."""
    embed, name = model.get_input_embeddings(), cache_name(model)
    with torch.no_grad():
        return [
            {
                "inputs_embeds": embed(fed["input_ids"]),
                "attention_mask": fed["attention_mask"],
                "position_ids": fed["position_ids"],
                "past_key_values": fed[name],
            }
            for fed in decode_sets(model, seeded(0))
        ]
