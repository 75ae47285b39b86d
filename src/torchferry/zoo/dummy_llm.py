"""A decoder written by hand, without transformers, small enough to read all it computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.export import Dim

from torchferry.zoo.weights import draw_weights, seeded

__all__ = ["dummy_llm"]

_VOCABULARY, _WIDTH, _CONTEXT, _HEADS, _INNER = 1024, 16, 256, 2, 128


def dummy_llm(*, dynamic_shapes: bool = False, seed: int = 0) -> tuple[Any, ...]:
    """Build a decoder of one layer: two attention heads, a feed-forward part, two LayerNorms.

    Vocabulary 1024, width 16, at most 256 tokens. It returns hidden states, float32 of shape
    (batch, length, 16).

    Args:
        dynamic_shapes: return them too.
        seed: of the weights and the inputs; PyTorch's global generator is left as it is.

    Returns:
        the model, in eval mode; its inputs, a tuple of ``input_ids``, int64 (2, 30); and, if
        asked for, ``{"input_ids": {0: Dim("batch"), 1: Dim("length")}}``.

    >>> model, inputs = dummy_llm()
    >>> model(*inputs).shape
    torch.Size([2, 30, 16])
    """
    generator = seeded(seed)
    with torch.random.fork_rng(devices=[]):
        model = LLM().eval()
    draw_weights(model, generator)
    inputs = (torch.randint(0, _VOCABULARY, (2, 30), generator=generator),)
    if not dynamic_shapes:
        return model, inputs
    return model, inputs, {"input_ids": {0: Dim("batch"), 1: Dim("length", max=_CONTEXT)}}


class Embedding(nn.Module):
    """Tokens and their positions as vectors."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(_VOCABULARY, _WIDTH)
        self.pe = nn.Embedding(_CONTEXT, _WIDTH)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        embedded: torch.Tensor = self.embedding(input_ids) + self.pe(positions)
        return embedded


class AttentionBlock(nn.Module):
    """One causal head as wide as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.key = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.value = nn.Linear(_WIDTH, _WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        scores = self.query(x) @ self.key(x).transpose(1, 2) / _WIDTH**0.5
        past = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        weights = scores.masked_fill(~past, float("-inf")).softmax(dim=-1)
        seen: torch.Tensor = weights @ self.value(x)
        return seen


class MultiAttentionBlock(nn.Module):
    """Heads side by side, brought back to the width of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.ModuleList(AttentionBlock() for _ in range(_HEADS))
        self.linear = nn.Linear(_HEADS * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = self.linear(torch.cat([h(x) for h in self.attention], dim=-1))
        return joined


class FeedForward(nn.Module):
    """Two linear layers with a ReLU between, each token for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(_WIDTH, _INNER)
        self.relu = nn.ReLU()
        self.linear_2 = nn.Linear(_INNER, _WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.linear_2(self.relu(self.linear_1(x)))
        return hidden


class DecoderLayer(nn.Module):
    """Each part reads a normalised copy and adds what it found."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = MultiAttentionBlock()
        self.feed_forward = FeedForward()
        self.norm_1 = nn.LayerNorm(_WIDTH)
        self.norm_2 = nn.LayerNorm(_WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))
        out: torch.Tensor = x + self.feed_forward(self.norm_2(x))
        return out


class LLM(nn.Module):
    """Tokens in, hidden states out."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.decoder = DecoderLayer()

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = self.decoder(self.embedding(input_ids))
        return hidden
