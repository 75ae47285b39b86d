"""Inputs that fit a transformers model, made from its class, configuration and signature."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.inputs.audio import waveform_sets
from torchferry.zoo.inputs.image import image_inputs, image_sets
from torchferry.zoo.inputs.multimodal import ANSWERING, caption_sets, prefill_sets
from torchferry.zoo.inputs.seq2seq import decode_sets, encoder_sets, feature_sets
from torchferry.zoo.inputs.text import (
    Inputs,
    decoder_inputs,
    encoder_inputs,
    pad_token,
    parameters_of,
    run_quietly,
    text_config,
    unsupported,
)
from torchferry.zoo.weights import seeded

__all__ = ["decoder_inputs", "encoder_inputs", "image_inputs", "input_sets"]


_LEAST_WINDOW = 16  # tokens; a smaller one is full in every set


def input_sets(model: nn.Module, *, seed: int = 0) -> list[Inputs]:
    """Return keyword arguments of ``forward`` in three different sizes.

    The first set has no two equal sizes, and none that the configuration holds, so that a
    dimension is never taken for another. The second set is padded where the task has a mask.

    Args:
        model: a transformers ``PreTrainedModel``: a decoder with a cache (which is filled by a
            run of the model itself), an encoder of text, a model of images or of raw sound, of two
            towers as CLIP, a vision-language model of `ANSWERING`, which gets prompts with images,
            or an encoder-decoder, which gets steps of its decoder.
        seed: of the inputs; PyTorch's global generator is left as it is.

    Raises:
        UsageError: the model is of another kind; its inputs have to be given.
    """
    generator = seeded(seed)
    parameters = parameters_of(model)
    config: Any = getattr(model, "config", None)
    if config is None:
        raise unsupported(model)
    if getattr(config, "is_encoder_decoder", False):
        return _steps_of_both(model, generator)
    has_both = {"input_ids", "pixel_values"} <= {*parameters}
    if "input_ids" in parameters and not has_both:
        sets = _text_sets(model, generator)
    elif "pixel_values" in parameters and not has_both:
        sets = image_sets(model, generator)
    elif "input_values" in parameters and not {"input_ids", "pixel_values"} & {*parameters}:
        sets = waveform_sets(model, generator)
    elif has_both and hasattr(model, "text_model"):
        sets = caption_sets(model, generator)
    elif has_both and getattr(config, "model_type", "") in ANSWERING:
        sets = prefill_sets(model, generator)
    else:
        raise unsupported(model)
    required = {name for name, p in parameters.items() if p.default is p.empty}
    if not required <= set(sets[0]):
        raise unsupported(model)
    return sets


def _steps_of_both(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """Steps of the decoder of an encoder-decoder that generates."""
    can_generate: Any = getattr(model, "can_generate", None)
    makers = {"input_ids": encoder_sets, "input_features": feature_sets}
    encoded = next((makers[name] for name in parameters_of(model) if name in makers), None)
    if encoded is None or can_generate is None or not can_generate():
        raise unsupported(model)
    return decode_sets(encoded)(model, generator)


def _text_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    probe = encoder_inputs(model, batch=1, sequence=2, generator=generator)
    probe.pop("token_type_ids", None)
    has_cache = _has_cache(model, probe)
    batch, sequence, past = _distinct_sizes(model)
    if not has_cache:
        return [
            encoder_inputs(model, batch=batch, sequence=sequence + past // 2, generator=generator),
            encoder_inputs(
                model, batch=batch + 1, sequence=past, generator=generator, padding=(0, 2)
            ),
            encoder_inputs(model, batch=1, sequence=sequence, generator=generator),
        ]
    return [
        decoder_inputs(model, batch=batch, sequence=sequence, past=past, generator=generator),
        decoder_inputs(
            model,
            batch=batch + 1,
            sequence=sequence + 2,
            past=past // 2 + 2,
            generator=generator,
            padding=(0, 1, 3),
        ),
        decoder_inputs(model, batch=1, sequence=1, past=past // 3, generator=generator),
    ]


def _has_cache(model: nn.Module, probe: Inputs) -> bool:
    """Whether the model returns keys and values; a state, as Mamba's is, is refused."""
    outputs, cache = run_quietly(model, probe)
    names = list(outputs) if isinstance(outputs, Mapping) else []
    if cache is None and not any("cache" in name or name == "state" for name in names):
        return False
    layers = getattr(cache, "layers", ())
    if not layers or any(getattr(layer, "keys", None) is None for layer in layers):
        raise unsupported(model)
    return True


def _distinct_sizes(model: nn.Module) -> tuple[int, int, int]:
    """Batch, sequence and cache length that differ from each other and from the model's sizes."""
    config = text_config(model)
    fixed = {
        value
        for key, value in config.to_dict().items()
        if isinstance(value, int) and not key.endswith("_id")
    }
    batch = _first(range(2, 100), fixed)
    sequence = _first(range(3, 100), fixed | {batch})
    # RoBERTa counts positions from the number of its padding token on
    longest = (getattr(config, "max_position_embeddings", None) or 1024) - pad_token(model) - 1
    # Masks of a full window are made in another way, and only one way is captured.
    window = getattr(config, "sliding_window", None) or longest
    window = window if window >= _LEAST_WINDOW else longest
    most = min(30, min(longest, window) - sequence - 2)
    past = _first(range(most, 2, -1), fixed | {batch, sequence} | {f - sequence for f in fixed})
    return batch, sequence, past


def _first(candidates: Iterable[int], taken: set[int]) -> int:
    free = next((size for size in candidates if size not in taken), None)
    if free is None:
        raise UsageError(
            "the model takes too few positions for inputs of different sizes; "
            "give them with --inputs FILE.py:function"
        )
    return free
