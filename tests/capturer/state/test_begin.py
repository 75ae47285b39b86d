"""State that is None until a first call."""

import copy

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.capturer.state.begin import find_beginnings
from torchferry.capturer.state.places import Place
from torchferry.observer import Observation


class Leaks(nn.Module):
    """A running sum of the mean, None at first."""

    def __init__(self, decay=0.5):
        super().__init__()
        self.decay, self.sum = decay, None

    def forward(self, x):
        if self.sum is None:
            self.sum = torch.zeros(x.shape[1])
        self.sum = self.decay * self.sum + x.mean(0)
        return x + self.sum


class Streams(nn.Module):
    """A recurrent layer that goes on where it was, and a list of states."""

    def __init__(self):
        super().__init__()
        self.lstm, self.state = nn.LSTM(3, 5, batch_first=True), None
        self.last = [None, None]

    def forward(self, x):
        y, self.state = self.lstm(x, self.state)
        for at in range(2):
            before = 0.0 if self.last[at] is None else self.last[at]
            self.last[at] = y[:, -1] + before
        return y + self.last[1][:, None]


class Averages(nn.Module):
    """An average that begins with the first mean, and not from zero."""

    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        now = x.mean(0)
        self.mean = now if self.mean is None else 0.9 * self.mean + 0.1 * now
        return x - self.mean


def observed(model, *shapes):
    torch.manual_seed(0)
    return Observation.from_inputs(copy.deepcopy(model), [(torch.rand(s),) for s in shapes])


def test_zeros_that_make_no_difference():
    model = Leaks()
    ((place, value),) = find_beginnings(model, observed(model, (2, 3), (4, 3))).items()
    assert (place, value.tolist()) == (Place("", "sum"), [0, 0, 0])
    assert model.sum is None


def test_sizes_that_differ_are_broadcast():
    class Each(Leaks):
        def forward(self, x):
            self.sum = x if self.sum is None else self.sum + x
            return self.sum * 2

    (value,) = find_beginnings(Each(), observed(Each(), (2, 3), (4, 3))).values()
    assert value.shape == (1, 3)


@pytest.mark.parametrize("model", [Averages(), nn.Linear(3, 3)])
def test_where_zeros_are_another_state_or_nothing_begins(model):
    assert find_beginnings(model, observed(model, (2, 3), (4, 3))) == {}


@pytest.mark.parametrize(
    ("make", "shapes"), [(Leaks, ((2, 3), (5, 3))), (Streams, ((2, 4, 3), (2, 7, 3)))]
)
def test_such_state_is_lifted(make, shapes):
    torch.manual_seed(0)
    model = make().eval()
    eager = copy.deepcopy(model)
    sets = [(torch.rand(shape),) for shape in shapes]
    program = tf.export(model, sets, state="lift")
    assert program.report.ok, program.report.problems
    for _ in range(2):
        for x in (*sets, (torch.rand(2, *shapes[0][1:]),)):
            with torch.no_grad():
                torch.testing.assert_close(program(*x), eager(*x))
        program.reset()
        eager = copy.deepcopy(model)


def test_another_beginning_is_refused_by_name():
    with pytest.raises(tf.CaptureError, match=r"self\.mean is state.*from None to a tensor"):
        tf.export(Averages(), [(torch.rand(2, 3),), (torch.rand(4, 3),)], state="lift")
