"""Models of two towers, as CLIP: texts and images as vectors, and how near these are."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

__all__ = ["TwoTowers"]

_OUTPUTS = ("logits_per_image", "logits_per_text", "text_embeds", "image_embeds")
"""As optimum and transformers.js name them; what is inside of the towers nobody reads."""


class TwoTowers(nn.Module):
    """A model of transformers that gives the vectors and logits alone."""

    def __init__(self, model: Any) -> None:
        """Take a CLIPModel, a SiglipModel, or one like them."""
        super().__init__()
        self.encoder = model

    def forward(
        self,
        input_ids: torch.Tensor,
        pixel_values: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """``logits_per_image`` (images, texts), its transpose, and both towers' vectors."""
        outputs = self.encoder(
            input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask
        )
        return {name: outputs[name] for name in _OUTPUTS}
