"""Loops that slice nothing run as often as they should; an empty group is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import torchferry as tf


class Cuts(nn.Module):
    """Once or thrice, positive numbers stay as they are."""

    def forward(self, x, times):
        for _ in range(times):
            x = x.clamp(max=1e3).relu() * 0.5
        return x.sum(1)


class AsOftenAsWide(nn.Module):
    def forward(self, x, times):
        h = x.mean(1)
        for _ in range(x.shape[1]):
            h = (h + times).tanh()
        return h


@pytest.mark.sample(1)
@pytest.mark.parametrize("check", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("make", [Cuts, AsOftenAsWide])
def test_no_step_is_lost(make: Any, check: bool) -> None:
    sets = [((torch.rand(n, n + 1), n), {}) for n in (2, 3)]
    program = tf.export(make(), sets, check=check)
    assert "Scan" in [node.op_type for node in program.model.graph]
    for rows, columns, times in ((1, 9, 1), (4, 2, 7)):
        x = torch.randn(rows, columns)
        torch.testing.assert_close(program(x, times), make()(x, times))


class Normalizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.GroupNorm(2, 4)

    def forward(self, x):
        return self.norm(self.linear(x).relu().mT)


def test_an_empty_group_is_refused_and_ends_no_process() -> None:
    torch.manual_seed(0)
    model = Normalizes()
    program = tf.export(model, [(torch.randn(3, 6, 4),), (torch.randn(4, 9, 4),)], check=False)
    with pytest.raises(tf.UsageError, match="x_dim_1"):
        program(torch.randn(3, 0, 4))
    x = torch.randn(1, 5, 4)
    torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-5)
