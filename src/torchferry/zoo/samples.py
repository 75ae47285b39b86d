"""Four small models of transformers to begin with, made by hand.

In the first input set no two dimensions are equal by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from torchferry.zoo.library import import_transformers
from torchferry.zoo.tasks import decoder_inputs, encoder_inputs, image_inputs
from torchferry.zoo.tiny_llm import get_tiny_llm
from torchferry.zoo.weights import draw_weights, seeded

__all__ = ["SAMPLES"]

Sample = tuple[nn.Module, list[dict[str, Any]]]


def _make(factory: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """Make a module without touching PyTorch's global generator, and draw its weights."""
    with torch.random.fork_rng(devices=[]):
        model = factory().eval()
    draw_weights(model, generator)
    return model


def _tiny_llm() -> Sample:
    made = get_tiny_llm()
    model: nn.Module = made["model"]
    generator = seeded(1)
    return model, [
        made["inputs"],
        decoder_inputs(
            model, batch=3, sequence=5, past=17, generator=generator, padding=(0, 4, 9)
        ),
        decoder_inputs(model, batch=1, sequence=1, past=12, generator=generator),
    ]


def _tiny_bert() -> Sample:
    transformers = import_transformers("zoo:tiny-bert")
    config = transformers.BertConfig(
        vocab_size=1000,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=128,
    )
    generator = seeded(0)
    model = _make(lambda: transformers.BertModel(config), generator)
    return model, [
        encoder_inputs(model, batch=3, sequence=9, generator=generator),
        encoder_inputs(model, batch=2, sequence=14, generator=generator, padding=(0, 5)),
        encoder_inputs(model, batch=1, sequence=6, generator=generator),
    ]


def _tiny_vit() -> Sample:
    transformers = import_transformers("zoo:tiny-vit")
    config = transformers.ViTConfig(
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        image_size=32,
        patch_size=8,
    )
    generator = seeded(0)
    model = _make(lambda: transformers.ViTModel(config), generator)
    sizes = ((2, 32, 32), (5, 32, 32))
    return model, [image_inputs(model, *size, generator=generator) for size in sizes]


def _tiny_resnet() -> Sample:
    transformers = import_transformers("zoo:tiny-resnet")
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    )
    generator = seeded(0)
    model = _make(lambda: transformers.ResNetModel(config), generator)
    sizes = ((2, 40, 56), (5, 64, 48), (1, 48, 72))
    return model, [image_inputs(model, *size, generator=generator) for size in sizes]


SAMPLES: dict[str, Callable[[], Sample]] = {
    "tiny-bert": _tiny_bert,
    "tiny-llm": _tiny_llm,
    "tiny-resnet": _tiny_resnet,
    "tiny-vit": _tiny_vit,
}
"""What makes a model and its input sets, by name."""
