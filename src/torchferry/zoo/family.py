"""What one row of the tables in `torchferry.zoo.families` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from torchferry.zoo.library import OLDEST

__all__ = ["SIZES", "Draw", "Family", "Plain"]

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""What a configuration gets of these, under its own names, if its row does not say otherwise."""


@dataclass(frozen=True)
class Family:
    """An architecture of transformers, made small.

    Attributes:
        name: what follows ``zoo:``.
        tasks: what it is built for, the default first; keys of `torchferry.zoo.states.TASKS`.
        kind: ``model_type`` of its configuration, where that is not the name.
        sizes: entries of the configuration that differ from `SIZES`, nested as it is.
        images: (batch, height, width) of three sets of images; without, the configuration's.
        since: the oldest transformers that has it in the form that can be exported.
    """

    name: str
    tasks: tuple[str, ...]
    kind: str = ""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    images: tuple[tuple[int, int, int], ...] = ()
    since: str = OLDEST


Draw = Callable[[Mapping[str, int], torch.Generator], Any]
"""Makes one input from the sizes of a set."""


@dataclass(frozen=True)
class Plain:
    """A module of plain PyTorch, without transformers.

    Attributes:
        name: what follows ``zoo:``.
        factory: makes it.
        inputs: arguments of ``forward`` by name, each a function of the set's sizes.
        sets: the sizes of three sets or more: ``{"batch": 3, "length": 7}``.
    """

    name: str
    factory: Callable[[], nn.Module]
    inputs: Mapping[str, Draw]
    sets: tuple[Mapping[str, int], ...]
