"""Plain PyTorch modules of everyday: one row each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import nn

from torchferry.zoo.family import Draw, Plain
from torchferry.zoo.modules import image, sequence

__all__ = ["EVERYDAY"]

Length = int | str
"""A number, or the name of a size of the set."""


def _shape(shape: tuple[Length, ...], sizes: Mapping[str, int]) -> list[int]:
    return [sizes[length] if isinstance(length, str) else length for length in shape]


def _real(*shape: Length) -> Draw:
    """Normally distributed."""
    return lambda sizes, generator: torch.randn(_shape(shape, sizes), generator=generator)


def _tokens(high: int, *shape: Length) -> Draw:
    """Integers from 0 to below ``high``."""
    return lambda sizes, generator: torch.randint(high, _shape(shape, sizes), generator=generator)


def _padding(batch: str, length: str) -> Draw:
    """True where a row has ended: every row is one shorter than the one before, the first full."""
    return lambda sizes, _: (
        torch.arange(sizes[length])
        >= (sizes[length] - torch.arange(sizes[batch]).remainder(sizes[length])[:, None])
    )


def _offsets(count: str, length: str) -> Draw:
    """Where the parts of a sequence begin, the second one empty if there are three or more."""

    def make(sizes: Mapping[str, int], _: torch.Generator) -> torch.Tensor:
        offsets = torch.arange(sizes[count]) * sizes[length] // sizes[count]
        if sizes[count] > 2:
            offsets[1] = offsets[2]
        return offsets

    return make


_BATCHES: tuple[dict[str, int], ...] = ({"batch": 3}, {"batch": 5}, {"batch": 1})
_TIMES: tuple[dict[str, int], ...] = (
    {"batch": 3, "time": 11}, {"batch": 2, "time": 7}, {"batch": 1, "time": 13},
)  # fmt: skip
_PICTURES: tuple[dict[str, int], ...] = (
    {"batch": 2, "height": 20, "width": 28}, {"batch": 5, "height": 32, "width": 24},
    {"batch": 1, "height": 12, "width": 36},
)  # fmt: skip
_LISTS: tuple[dict[str, int], ...] = (
    {"lists": 3, "tokens": 14}, {"lists": 5, "tokens": 22}, {"lists": 1, "tokens": 6},
)  # fmt: skip
_PICTURE = ("batch", 3, "height", "width")
_GREY = ("batch", 1, "height", "width")

EVERYDAY = (
    Plain("attention_pool", sequence.AttentionPool, {"x": _real("batch", "time", 16)}, _TIMES),
    Plain("autoencoder", image.Autoencoder, {"image": _real(*_GREY)}, _PICTURES),
    Plain("bilstm_tagger", sequence.Tagger, {"tokens": _tokens(50, "batch", "time")}, _TIMES),
    Plain("convnet", image.ConvNet, {"image": _real(*_PICTURE)}, _PICTURES),
    Plain("conv_transpose", image.Upsampler, {"code": _real("batch", 6, "height", "width")},
          _PICTURES),
    Plain("depthwise", image.DepthwiseNet, {"image": _real(*_PICTURE)}, _PICTURES),
    Plain("dlrm", sequence.Recommender,
          {"dense": _real("batch", 5), "categories": _tokens(20, "batch", 3)}, _BATCHES),
    Plain("embedding_bag", sequence.Bag,
          {"tokens": _tokens(50, "tokens"), "offsets": _offsets("lists", "tokens")}, _LISTS),
    Plain("groupnorm", image.GroupNormNet,
          {"image": _real(*_PICTURE), "time": _real("batch", 8)}, _PICTURES),
    Plain("gru", sequence.GatedState,
          {"x": _real("batch", "time", 8), "state": _real(2, "batch", 16)}, _TIMES),
    # of one length, so that a capture which unrolls the loop over time serves too
    Plain("lstm", partial(nn.LSTM, 8, 16, batch_first=True), {"input": _real("batch", 5, 8)},
          ({"batch": 3}, {"batch": 7}, {"batch": 1})),
    Plain("mlp", sequence.Mlp, {"x": _real("batch", 16)}, _BATCHES),
    Plain("multihead_attention", sequence.MultiheadSelfAttention,
          {"x": _real("batch", "time", 16), "padding_mask": _padding("batch", "time")}, _TIMES),
    Plain("rnn", partial(nn.RNN, 8, 16, batch_first=True), {"input": _real("batch", "time", 8)},
          _TIMES),
    Plain("super_resolution", image.SuperResolution, {"image": _real(*_GREY)}, _PICTURES),
    Plain("tcn", sequence.TemporalConvolution, {"x": _real("batch", 6, "time")}, _TIMES),
    Plain("transformer_encoder", sequence.TextClassifier,
          {"tokens": _tokens(50, "batch", "time"), "padding_mask": _padding("batch", "time")},
          _TIMES),
    Plain("unet", image.UNet, {"image": _real(*_PICTURE)}, _PICTURES),
)  # fmt: skip
