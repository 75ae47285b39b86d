from __future__ import annotations

import pytest
import torch
from torch import nn

from torchferry.diagnoser.kept import state_kept


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.last = x
        self.total += x
        return x


def test_buffers_and_attributes_are_as_before_also_after_an_exception() -> None:
    model = nn.Sequential(Counts())
    total = model[0].total

    def run() -> None:
        with state_kept(model):
            model(torch.ones(2))
            assert model[0].calls == 1
            model(torch.ones(3))

    with pytest.raises(RuntimeError):
        run()
    assert model[0].calls == 0
    assert not hasattr(model[0], "last")
    assert model[0].total is total
    assert total.tolist() == [0, 0]


def test_a_lazy_module_is_what_its_first_call_made_it() -> None:
    model = nn.Sequential(nn.LazyLinear(3))
    with state_kept(model), torch.no_grad():
        expected = model(torch.ones(2, 5))
    assert type(model[0]) is nn.Linear
    assert model[0].in_features == 5
    assert torch.equal(model(torch.ones(2, 5)), expected)
