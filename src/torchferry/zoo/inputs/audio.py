"""Sound: raw waveforms with a mask."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from torchferry.zoo.inputs.text import Inputs

__all__ = ["waveform_sets"]

_SIZES = ((3, 700, ()), (2, 840, (0, 300)), (1, 520, ()))
_STEP = 20  # samples of a frame, of a model that takes these sizes


def waveform_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """``input_values`` (batch, samples) and ``attention_mask`` of the same shape.

    The second set is padded on the right, with zeros.

    Args:
        model: whose strides say how many samples make a frame.
        generator: where the samples come from.
    """
    config: Any = getattr(model, "config", None)
    more = math.prod(getattr(config, "conv_stride", None) or [_STEP]) // _STEP or 1
    sets = []
    for batch, samples, padding in _SIZES:
        values = torch.randn(batch, samples * more, generator=generator)
        mask = torch.ones(batch, samples * more, dtype=torch.int64)
        for row, count in enumerate(padding):
            mask[row, (samples - count) * more :] = 0
        sets.append({"input_values": values * mask, "attention_mask": mask})
    return sets
