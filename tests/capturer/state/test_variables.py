import pytest
import torch
from torch import nn

from stateful import MODELS, Counts, Grows, Nested, Shared, calls
from torchferry.capturer.state.begin import run_call
from torchferry.capturer.state.variables import find_variables
from torchferry.errors import CaptureError, UsageError
from torchferry.observer import Call, Observation

NAMES = {
    "running statistics": ["0.running_mean", "0.running_var", "0.num_batches_tracked"],
    "statistics of instances": ["0.running_mean", "0.running_var"],
    "ring buffer": ["ring", "at"],
    "ring buffer by an integer": ["ring", "at"],
    "GRU": ["h"],
    "LSTM": ["h.0", "h.1"],
    "two of one class": ["0.tail", "1.tail"],
    "shared": ["a"],
    "kinds": ["seen", "count", "byte", "turn"],
    "branches": ["first", "mean"],
    "counts": ["step"],
    "boxes": ["box.sum", "box.count", "key_cache"],
    "nested": ["table.h", "table.n", "items.0", "items.1"],
}


class Changes(nn.Module):
    def __init__(self, before, change):
        super().__init__()
        self.h, self.change = before, change

    def forward(self, x):
        self.h = self.change(self.h, x)
        return x + 1


def variables(model, sets=None):
    return find_variables(model, Observation.from_inputs(model, sets or calls(3, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_what_goes_on_from_call_to_call_is_state(name):
    model, sets = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    found = variables(model, sets)
    assert [one.name for one in found] == NAMES[name]
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key])


def test_the_initial_value_is_that_of_the_model():
    model = Grows(2)
    model.keys = torch.rand(2, 2, 4)
    (one,) = variables(model, [(torch.rand(2, 3, 4),), (torch.rand(2, 5, 4),)])
    assert torch.equal(one.initial, model.keys)
    assert one.initial is not model.keys
    (count,) = variables(Counts())
    assert count.initial == 0


def test_names_of_one_tensor_are_one_variable():
    (one,) = variables(Shared())
    assert [*map(str, one.places)] == ["a", "b", "inner.c.0"]


def test_what_carries_nothing_is_no_state():
    class Shows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("same", torch.ones(3))

        def forward(self, x):
            self.size, self.last, self.maps = x.shape[0], x * 2, {"a": x}
            self.same = self.same * 1
            return x + self.last + self.same

    assert variables(Shows()) == ()
    assert "shown" not in [one.name for one in variables(Nested())]


@pytest.mark.parametrize(
    ("before", "change", "text"),
    [
        (None, lambda h, x: x if h is None else h, r"from None to a tensor \(float32, 3 x 3\)"),
        (1.0, lambda h, x: h * 0.5, "from 1.0 to 0.0625"),
        ("a", lambda h, x: h + "b", "from 'a' to 'abbbb'"),
        (False, lambda h, x: True, "from False to True"),
        (torch.zeros(1, 3), lambda h, x: h[0] if h.ndim > 1 else h[None], "1 x 3.* to a tensor"),
        (
            torch.zeros(3),
            lambda h, x: h.double() + 1,
            r"\(float32, 3\) to a tensor \(float64, 3\)",
        ),
        (3, lambda h, x: torch.tensor(h), "from 3 to a tensor"),
        ([], lambda h, x: [*h, x], "from nothing to a tensor"),
    ],
)
def test_what_cannot_be_lifted_is_named(before, change, text):
    model = nn.Sequential(Changes(before, change))
    with pytest.raises(CaptureError, match=rf"self\.0\.h.* cannot be lifted.*{text}"):
        variables(model)


def test_a_view_of_what_is_written():
    class Views(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("all", torch.zeros(4, 3))
            self.last = self.all[-1]

        def forward(self, x):
            self.all += x.sum(0)
            return x + self.last

    with pytest.raises(CaptureError, match=r"forward writes into it, and self\.\w+ shares"):
        variables(Views())


def test_a_view_of_a_weight():
    class Decays(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.kept = self.linear.weight.data

        def forward(self, x):
            self.kept.mul_(0.9)
            return self.linear(x)

    with pytest.raises(CaptureError, match=r"self\.linear\.weight shares its memory"):
        variables(Decays())


def test_a_model_that_cannot_run():
    with pytest.raises(UsageError, match="Linear cannot run its first recorded call again"):
        variables(nn.Linear(2, 2))


def test_a_call_takes_copies():
    x = torch.zeros(2)
    assert run_call(nn.ReLU(inplace=True), Call((x - 1,), {})).tolist() == [0, 0]
    run_call(nn.Threshold(1, 5, inplace=True), Call((x,), {}))
    assert not x.any()
