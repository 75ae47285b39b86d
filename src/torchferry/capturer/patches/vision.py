"""Images inside a text: what a vision-language model does image by image, for all of them at once.

The vision parts of LLaVA and Qwen-VL turn sizes and tensors into Python lists, one entry an image
or a window: their number becomes a constant, or cannot be known at all. What they compute follows
from ``grid_thw`` by arithmetic on tensors, and attention within segments is attention with a mask.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES", "Layout", "same_segment"]

_LINK = "https://github.com/huggingface/transformers/blob/main/src/transformers/vision_utils.py"
_JOINED = "pooler_output"


class Layout:
    """Where each patch of some packed images or videos stands.

    Patches follow one another image by image, frame by frame, then in squares of ``merge`` by
    ``merge`` that become one token of the text, row by row of squares.

    Args:
        grid_thw: frames, rows and columns of each image, shape (images, 3), integers.
        length: how many patches there are together.
        merge: the side of a square.
    """

    def __init__(self, grid_thw: Tensor, length: Any, merge: int) -> None:
        self.merge, self.length = merge, length
        ends = grid_thw.prod(1).cumsum(0)
        self.patches = torch.arange(length, device=grid_thw.device)
        image = torch.searchsorted(ends, self.patches, right=True)
        _, rows, columns = grid_thw[image].unbind(1)
        start = pad(ends, (1, 0))[image]
        self.columns, area = columns, rows * columns
        self.frame_start = start + (self.patches - start) // area * area
        self.within = self.patches - self.frame_start

    def positions(self) -> Tensor:
        """Row and column of each patch in its image, shape (patches, 2), int64."""
        square, inside = self.within // self.merge**2, self.within % self.merge**2
        across = self.columns // self.merge
        rows = square // across * self.merge + inside // self.merge
        columns = square % across * self.merge + inside % self.merge
        return torch.stack([rows, columns], -1)

    def frames(self) -> Tensor:
        """Bounds of the frames, ascending, shape (patches + 1,), int32; most stand there often."""
        return _bounds(self.frame_start, self.length)

    def windows(self, side: int) -> tuple[Tensor, Tensor]:
        """The tokens in the order of their windows, and the bounds of these in patches.

        Args:
            side: of a window, in tokens; at the lower and right border they are smaller.

        Returns:
            ``window_index``, shape (tokens,), int64, and bounds as `frames` gives them, shape
            (tokens + 1,).
        """
        unit = self.merge**2
        square = self.within[::unit] // unit
        across = self.columns[::unit] // self.merge
        windows_across = (across + side - 1) // side
        window = square // across // side * windows_across + square % across // side
        # A frame has no more windows than tokens, so its first token numbers them apart.
        number, order = torch.sort(self.frame_start[::unit] // unit + window, stable=True)
        starts = torch.searchsorted(number, number) * unit
        return order, _bounds(starts, self.length)


def _bounds(starts: Tensor, length: Any) -> Tensor:
    return torch.cat([starts, starts.new_full((1,), length)]).to(torch.int32)


def same_segment(bounds: Tensor, length: Any) -> Tensor:
    """Which patches belong together: (length, length), bool.

    Args:
        bounds: of the segments, ascending; a bound may stand there more than once.
        length: how many patches there are.
    """
    places = torch.arange(length, dtype=bounds.dtype, device=bounds.device)
    segment = torch.searchsorted(bounds, places, right=True)
    return segment[:, None] == segment


def _laid_out(original: Callable[..., Any]) -> Callable[..., Any]:
    def forward(self: Any, hidden_states: Tensor, grid_thw: Tensor, **kwargs: Any) -> Any:
        """With what upstream computes from ``grid_thw`` given, as it may be."""
        layout = Layout(grid_thw, hidden_states.shape[0], self.spatial_merge_size)
        given = {"position_ids": layout.positions(), "cu_seqlens": layout.frames()}
        if hasattr(self, "window_size"):
            side = self.window_size // self.spatial_merge_size // self.patch_size
            given["window_index"], given["cu_window_seqlens"] = layout.windows(side)
        return original(self, hidden_states, grid_thw, **{**given, **kwargs})

    return forward


def _masked(_: Callable[..., Any]) -> Callable[..., Any]:
    def forward(
        self: Any,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        max_seqlen: int | None = None,
        **_: Any,
    ) -> Tensor:
        """One attention with a mask for those within segments."""
        del max_seqlen  # for flash attention, which has no ONNX form
        length = hidden_states.shape[0]
        qkv = self.qkv(hidden_states).reshape(length, 3, self.num_heads, -1).transpose(0, 1)
        rotate = sys.modules[type(self).__module__].apply_rotary_pos_emb_vision
        query, key = rotate(qkv[0], qkv[1], *position_embeddings)
        query, key, value = (one.transpose(0, 1).unsqueeze(0) for one in (query, key, qkv[2]))
        mask = same_segment(cu_seqlens, length)
        found = scaled_dot_product_attention(query, key, value, mask, scale=self.scaling)
        joined: Tensor = self.proj(found[0].transpose(0, 1).reshape(length, -1))
        return joined

    return forward


def _unsplit(original: Callable[..., Any]) -> Callable[..., Any]:
    from transformers.utils import generic

    signature = inspect.signature(original)
    video = "pixel_values_videos" in signature.parameters

    def features(*args: Any, **kwargs: Any) -> Any:
        """The features of all images as one entry of the tuple; upstream has one an image."""
        bound = signature.bind(*args, **kwargs)
        self, pixels, grid, *_ = bound.arguments.values()
        outputs = self.visual(pixels.type(self.visual.dtype), grid_thw=grid, **bound.kwargs)
        outputs.pooler_output = (outputs.pooler_output,)
        return outputs

    features.__signature__ = signature  # type: ignore[attr-defined]  # read by the decorators
    accepts = generic.accepts_precomputed_kwargs("video" if video else "image")
    decorated: Callable[..., Any] = accepts(generic.can_return_tuple(features))
    return decorated


def _unlisted(original: Callable[..., Any]) -> Callable[..., Any]:
    names = inspect.unwrap(original).__globals__

    def features(*args: Any, **kwargs: Any) -> Any:
        """With a ``list`` that leaves the images of a batch together."""
        names["list"] = _together
        try:
            return original(*args, **kwargs)
        finally:
            del names["list"]

    return features


def _together(items: Any = ()) -> list[Any]:
    if isinstance(items, Tensor) and items.ndim == 3:
        return [items.flatten(0, 1)]
    return list(items)


_QWEN = (
    ("qwen2_vl", "Qwen2VLModel", "Qwen2VisionTransformerPretrainedModel", "VisionAttention"),
    ("qwen2_5_vl", "Qwen2_5_VLModel", "Qwen2_5_VisionTransformerPretrainedModel",
     "Qwen2_5_VLVisionAttention"),
)  # fmt: skip


def _qwen(name: str, model: str, vision: str, attention: str) -> tuple[Patch, ...]:
    module = f"transformers.models.{name}.modeling_{name}"
    rows = (
        (f"{vision}.forward", "sizes and positions are read out of grid_thw as Python numbers",
         _laid_out, "", ("0cd7572c46a3", "d86af982c45f")),
        (f"{attention}.forward", "the lengths of segments are read out as Python numbers",
         _masked, "", ("ae6fe90b254c",)),
        (f"{model}.get_image_features", "an output has as many entries as there are images",
         _unsplit, _JOINED, ("0fd83a7d9c98",)),
        (f"{model}.get_video_features", "an output has as many entries as there are videos",
         _unsplit, _JOINED, ("ab9710fe0ea1",)),
    )  # fmt: skip
    return tuple(
        Patch(
            subject=f"{module}.{subject}",
            why=why,
            link=_LINK,
            replace=replace,
            joins=joins,
            fingerprints=digits,
        )
        for subject, why, replace, joins, digits in rows
    )


PATCHES = (
    *(patch for row in _QWEN for patch in _qwen(*row)),
    Patch(
        subject="transformers.models.llava.modeling_llava.LlavaModel.get_image_features",
        why="an output has as many entries as there are images, which fixes their number",
        link=_LINK,
        replace=_unlisted,
        joins=_JOINED,
        fingerprints=("b94dbbb81f68",),
    ),
)
"""For each model: what lays its patches out, what attends, what lists the images."""
