from __future__ import annotations

import math

import pytest
import torch

from torchferry.judge.draws import may_be_drawn, same_moments
from torchferry.judge.tolerance import Tolerance

FREE, UNIT = (-math.inf, math.inf), (0.0, 1.0)


def may(expected, got, bounds=FREE):
    def allows(right, difference):
        return Tolerance.inside(torch.float32).allows(difference, right)

    return may_be_drawn(expected, got, bounds, allows)


def drop(x, p):
    return torch.nn.functional.dropout(x, p, training=True)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("count", [0, 1, 30, 5000])
def test_draws_of_one_distribution_pass(count):
    x = torch.linspace(-3, 30, count)
    p = x.sigmoid()
    for _ in range(20):
        assert may(torch.rand(count), torch.rand(count), UNIT)
        assert may(torch.randn(count), torch.randn(count))
        assert may(torch.bernoulli(p), torch.bernoulli(p), UNIT)
        assert may(drop(x, 0.3), drop(x, 0.3))
        assert may(torch.randn(count).exp() ** 4, torch.randn(count).exp() ** 4)
        assert may(torch.rand(count) < 0.5, torch.rand(count) < 0.5, UNIT)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: (torch.rand(400), torch.rand(400) * 1.5),
        lambda: (torch.randn(400), torch.randn(400) + 0.7),
        lambda: (torch.randn(400), torch.randn(400) * 2),
        lambda: (torch.rand(400) < 0.7, torch.rand(400) < 0.3),
        lambda: (drop(torch.full((400,), 5.0), 0.3), drop(torch.full((400,), 5.0), 0.7)),
        lambda: (torch.randint(9, (400,)), torch.randint(4, 13, (400,))),
        lambda: (torch.randn(200, dtype=torch.complex64), torch.randn(200, 2) * 3),
    ],
)
def test_draws_of_another_distribution_do_not(draw):
    assert not may(*draw())  # drawn here, where the numbers begin as the fixture says


def test_what_lies_outside_of_the_bounds_is_no_draw_however_few_there_are():
    assert may(torch.tensor([0.5]), torch.tensor([1.0]), UNIT)
    for wrong in (1.001, -0.001, math.nan, math.inf):
        assert not may(torch.tensor([0.5]), torch.tensor([wrong]), UNIT)


def test_rounding_is_no_other_distribution():
    x = torch.rand(1000) + 1
    assert may(x, x * (1 + 1e-6))
    assert not may(x, x * 1.01)


def test_infinities_and_nan_say_nothing_of_a_distribution():
    x = torch.tensor([math.inf, math.nan, 1.0] * 50)
    assert may(drop(x, 0.5), drop(x, 0.5))


@pytest.mark.parametrize("shape", [(), (1,), (5, 40)])
@pytest.mark.parametrize(
    ("change", "same"),
    [(lambda d: d, True), (lambda d: d + 9, False), (lambda d: d * 9, False)],
)
def test_a_few_draws_tell_another_distribution(shape, change, same):
    ours, theirs = ([torch.randn(shape) for _ in range(12)] for _ in range(2))
    found = same_moments(ours, [change(draw) for draw in theirs])
    assert found is same or (shape != (5, 40) and found)


def test_draws_of_booleans_integers_and_nothing():
    bits = [[torch.rand(50) > p for _ in range(12)] for p in (0.5, 0.5, 0.05)]
    assert same_moments(bits[0], bits[1])
    assert not same_moments(bits[0], bits[2])
    assert same_moments([torch.zeros(0)] * 3, [torch.zeros(0)] * 3)
    assert same_moments([3, 5, 4], [4, 3, 5])
