"""What the first call of a model sets for all later ones."""

import copy

import pytest
import torch

import torchferry
from torchferry.capturer import capture
from torchferry.capturer.state.warm import find_first_values, set_values
from torchferry.errors import CaptureError
from torchferry.observer import Observation


class Levels:
    def __init__(self, count):
        self.count = count


class Pools(torch.nn.Module):
    """Measures once how much smaller its features are, as a detector's pooler does."""

    def __init__(self, measure):
        super().__init__()
        self.measure = measure
        self.scale = self.levels = self.last = None
        self.calls = 0

    def forward(self, x):
        features = x[:, ::4]
        if self.scale is None:
            self.scale = [2 ** float(self.measure(features, x).log2().round())]
            self.levels = Levels(len(self.scale))
        self.last = features
        self.calls = 5
        return features * self.scale[0] * self.levels.count


class Codebook(torch.nn.Module):
    """Divides its table by how often each row was used, once."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.rand(4, 2))
        self.used = torch.nn.Parameter(torch.rand(4) + 1)
        self.divided = None

    def forward(self, x):
        if self.divided is None:
            self.divided = self.table / self.used[:, None]
        return x @ self.divided


class Biases(torch.nn.Module):
    """Keeps its bias in a dictionary from the first call on, by device, as timm's LeViT does."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(4))
        self.kept = {}

    def forward(self, x):
        if str(x.device) not in self.kept:
            self.kept[str(x.device)] = self.weight.flip(0)
        return x + self.kept[str(x.device)]


def ratio(features, x):
    return torch.tensor(features.shape[1] / x.shape[1])


def size(features, x):
    return torch.tensor(x.shape[1] / 1.0)


SETS = [(torch.rand(b, n),) for b, n in ((2, 16), (3, 24), (2, 40))]


def test_it_is_found_if_no_input_decides_it():
    model = Pools(ratio)
    values = find_first_values(model, Observation.from_inputs(model, SETS))
    assert {name for _, name in values} == {"scale", "levels"}
    assert values["", "scale"] == [0.25]
    assert model.scale is model.last is None
    assert model.calls == 0
    undo = set_values(model, values)
    assert model.levels.count == 1
    undo()
    assert model.scale is None


@pytest.mark.parametrize("make", [lambda: Pools(size), lambda: torch.nn.Linear(16, 2)])
def test_else_nothing_is(make):
    model = make()
    assert find_first_values(model, Observation.from_inputs(model, SETS)) == {}


def test_a_model_is_captured_as_after_a_first_call():
    model = Pools(ratio)
    want = [copy.deepcopy(model)(*one) for one in [*SETS, (torch.ones(1, 9),)]]
    program = torchferry.export(model, SETS, progress=False)
    assert program.report.ok, program.report.problems
    assert model.scale == [0.25]
    for inputs, one in zip([*SETS, (torch.ones(1, 9),)], want, strict=True):
        torch.testing.assert_close(program(*inputs), one)


def test_a_refused_model_is_as_before():
    model = Pools(ratio)
    factors = {True: 1.0, False: 2.0}
    model.register_forward_hook(lambda _, __, output: output * factors[bool(output.sum() > 9)])
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        capture(model, Observation.from_inputs(model, SETS))
    assert model.scale is None


def test_a_tensor_that_no_input_decides():
    sets = [(torch.rand(n, 4),) for n in (2, 3)]
    model = Codebook()
    assert find_first_values(model, Observation.from_inputs(model, sets[:1])) == {}  # who knows
    program = torchferry.export(model, sets, progress=False)
    assert program.report.ok, program.report.problems
    x = torch.rand(5, 4)
    torch.testing.assert_close(program(x), Codebook.forward(model, x))
    torch.testing.assert_close(model.divided, model.table / model.used[:, None])


def test_what_a_first_call_puts_into_an_empty_dictionary(captured):
    model = Biases()
    found = captured(model, [(torch.rand(n, 4),) for n in (2, 3)])
    assert not found.changed
    fresh = Biases()
    seen = Observation.from_inputs(fresh, [((torch.rand(n, 4),), {}) for n in (2, 3)])
    assert [name for _, name in find_first_values(fresh, seen)] == ["kept"]
    assert fresh.kept == {}
    before = fresh.kept
    undo = set_values(fresh, find_first_values(fresh, seen))
    assert [*fresh.kept] == ["cpu"]
    undo()
    assert fresh.kept is before
