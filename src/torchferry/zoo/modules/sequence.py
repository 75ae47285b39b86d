"""Modules over sequences and tables: text, sensor data, clicks."""

from __future__ import annotations

import torch
from torch import nn

__all__ = [
    "AttentionPool",
    "Bag",
    "GatedState",
    "Mlp",
    "MultiheadSelfAttention",
    "Recommender",
    "Tagger",
    "TemporalConvolution",
    "TextClassifier",
]

Tensor = torch.Tensor


class Mlp(nn.Module):
    """Two linear layers around a GELU and a normalisation: (batch, 16) → (batch, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32)
        self.outer = nn.Linear(32, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Classify a row."""
        hidden = self.norm(nn.functional.gelu(self.inner(x)))
        result: Tensor = self.outer(hidden)
        return result


class GatedState(nn.Module):
    """A GRU that is given its state and returns it: (batch, time, 8) and (2, batch, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 16, num_layers=2, batch_first=True)

    def forward(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """Continue from a state."""
        outputs, state = self.gru(x, state)
        return outputs, state


class Tagger(nn.Module):
    """Tokens through an embedding and an LSTM in both directions: a label for each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 12)
        self.lstm = nn.LSTM(12, 10, batch_first=True, bidirectional=True)
        self.head = nn.Linear(20, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Label (batch, time) tokens: (batch, time, 5)."""
        hidden, _ = self.lstm(self.embedding(tokens))
        labels: Tensor = self.head(hidden)
        return labels


class TextClassifier(nn.Module):
    """``nn.TransformerEncoder`` with a padding mask, averaged over the tokens that are real."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.positions = nn.Embedding(64, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 24, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def forward(self, tokens: Tensor, padding_mask: Tensor) -> Tensor:
        """Classify (batch, time) tokens; the mask is true where a token is padding."""
        place = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.embedding(tokens) + self.positions(place)
        hidden = self.encoder(hidden, src_key_padding_mask=padding_mask)
        real = (~padding_mask).unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * real).sum(1) / real.sum(1).clamp(min=1)
        labels: Tensor = self.head(mean)
        return labels


class MultiheadSelfAttention(nn.Module):
    """``nn.MultiheadAttention`` of a sequence with itself, causal and padded; weights too."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Attend within (batch, time, 16); the mask is true where a step is padding."""
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        mixed, weights = self.attention(
            x, x, x, key_padding_mask=padding_mask, attn_mask=later, need_weights=True
        )
        return mixed, weights


class AttentionPool(nn.Module):
    """``scaled_dot_product_attention`` of learned queries over a sequence of any length."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(3, 16))
        self.key_value = nn.Linear(16, 32)

    def forward(self, x: Tensor) -> Tensor:
        """Summarize (batch, time, 16) as (batch, 3, 16)."""
        key, value = self.key_value(x).chunk(2, dim=-1)
        query = self.queries.expand(x.shape[0], -1, -1)
        return nn.functional.scaled_dot_product_attention(query, key, value)


class Bag(nn.Module):
    """``nn.EmbeddingBag`` with offsets: token lists of different lengths, end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(50, 12, mode="mean")
        self.head = nn.Linear(12, 4)

    def forward(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        """Classify the lists that begin at the offsets: (lists, 4)."""
        labels: Tensor = self.head(self.bag(tokens, offsets))
        return labels


class Recommender(nn.Module):
    """Dense and categorical features that interact by dot products, as in DLRM."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(size, 8) for size in (20, 30, 40))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, categories: Tensor) -> Tensor:
        """Score (batch, 5) numbers with (batch, 3) categories: (batch,), from 0 to 1."""
        features = [self.bottom(dense)]
        features += [table(categories[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack(features, 1)
        products = stacked @ stacked.transpose(1, 2)
        row, column = torch.tril_indices(4, 4, offset=-1)
        joined = torch.cat([features[0], products[:, row, column]], 1)
        score: Tensor = self.top(joined).squeeze(-1).sigmoid()
        return score


class TemporalConvolution(nn.Module):
    """Dilated causal convolutions with residuals: (batch, 6, time) → (batch, 4, time)."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv1d(6, 12, 1)
        self.layers = nn.ModuleList(nn.Conv1d(12, 12, 3, dilation=2**i) for i in range(3))
        self.leave = nn.Conv1d(12, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Predict from what came before."""
        hidden = self.enter(x)
        for number, layer in enumerate(self.layers):
            past = nn.functional.pad(hidden, (2 * 2**number, 0))
            hidden = hidden + nn.functional.relu(layer(past))
        result: Tensor = self.leave(hidden)
        return result
