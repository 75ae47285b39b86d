"""Sound padded for a strided convolution, in EnCodec and its relatives.

Upstream computes how much is missing from a size and constant buffers, in a tensor, and pads by
the value of that: data decides, for a trace. It is arithmetic on the size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from torchferry.capturer.patching.patch import Patch

__all__ = ["PATCHES"]

_LINK = "https://docs.pytorch.org/docs/2.13/export.html#limitations-of-torch-export"
_CLASSES = (
    "encodec.modeling_encodec.Encodec", "mimi.modeling_mimi.Mimi",
    "wavtokenizer.modeling_wavtokenizer.WavTokenizer",
    "pocket_tts_audio_tokenizer.modeling_pocket_tts_audio_tokenizer.PocketTTSAudioTokenizer",
)  # fmt: skip


def _missing(_: Callable[..., Any]) -> Callable[..., Any]:
    def get_extra_padding(self: Any, hidden_states: Tensor) -> Any:
        """The padding to a whole number of steps of the convolution."""
        (size,), (stride,), (dilation,) = (
            self.conv.kernel_size, self.conv.stride, self.conv.dilation,
        )  # fmt: skip
        kernel = (size - 1) * dilation + 1
        return -(hidden_states.shape[-1] - kernel + (kernel - stride)) % stride

    return get_extra_padding


def _padded(_: Callable[..., Any]) -> Callable[..., Any]:
    def pad_both(  # upstream it is static; a function that stands in its place is bound
        _self: Any,
        hidden_states: Tensor,
        paddings: tuple[Any, Any],
        mode: str = "zero",
        value: float = 0.0,
    ) -> Tensor:
        """Pad by integers; of what is too short to be reflected, zeros to the right first."""
        left, right = (int(n) if isinstance(n, Tensor) else n for n in paddings)
        if mode != "reflect":
            return pad(hidden_states, (left, right), mode, value)
        largest: Callable[[Any, Any], Any] = torch.sym_max
        extra = largest(largest(left, right) - hidden_states.shape[-1] + 1, 0)
        padded = pad(pad(hidden_states, (0, extra)), (left, right), mode, value)
        return padded[..., : padded.shape[-1] - extra]

    return pad_both


def _patches(cls: str) -> tuple[Patch, ...]:
    rows = (
        ("_get_extra_padding_for_conv1d", _missing, "66f1e031cd65"),
        ("_pad1d", _padded, "a74b2090a0e3"),
    )
    return tuple(
        Patch(
            subject=f"transformers.models.{cls}Conv1d.{name}",
            why="the padding follows from a size, and is read out of a tensor",
            link=_LINK,
            replace=replace,
            fingerprints=(digits,),
        )
        for name, replace, digits in rows
    )


PATCHES = tuple(patch for cls in _CLASSES for patch in _patches(cls))
"""All of them."""
