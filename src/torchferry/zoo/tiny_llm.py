"""A Llama-like decoder of one layer: the smallest model with everything an LLM export needs."""

from __future__ import annotations

from typing import Any

import torch

from torchferry.errors import UsageError
from torchferry.zoo.library import import_transformers
from torchferry.zoo.tasks import decoder_inputs
from torchferry.zoo.weights import draw_weights, seeded

__all__ = ["get_tiny_llm"]

_CONFIGURATION: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 192,
    "intermediate_size": 1024,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 96,
    "max_position_embeddings": 1024,
}


def get_tiny_llm(
    batch_size: int = 2,
    sequence_length: int = 30,
    sequence_length2: int = 3,
    *,
    seed: int = 0,
    **configuration: Any,
) -> dict[str, Any]:
    """Build the model and one set of inputs in the middle of a generation.

    Args:
        batch_size: number of sequences.
        sequence_length: tokens that are in the cache already.
        sequence_length2: new tokens.
        seed: of the weights and the inputs; PyTorch's global generator is left as it is.
        configuration: changes to the ``LlamaConfig``: ``num_hidden_layers=2``.

    Returns:
        ``model``: a ``LlamaForCausalLM`` in eval mode;
        ``inputs``: ``input_ids`` (batch, new), ``attention_mask`` (batch, cached + new),
        ``position_ids`` (batch, new) and ``past_key_values``, a ``DynamicCache`` whose layers
        hold (batch, key-value heads, cached, head size);
        ``dynamic_shapes``: the same names, each dimension that may vary under its name, the
        cache as all keys, then all values; ``configuration``: the ``LlamaConfig``.

    Raises:
        UsageError: transformers is missing, or it has no such configuration entry.
    """
    transformers = import_transformers("zoo:tiny-llm")
    known = transformers.LlamaConfig().to_dict()
    if unknown := sorted(set(configuration) - set(known)):
        raise UsageError(f"LlamaConfig has no entry {unknown[0]!r}; it has: {', '.join(known)}")
    config = transformers.LlamaConfig(**{**_CONFIGURATION, **configuration})
    generator = seeded(seed)
    with torch.random.fork_rng(devices=[]):
        model = transformers.LlamaForCausalLM(config).eval()
    draw_weights(model, generator)
    inputs = decoder_inputs(
        model,
        batch=batch_size,
        sequence=sequence_length2,
        past=sequence_length,
        generator=generator,
    )
    return {
        "model": model,
        "inputs": inputs,
        "dynamic_shapes": _dynamic_shapes(config.num_hidden_layers),
        "configuration": config,
    }


def _dynamic_shapes(layers: int) -> dict[str, Any]:
    keys, values = ([{0: "batch", 2: "cache_length"} for _ in range(layers)] for _ in range(2))
    return {
        "input_ids": {0: "batch", 1: "seq_length"},
        "attention_mask": {0: "batch", 1: "cache+seq"},
        "position_ids": {0: "batch", 1: "seq_length"},
        "past_key_values": [keys, values],
    }
