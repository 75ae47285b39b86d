"""How like two models' outputs are, for models that generate no text: cosines of vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

__all__ = ["Feeds", "Likeness", "Outputs", "compare_outputs", "text_feeds"]

Feeds = Mapping[str, torch.Tensor]
"""Inputs of a graph by name."""
Outputs = Mapping[str, torch.Tensor]
"""Outputs of a model by name."""
_SENTENCES = 6
_MAIN = ("sentence_embedding", "logits")
"""What a model with such an output is used for; others are compared in all outputs."""


@dataclass(frozen=True)
class Likeness:
    """How near a model is to the reference, over the vectors of its main output, or of all.

    Attributes:
        vectors: how many were compared: the last axis of an output is one, padding left out.
        mean: cosine.
        least: cosine of the pair that is least alike.
        largest: the largest difference of a number.
    """

    vectors: int
    mean: float
    least: float
    largest: float

    limits: ClassVar[Mapping[str, float]] = {"fp32": 1e-5, "fp16": 1e-3, "bf16": 1e-2, "int8": 0.1}

    @property
    def distance(self) -> float:
        """What ``limits`` are held against: 1 less the least cosine."""
        return 1 - self.least

    @property
    def cells(self) -> dict[str, str]:
        """The figures of a table, by heading."""
        return {
            "cosine": f"{self.mean:.5f}",
            "least cosine": f"{self.least:.5f}",
            "largest difference": f"{self.largest:.2g}",
        }

    @property
    def note(self) -> str:
        """What the figures are of."""
        return f"Over {self.vectors} vectors, beside PyTorch's."


def text_feeds(tokenizer: Any, texts: Sequence[str], names: Sequence[str]) -> list[Feeds]:
    """A sentence alone, and some of different lengths side by side.

    Args:
        tokenizer: of transformers.
        texts: to take sentences of.
        names: the inputs that the graph has.
    """
    sentences = [text.split(".")[0] for text in texts][:_SENTENCES]
    batches: list[Feeds] = []
    for chosen in (sentences[:1], sentences):
        encoded = dict(tokenizer(chosen, padding=True, truncation=True, return_tensors="pt"))
        # The model's default where the tokenizer has none; the written one declares them.
        encoded.setdefault("token_type_ids", torch.zeros_like(encoded["input_ids"]))
        batches.append({name: encoded[name] for name in names if name in encoded})
    return batches


def compare_outputs(
    ours: Sequence[Outputs], theirs: Sequence[Outputs], feeds: Sequence[Feeds]
) -> Likeness:
    """Compare the outputs that both sides have, set by set.

    Args:
        ours: of a graph, for each set of inputs.
        theirs: of the reference.
        feeds: the inputs; vectors of tokens that the mask leaves out are not compared.
    """
    cosines, largest = [], 0.0
    for mine, other, fed in zip(ours, theirs, feeds, strict=True):
        main = [name for name in _MAIN if name in other and name in mine]
        for name in main or [name for name in other if name in mine]:
            a, b = mine[name].double(), other[name].double()
            mask = fed.get("attention_mask")
            if mask is not None and a.shape[:-1] == mask.shape:
                a, b = a[mask.bool()], b[mask.bool()]
            a, b = (x.reshape(-1, x.shape[-1] if x.ndim > 1 else 1) for x in (a, b))
            largest = max(largest, float((a - b).abs().max()))
            cosine = torch.nn.functional.cosine_similarity(a, b, dim=-1)
            cosines.append(cosine.where((a != b).any(-1), 1))  # of zeros it would be 0
    every = torch.cat(cosines) if cosines else torch.tensor([float("nan")])
    return Likeness(sum(map(len, cosines)), float(every.mean()), float(every.min()), largest)
