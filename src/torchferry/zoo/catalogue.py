"""The models that ``zoo:NAME`` stands for.

Each comes with input sets of different sizes, so that what is dynamic can be seen from them. In
the first set no two dimensions are equal by accident.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from torchferry.errors import UsageError
from torchferry.zoo.library import import_transformers
from torchferry.zoo.tasks import decoder_inputs, encoder_inputs, image_inputs
from torchferry.zoo.tiny_llm import get_tiny_llm
from torchferry.zoo.weights import draw_weights, seeded

__all__ = ["ZooModel", "build", "names"]


@dataclass(frozen=True)
class ZooModel:
    """A model in eval mode with inputs to run it on.

    Attributes:
        name: what follows ``zoo:``.
        model: the module; its weights are random, drawn so that activations are of order 1.
        input_sets: keyword arguments of ``forward``, two or more sets of different sizes.
    """

    name: str
    model: nn.Module
    input_sets: list[dict[str, Any]]


class _Mlp(nn.Module):
    """Two linear layers around a GELU and a normalisation: (batch, 16) → (batch, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.outer = nn.Linear(32, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(torch.nn.functional.gelu(self.inner(x)))
        result: torch.Tensor = self.outer(hidden)
        return result


def _make(factory: Callable[[], nn.Module], generator: torch.Generator) -> nn.Module:
    """Make a module without touching PyTorch's global generator, and draw its weights."""
    with torch.random.fork_rng(devices=[]):
        model = factory().eval()
    draw_weights(model, generator)
    return model


def _mlp() -> tuple[nn.Module, list[dict[str, Any]]]:
    generator = seeded(0)
    model = _make(_Mlp, generator)
    return model, [{"x": torch.randn(batch, 16, generator=generator)} for batch in (3, 5, 1)]


def _lstm() -> tuple[nn.Module, list[dict[str, Any]]]:
    generator = seeded(0)
    model = _make(lambda: nn.LSTM(8, 16, batch_first=True), generator)
    # the loop over time has a fixed length, so that only the batch varies
    sets = [{"input": torch.randn(batch, 5, 8, generator=generator)} for batch in (3, 7)]
    return model, sets


def _tiny_llm() -> tuple[nn.Module, list[dict[str, Any]]]:
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


def _tiny_bert() -> tuple[nn.Module, list[dict[str, Any]]]:
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


def _tiny_vit() -> tuple[nn.Module, list[dict[str, Any]]]:
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


def _tiny_resnet() -> tuple[nn.Module, list[dict[str, Any]]]:
    transformers = import_transformers("zoo:tiny-resnet")
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic"
    )
    generator = seeded(0)
    model = _make(lambda: transformers.ResNetModel(config), generator)
    sizes = ((2, 40, 56), (5, 64, 48), (1, 48, 72))
    return model, [image_inputs(model, *size, generator=generator) for size in sizes]


_BUILDERS: dict[str, Callable[[], tuple[nn.Module, list[dict[str, Any]]]]] = {
    "lstm": _lstm,
    "mlp": _mlp,
    "tiny-bert": _tiny_bert,
    "tiny-llm": _tiny_llm,
    "tiny-resnet": _tiny_resnet,
    "tiny-vit": _tiny_vit,
}


def names() -> list[str]:
    """Return the names that `build` knows, sorted.

    >>> names()
    ['lstm', 'mlp', 'tiny-bert', 'tiny-llm', 'tiny-resnet', 'tiny-vit']
    """
    return sorted(_BUILDERS)


def build(name: str) -> ZooModel:
    """Build a model and its inputs; the same name gives the same numbers every time.

    Raises:
        UsageError: there is no such model, or it needs transformers and that is not installed.
    """
    builder = _BUILDERS.get(name)
    if builder is None:
        close = get_close_matches(name.lower().replace("_", "-"), _BUILDERS)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UsageError(f"the zoo has no model {name!r}; {hint}It has: {', '.join(names())}")
    model, input_sets = builder()
    return ZooModel(name, model, input_sets)
