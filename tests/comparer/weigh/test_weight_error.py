"""Differences of tensors: rounding is none, one element is one."""

import math

import pytest
import torch

from torchferry.comparer.weigh import weight_error
from torchferry.comparer.weigh.dequantize import Stored
from torchferry.comparer.weigh.weight_error import channel_scales, measure


@pytest.fixture
def weight():
    return torch.randn(6, 5, generator=torch.Generator().manual_seed(0))


def test_equal_tensors_and_empty_ones(weight):
    assert measure(weight, weight.numpy()) is None
    assert measure(weight.T, weight.T.numpy()) is None
    assert measure(torch.empty(0, 3), torch.empty(0, 3).numpy()) is None
    assert measure(torch.tensor(3), torch.tensor(3).numpy()) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_rounding_is_no_difference(weight, dtype):
    weight = torch.cat([weight, weight * 1e-6, torch.zeros(1, 5)])
    assert measure(weight, weight.to(dtype)) is None
    assert measure(weight.to(dtype), weight) is None
    wrong = weight.to(dtype).float()
    wrong[2, 3] *= 1.5
    assert measure(weight, wrong.to(dtype)).position == (2, 3)


def test_what_a_float16_file_cannot_hold():
    masked = torch.tensor([-1e9, 1e9, 1e-9, 1.0])
    assert measure(masked, torch.tensor([-1e4, 65504, 1e-7, 1.0], dtype=torch.float16)) is None
    assert measure(masked, torch.tensor([1e4, 65504, 1e-7, 1.0], dtype=torch.float16)).wrong == 1


@pytest.mark.parametrize("at_once", [1, 7, 2**22])
def test_one_element(weight, at_once, monkeypatch):
    monkeypatch.setattr(weight_error, "_AT_ONCE", at_once)
    other = weight.clone()
    other[4, 1] += 0.25
    error = measure(weight, other.numpy())
    assert (error.wrong, error.size, error.position) == (1, 30, (4, 1))
    assert (error.expected, error.got) == (float(weight[4, 1]), float(other[4, 1]))
    assert error.abs == pytest.approx(0.25)
    assert error.similar
    assert measure(weight, other.numpy(), atol=0.3) is None
    assert measure(weight, -other.numpy()).similar is False
    scalar = measure(torch.tensor(2.0), torch.tensor(3.0).numpy())
    assert (scalar.position, scalar.abs) == ((), 1.0)


def test_nan_and_infinity(weight):
    other = weight.clone()
    weight[0, 0] = other[0, 0] = math.nan
    weight[1, 1] = other[1, 1] = -math.inf
    assert measure(weight, other) is None
    other[3, 2] = math.nan
    error = measure(weight, other)
    assert (error.wrong, error.position, error.abs) == (1, (3, 2), math.inf)
    other[3, 2] = weight[3, 2]
    other[1, 1] = math.inf
    assert measure(weight, other).position == (1, 1)


def test_integers_are_exact():
    whole = torch.arange(6) + 2**40
    other = whole.clone()
    assert measure(whole, other) is None
    other[5] += 1
    assert measure(whole, other).position == (5,)
    assert measure(torch.tensor([True, False]), torch.tensor([True, True])).wrong == 1


def test_quantized_numbers_have_slack(weight):
    step = 0.1
    rounded = (weight / step).round() * step
    slack = torch.full_like(weight, step / 2 * 1.001)
    assert measure(weight, Stored(rounded, slack)) is None
    rounded[1, 2] += step
    assert measure(weight, Stored(rounded, slack)).position == (1, 2)


@pytest.mark.parametrize("axis", [0, 1])
def test_scaled_channels(weight, axis):
    scales = torch.rand(6 if axis == 0 else 5, dtype=torch.float64) + 0.5
    shape = (-1, 1) if axis == 0 else (1, -1)
    scaled = (weight * scales.reshape(shape)).float()
    scaled[2, 2] = 7
    found = channel_scales(weight, scaled)
    assert torch.allclose(found.reshape(-1), scales, rtol=1e-5)
    error = measure(weight * found, scaled, rtol=1e-4)
    assert (error.wrong, error.position) == (1, (2, 2))


def test_other_weights_are_not_scaled(weight):
    assert channel_scales(weight, torch.randn(6, 5)) is None
    assert channel_scales(weight[0], weight[0] * 2) is None
