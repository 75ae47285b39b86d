from __future__ import annotations

import math

import pytest
import torch

from torchferry.comparer.explain.channels import channel_difference
from torchferry.judge.value import difference_of

RIGHT = torch.tensor([[1e3, 1.0, -2.0, 3.0], [2e3, -2.0, 1.0, -1.0]])


def test_a_wrong_channel_beside_a_large_one_has_a_scale_of_its_own():
    got = RIGHT + torch.tensor([[0.1, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.05]])
    found = channel_difference(RIGHT, got)
    assert difference_of(RIGHT, got).scale == 2000
    assert found.abs == pytest.approx(0.05)
    assert found.scale == 3.0
    assert found.argm == (1, 3)


def test_a_channel_near_zero_has_the_scale_of_its_like():
    right = RIGHT.clone()
    right[:, 1] = 1e-3
    assert channel_difference(right, right + 1e-6).scale == pytest.approx(2.0)


def test_masks_and_infinities_are_no_scale():
    lowest = torch.finfo(torch.float32).min
    right = torch.tensor([[1.0, lowest, -math.inf, 2.0]])
    assert channel_difference(right, right).scale == 2.0
    assert channel_difference(right, right).abs == 0


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (torch.ones(3), torch.ones(3) * 2),
        (torch.tensor(1.0), torch.tensor(2.0)),
        (torch.ones(0, 3), torch.ones(0, 3)),
        (torch.ones(2, 0), torch.ones(2, 0)),
        (torch.ones(2, 3), None),
        (torch.ones(2, 3), torch.ones(3, 2)),
        (torch.ones(2, 3), torch.ones(2, 3).double()),
        (torch.ones(2, 3), torch.full((2, 3), math.nan)),
        (torch.ones(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.int64)),
        (torch.ones(2, 3, dtype=torch.bool), torch.zeros(2, 3, dtype=torch.bool)),
        (torch.ones(2, dtype=torch.complex64), torch.ones(2, 2)),
    ],
)
def test_what_has_no_channels_of_numbers_is_compared_as_a_whole(expected, got):
    assert channel_difference(expected, got) == difference_of(expected, got)
