"""Sound: raw waveforms with a mask."""

from __future__ import annotations

import torch
from torch import nn

from torchferry.zoo.inputs.text import Inputs

__all__ = ["waveform_sets"]

_SIZES = ((3, 700, ()), (2, 840, (0, 300)), (1, 520, ()))


def waveform_sets(model: nn.Module, generator: torch.Generator) -> list[Inputs]:
    """``input_values`` (batch, samples) and ``attention_mask`` of the same shape.

    The second set is padded on the right, with zeros.

    Args:
        model: not looked at: every model of raw sound takes the same.
        generator: where the samples come from.
    """
    del model
    sets = []
    for batch, samples, padding in _SIZES:
        values = torch.randn(batch, samples, generator=generator)
        mask = torch.ones(batch, samples, dtype=torch.int64)
        for row, count in enumerate(padding):
            mask[row, samples - count :] = 0
        sets.append({"input_values": values * mask, "attention_mask": mask})
    return sets
