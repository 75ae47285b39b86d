"""An encoder-decoder in three parts that are exported one by one: see `merge` for the graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.sources.source import Source
from torchferry.zoo.inputs.seq2seq import encoder_sets, feature_sets
from torchferry.zoo.inputs.text import CACHE_NAMES, parameters_of
from torchferry.zoo.library import import_transformers
from torchferry.zoo.weights import seeded

__all__ = ["CrossStates", "EncoderStates", "Step", "split_source"]

Layers = list[dict[str, dict[str, torch.Tensor]]]
"""Of each layer ``{"decoder": {"key": ..., "value": ...}, "encoder": ...}``: the paths of these
tensors are the names that optimum and transformers.js give to inputs and outputs."""


class EncoderStates(nn.Module):
    """The encoder alone."""

    def __init__(self, model: Any) -> None:
        """Take the encoder of a model of transformers."""
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The states that the decoder attends to."""
        return {"last_hidden_state": self.encoder(**inputs).last_hidden_state}


class TextStates(EncoderStates):
    """The encoder of a model of text."""

    def forward(  # type: ignore[override]  # its arguments by name, as exports need them
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """States (batch, sequence, hidden)."""
        return super().forward(input_ids=input_ids, attention_mask=attention_mask)


class SoundStates(EncoderStates):
    """The encoder of a model of sound."""

    def forward(  # type: ignore[override]  # its arguments by name, as exports need them
        self, input_features: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """States (batch, frames, hidden)."""
        return super().forward(input_features=input_features)


class CrossStates(nn.Module):
    """Keys and values of the encoder's states in each layer of the decoder.

    The decoder runs on one token, and its cache is returned; what else it computes is dropped from
    the program, so that the projections are left.
    """

    def __init__(self, model: Any, cache: str) -> None:
        """Take a model of transformers, and the name of its cache."""
        super().__init__()
        self.model, self.cache = model, cache

    def forward(self, encoder_hidden_states: torch.Tensor) -> dict[str, Layers]:
        """``present.N.encoder.key`` and ``.value``."""
        shape = (encoder_hidden_states.shape[0], 1)
        outputs = self.model(
            encoder_outputs=_as_outputs(encoder_hidden_states),
            decoder_input_ids=encoder_hidden_states.new_zeros(shape, dtype=torch.int64),
            use_cache=True,
        )
        layers = _as_layers(outputs[self.cache])
        return {"present": [{"encoder": layer["encoder"]} for layer in layers]}


class Step(nn.Module):
    """New tokens of the decoder, when the encoder's keys and values are known."""

    def __init__(self, model: Any, cache: str) -> None:
        """Take a model of transformers, and the name of its cache."""
        super().__init__()
        self.model, self.cache = model, cache

    def forward(
        self,
        input_ids: torch.Tensor,
        past_key_values: Layers,
        encoder_attention_mask: torch.Tensor | None = None,
    ) -> dict[str, Any]:
        """``logits`` (batch, sequence, vocabulary), ``present.N.decoder.key`` and ``.value``."""
        keys = past_key_values[0]["encoder"]["key"]
        # Only its size is looked at, as keys and values are in the cache.
        states = keys.new_zeros(keys.shape[0], keys.shape[2], self.model.config.hidden_size)
        outputs = self.model(
            encoder_outputs=_as_outputs(states),
            attention_mask=encoder_attention_mask,
            decoder_input_ids=input_ids,
            use_cache=True,
            **{self.cache: _as_cache(past_key_values)},
        )
        layers = _as_layers(outputs[self.cache])
        return {
            "logits": outputs.logits,
            "present": [{"decoder": layer["decoder"]} for layer in layers],
        }


def split_source(source: Source) -> Mapping[str, Source]:
    """The parts of an encoder-decoder, each with inputs: ``step``, ``cross``, ``encoder``.

    See `Step`, `CrossStates` and `EncoderStates`.

    Args:
        source: the model, with the inputs of steps of its decoder.

    Raises:
        UsageError: the inputs are others.
    """
    model: Any = source.model
    sets = [fed for _, fed in source.input_sets]
    cache = next((name for name in CACHE_NAMES if name in sets[0]), "")
    if not cache or "encoder_outputs" not in sets[0]:
        raise UsageError(
            f"{source.title} has inputs that are no steps of its decoder: leave out the state of "
            "the model, or --inputs"
        )
    of_text = "input_ids" in parameters_of(model)
    encoder = TextStates(model) if of_text else SoundStates(model)
    encoded = (encoder_sets if of_text else feature_sets)(model, seeded(0))
    cross = [{"encoder_hidden_states": fed["encoder_outputs"].last_hidden_state} for fed in sets]
    steps = [_step(fed, cache) for fed in sets]
    return {
        "step": _source(f"{source.title} (decoder)", Step(model, cache), steps),
        "cross": _source(f"{source.title} (cross attention)", CrossStates(model, cache), cross),
        "encoder": _source(f"{source.title} (encoder)", encoder, encoded),
    }


def _step(fed: Mapping[str, Any], cache: str) -> dict[str, Any]:
    inputs = {"input_ids": fed["decoder_input_ids"], "past_key_values": _as_layers(fed[cache])}
    if "attention_mask" in fed:
        inputs["encoder_attention_mask"] = fed["attention_mask"]
    return inputs


def _source(title: str, module: nn.Module, sets: list[dict[str, Any]]) -> Source:
    return Source(title, module.eval(), [((), fed) for fed in sets])


def _as_outputs(states: torch.Tensor) -> Any:
    """States in the class that the decoder of transformers accepts."""
    outputs = import_transformers("an encoder-decoder").modeling_outputs.BaseModelOutput
    return outputs(last_hidden_state=states)


def _as_layers(cache: Any) -> Layers:
    pairs = zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers, strict=True)
    return [
        {
            "decoder": {"key": own.keys, "value": own.values},
            "encoder": {"key": cross.keys, "value": cross.values},
        }
        for own, cross in pairs
    ]


def _as_cache(layers: Layers) -> Any:
    library = import_transformers("an encoder-decoder")
    own, cross = (
        library.DynamicCache([(x[part]["key"], x[part]["value"]) for x in layers])
        for part in ("decoder", "encoder")
    )
    return library.EncoderDecoderCache(own, cross)
