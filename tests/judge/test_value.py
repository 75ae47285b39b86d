from __future__ import annotations

import math

import pytest
import torch

from torchferry.judge.value import difference_of


def test_a_complex_value_is_compared_with_pairs():
    expected = torch.tensor([1 + 2j])
    assert difference_of(expected, torch.tensor([[1.0, 2.5]])).abs == 0.5
    assert difference_of(expected, expected).abs == 0


def test_what_could_not_be_computed_is_infinitely_far_off():
    found = difference_of(torch.ones(2), None)
    assert (found.abs, found.reason) == (math.inf, "it could not be computed")


def test_a_mask_is_no_scale():
    masked = torch.tensor([[1.0, 2.0, -1e9], [0.5, -1.0, -1e9]])
    assert difference_of(masked, masked + torch.tensor([0.1, 0.0, 0.0])).scale == 2.0
    # One place, or places that are not the same on both sides, are numbers like others.
    assert difference_of(masked[:1], masked[:1]).scale == pytest.approx(1e9)
    assert difference_of(masked, masked * 1.001).scale == pytest.approx(1e9)
    steps = torch.tensor([1.0, 100.0, 5000.0, 5000.0])
    assert difference_of(steps, steps).scale == 5000.0
    same = torch.full((3,), 1e9)
    assert difference_of(same, same).scale == pytest.approx(1e9)
