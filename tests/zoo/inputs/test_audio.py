from __future__ import annotations

import torch
from torch import nn

from torchferry.zoo.inputs.audio import waveform_sets
from torchferry.zoo.weights import seeded


def test_padding_is_silent_and_on_the_right() -> None:
    sets = waveform_sets(nn.Identity(), seeded(0))
    assert [inputs["input_values"].shape[0] for inputs in sets] == [3, 2, 1]
    for inputs in sets:
        values, mask = inputs["input_values"], inputs["attention_mask"]
        assert values.shape == mask.shape
        assert torch.equal(mask == 0, values == 0)
    assert sets[1]["attention_mask"].sum(1).tolist() == [840, 540]
    assert sets[1]["attention_mask"][1, :540].all()
