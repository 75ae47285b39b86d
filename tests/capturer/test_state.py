import pytest
import torch

from torchferry.capturer.state import Change, watch_state, written_buffers


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


class Remembers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        y = x if self.last is None else x + self.last
        self.last = y
        return y


class Collects(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.history = []

    def forward(self, x):
        self.history.append(1)
        return x * len(self.history)


class Shows(torch.nn.Module):
    """Sets what it does not read, and reads what it has just set."""

    def __init__(self):
        super().__init__()
        self.scores = None
        self.length = 0
        self.total = torch.zeros(1)

    def forward(self, x):
        self.scores = x * 2
        self.length = x.shape[0]
        self.total = x.sum()
        return x + self.total


class Buffers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x + self.seen


X = torch.ones(3)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (Counts, Change("n", "0", "1")),
        (Remembers, Change("last", "None", "a tensor of shape (3,)")),
        (Collects, Change("history", "0", "1")),
    ],
)
def test_what_goes_on_from_call_to_call(make, want):
    model = make()
    with watch_state(model) as changes:
        model(X)
    assert changes == [want]
    inner = torch.nn.Sequential(torch.nn.ReLU(), make())
    with watch_state(inner) as changes:
        inner(X)
    assert [one.name for one in changes] == [f"1.{want.name}"]


@pytest.mark.parametrize("make", [Shows, Buffers, lambda: torch.nn.LSTM(3, 3)])
def test_what_does_not(make):
    model = make()
    with watch_state(model) as changes:
        model(X if not isinstance(model, torch.nn.LSTM) else X.reshape(1, 3))
    assert changes == []


def test_a_change_is_told_with_what_to_do():
    text = str(Change("encoder.n", "0", "1"))
    assert "self.encoder.n from 0 to 1" in text
    assert "register it as a buffer" in text


def test_buffers_that_a_program_writes_to():
    program = torch.export.export(Buffers(), (X,))
    assert written_buffers(program) == {"seen"}
    # A write to what is no buffer is none.
    assert written_buffers(torch.export.export(torch.nn.ReLU(inplace=True), (X,))) == set()
