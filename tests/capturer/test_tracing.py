import torch

from torchferry.capturer.state.state import written_buffers
from torchferry.capturer.strategies import FIRST
from torchferry.capturer.tracing import trace_model
from torchferry.observer import Observation

SETS = [(torch.rand(n, 3),) for n in (2, 4)]


class Fixes(torch.nn.Module):
    def forward(self, x):
        return x.reshape(2, 3) if x.shape[0] == 2 else x + torch.zeros(4, 3)


class Fills(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.ones(1))

    def forward(self, x):
        self.k.add_(1)
        return x * self.k


def outcome_of(model):
    return trace_model(model, Observation.from_inputs(model, SETS), FIRST, ())


def test_a_program():
    outcome = outcome_of(torch.nn.Linear(3, 2))
    assert outcome.error is None
    assert outcome.program.module()(input=torch.ones(7, 3)).shape == (7, 2)
    assert not outcome.fixes


def test_why_there_is_none():
    outcome = outcome_of(Fixes())
    assert outcome.program is None
    assert outcome.fixes


def test_a_buffer_that_is_written_is_no_constant():
    outcome = outcome_of(model := Fills())
    assert written_buffers(outcome.program) == {"k"}
    assert model.k.item() == 1
