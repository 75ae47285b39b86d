"""Branches on buffers that nothing writes, and on those that something does."""

import pytest
import torch

from torchferry.capturer import capture
from torchferry.capturer.constant import known_constants
from torchferry.errors import CaptureError
from torchferry.observer import Observation

SETS = [(torch.rand(2, 3),), (torch.rand(4, 3),), (torch.rand(1, 3),)]


class Holds(torch.nn.Module):
    """Buffers as models have them: a number, a table, one within a submodule."""

    def __init__(self, forward):
        super().__init__()
        self.register_buffer("k", torch.tensor(4))
        self.register_buffer("table", torch.tensor([1, 2, 3]))
        self.scale = torch.nn.Parameter(torch.tensor(2.0))
        self.inner = torch.nn.BatchNorm1d(3)
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def branches(self, x):
    return x * 2 if self.k - 2 <= 5 else x


def reads_a_table(self, x):
    for value in self.table.tolist():
        x = x + value
    return x[:, : int(self.table[1])] if self.table.max() > 2 else x


def asks_a_parameter(self, x):
    return x * self.scale.item() if self.scale.exp() > 1 else x


def asks_a_part(self, x):
    return self.inner(x) if self.inner.num_batches_tracked == 0 else x


@pytest.mark.parametrize("forward", [branches, reads_a_table, asks_a_parameter, asks_a_part])
def test_values_of_buffers_decide(captured, forward):
    assert len(captured(Holds(forward), SETS).attempts) == 1


def counts(self, x):
    x = x * 2 if self.k > 4 else x
    self.k += 1
    return x


def writes_a_view(self, x):
    x = x * 2 if self.table.max() > 2 else x
    self.table[0] += 5
    return x


def sets_another(self, x):
    x = x * 2 if self.table.max() > 2 else x
    self.table = self.table + 1
    return x


def fills(self, x):
    self.scale.detach().copy_(x.sum())
    return x * 2 if self.scale > 2 else x


@pytest.mark.parametrize("forward", [counts, writes_a_view, sets_another, fills])
def test_values_that_are_written_do_not(forward):
    model = Holds(forward)
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        capture(model, Observation.from_inputs(model, SETS), rewrite=False)


def test_the_model_keeps_its_values_and_a_block_may_do_nothing():
    model = Holds(counts)
    with known_constants(model, apply=False) as written:
        assert "forward" not in vars(model)
        model(SETS[0][0])
    assert written == []
    with known_constants(model) as written:
        model(SETS[0][0])
    assert written == ["k"]
    assert model.k == 6


class Times:
    def __init__(self):
        self.steps = torch.tensor([5, 3, 1])
        self.table = torch.rand(7)


class Keeps(torch.nn.Module):
    """Tensors that are no buffers: in an attribute, a list, an object of the model's own."""

    def __init__(self, forward):
        super().__init__()
        self.k = torch.tensor(4)
        self.items = [torch.tensor(4), torch.tensor(1)]
        self.times = Times()
        self.function = forward

    def forward(self, x):
        return self.function(self, x)


def asks_an_attribute(self, x):
    return x * 2 if self.k > 2 else x


def asks_a_list(self, x):
    for k in self.items:
        x = x * 2 if k > 2 else x - 1
    return x


def walks_through_an_object(self, x):
    for time in self.times.steps:
        before = time - 2
        x = x + (self.times.table[before] if before >= 0 else self.times.table[0])
    return x


@pytest.mark.parametrize("forward", [asks_an_attribute, asks_a_list, walks_through_an_object])
def test_values_of_other_tensors_decide(captured, forward):
    model = Keeps(forward)
    found = captured(model, SETS)
    assert found.attempts[-1].strategy == "the same knowing the tensors in attributes"
    assert model.k.item() == 4
    assert type(model.times.steps) is torch.Tensor
    x = torch.rand(5, 3)
    torch.testing.assert_close(found.program.module()(x=x), model(x))


def writes_a_list(self, x):
    x = x * 2 if self.items[0] > 2 else x
    self.items[0] += 1
    return x


def writes_an_object(self, x):
    x = x * 2 if self.times.steps.max() > 2 else x
    self.times.steps[0] = 7
    return x


@pytest.mark.parametrize("forward", [writes_a_list, writes_an_object])
def test_but_not_if_a_call_writes_to_them(forward):
    model = Keeps(forward)
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        capture(model, Observation.from_inputs(model, SETS), rewrite=False)
    assert type(model.items[0]) is torch.Tensor
