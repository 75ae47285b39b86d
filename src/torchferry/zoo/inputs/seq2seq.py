"""Encoder and decoder: the pass of each, with text or audio features at the encoder's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.inputs.text import (
    Inputs,
    cache_name,
    encoder_inputs,
    pad_token,
    run_quietly,
    token_ids,
)

__all__ = ["SIZES", "decode_sets", "encoder_sets", "feature_sets", "prefill_sets"]

SIZES = ((3, 11, 5, 7), (2, 9, 4, 6), (1, 6, 1, 3))
"""Batch, tokens of the encoder, new tokens of the decoder, and its tokens in the cache."""

_PADDING = ((), (0, 4), ())

Encoded = Callable[[nn.Module, torch.Generator], list[Inputs]]


def encoder_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """``input_ids`` and ``attention_mask`` (batch, tokens), the second set padded."""
    return [
        encoder_inputs(model, batch=batch, sequence=tokens, generator=generator, padding=padding)
        for (batch, tokens, _, _), padding in zip(SIZES, _PADDING, strict=True)
    ]


def feature_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """``input_features`` (batch, mel bins, frames) of Whisper, whose number of frames is fixed."""
    config: Any = model.config
    shape = (config.num_mel_bins, 2 * config.max_source_positions)
    dtype = next(model.parameters()).dtype
    return [
        {"input_features": torch.randn(batch, *shape, generator=generator).to(dtype)}
        for batch in (3, 2, 1)
    ]


def prefill_sets(encoded: Encoded) -> Encoded:
    """Make the sets of a whole pass: the encoder's inputs and ``decoder_input_ids``."""

    def make(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
        return [
            {**inputs, "decoder_input_ids": _decoder_ids(model, batch, new + past, generator)}
            for inputs, (batch, _, new, past) in zip(encoded(model, generator), SIZES, strict=True)
        ]

    return make


def decode_sets(encoded: Encoded) -> Encoded:
    """Make the sets of a step of the decoder: the encoder has run, some tokens are in the cache.

    They hold ``encoder_outputs``, the encoder's ``attention_mask`` if it has one,
    ``decoder_input_ids`` (batch, new tokens), and an ``EncoderDecoderCache`` that a run of the
    model has filled.
    """

    def make(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
        name = cache_name(model)
        sets = []
        for inputs, (batch, _, new, past) in zip(encoded(model, generator), SIZES, strict=True):
            ids = _decoder_ids(model, batch, past + new, generator)
            outputs, _ = run_quietly(_encoder(model), inputs)
            step = {"encoder_outputs": _hidden_states(outputs)}
            if "attention_mask" in inputs:
                step["attention_mask"] = inputs["attention_mask"]
            _, cache = run_quietly(model, {**step, "decoder_input_ids": ids[:, :past]})
            if cache is None:
                raise UsageError(f"{type(model).__name__} returns no cache: is use_cache false?")
            sets.append({**step, "decoder_input_ids": ids[:, past:].contiguous(), name: cache})
        return sets

    return make


def _encoder(model: nn.Module) -> nn.Module:
    encoder: nn.Module = model.get_encoder()  # type: ignore[operator]  # a method of transformers
    return encoder


def _hidden_states(outputs: Any) -> Any:
    """Only what the decoder reads, in the class that it accepts."""
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=outputs.last_hidden_state)


def _decoder_ids(
    model: nn.Module, batch: int, count: int, generator: torch.Generator
) -> torch.Tensor:
    ids = token_ids(model, (batch, count), generator)
    start = getattr(model.config, "decoder_start_token_id", None)
    ids[:, 0] = pad_token(model) if start is None else start
    return ids
