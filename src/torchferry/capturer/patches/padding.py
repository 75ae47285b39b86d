"""Images padded to a multiple of the patch and of the window, in Swin and its relatives.

Upstream pads and crops under an if. A trace takes the way of its example, and the program is
right for images that take the same one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import pad

from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]

_LINK = "https://github.com/pytorch/pytorch/issues/149065"


def _to_patches(_: Callable[..., Any]) -> Callable[..., Any]:
    def maybe_pad(self: Any, pixel_values: torch.Tensor, height: int, width: int) -> torch.Tensor:
        """Pad by 0 where nothing is missing, (batch, channels, height, width)."""
        rows, columns = self.patch_size
        return pad(pixel_values, (0, -width % columns, 0, -height % rows))

    return maybe_pad


def _to_pairs(_: Callable[..., Any]) -> Callable[..., Any]:
    def maybe_pad(
        _self: Any, input_feature: torch.Tensor, height: int, width: int
    ) -> torch.Tensor:
        """Pad by 0 where nothing is missing, (batch, height, width, channels)."""
        return pad(input_feature, (0, 0, 0, width % 2, 0, height % 2))

    return maybe_pad


def _to_windows(_: Callable[..., Any]) -> Callable[..., Any]:
    def maybe_pad(
        self: Any, hidden_states: torch.Tensor, height: int, width: int
    ) -> tuple[torch.Tensor, tuple[int, ...]]:
        """Pad as upstream does, and always have the result cropped: of 0 that changes nothing."""
        size = self.window_size
        missing = (0, 0, 0, -width % size, 0, -height % size)
        return pad(hidden_states, missing), (0, 0, 0, 1, 0, 1)

    return maybe_pad


_EMBEDDINGS, _MERGING, _LAYER = "PatchEmbeddings", "PatchMerging", "Layer"
_SOURCES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    _EMBEDDINGS: (_to_patches, ("7a2ff8eb9ef5", "b7656a027844")),
    _MERGING: (_to_pairs, ("755f30959e35", "716d8553438d")),
    _LAYER: (_to_windows, ("a27edacbcf99", "fe5ad395fad6", "409c5d0aafaf")),
}
_CLASSES = (
    ("swin.modeling_swin.Swin", (_EMBEDDINGS, _MERGING, _LAYER)),
    ("swinv2.modeling_swinv2.Swinv2", (_EMBEDDINGS, _MERGING, _LAYER)),
    ("maskformer.modeling_maskformer_swin.MaskFormerSwin", (_EMBEDDINGS, _MERGING, _LAYER)),
    ("donut.modeling_donut_swin.DonutSwin", (_EMBEDDINGS, _MERGING, _LAYER)),
    ("clap.modeling_clap.ClapAudio", (_MERGING, _LAYER)),
    ("swin2sr.modeling_swin2sr.Swin2SR", (_MERGING, _LAYER)),
)

PATCHES = tuple(
    Patch(
        subject=f"transformers.models.{prefix}{kind}.maybe_pad",
        why="an if on whether the size is a multiple makes the graph right for one side of it",
        link=_LINK,
        replace=_SOURCES[kind][0],
        fingerprints=_SOURCES[kind][1],
        silent=True,
    )
    for prefix, kinds in _CLASSES
    for kind in kinds
)
"""One a class and method."""
