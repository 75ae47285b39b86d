import pytest
import torch

from torchferry.capturer.state.memo import carries_nothing
from torchferry.observer import Observation


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = None

    def forward(self, x):
        if self.table is None or len(self.table) < x.shape[1]:
            self.table = torch.arange(float(x.shape[1]))
        return x + self.table[: x.shape[1]]


class Collects(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.found = {}

    def forward(self, x):
        self.found["x"] = x * 2
        return dict(self.found)


class Counts(torch.nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x if self.calls < 100 else -x


class Smooths(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = None

    def forward(self, x):
        self.mean = x.mean() if self.mean is None else (self.mean + x.mean()) / 2
        return x - self.mean


class Largest(torch.nn.Module):
    largest = 0.0

    def forward(self, x):
        self.largest = max(self.largest, float(x.abs().max()))
        return x / self.largest


@pytest.mark.parametrize(
    ("make", "nothing"),
    [(Table, True), (Collects, True), (Counts, False), (Smooths, False), (Largest, False)],
)
def test_what_later_calls_see(make, nothing):
    model = make()
    sets = [(torch.rand(2, 5),), (torch.rand(3, 7) * 9,)]
    before = {name: value for name, value in vars(model).items() if name[0] != "_"}
    assert carries_nothing(model, Observation.from_inputs(model, sets)) is nothing
    after = {name: value for name, value in vars(model).items() if name[0] != "_"}
    assert before == after
    assert not carries_nothing(model, Observation.from_inputs(model, sets[:1]))
