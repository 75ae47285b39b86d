"""Writes in place: those that nobody sees are written as they stand, the others traced again."""

import pytest
import torch
from op_case import check, export
from torch import nn

from torchferry.converter.program import functional as functional_module
from torchferry.converter.program.in_place import (
    functional_form,
    is_seen_write,
    unseen,
    updates_statistics,
)

aten = torch.ops.aten
IMAGES = (torch.randn(2, 3, 6, 5),), (torch.randn(1, 3, 4, 8),)


class Residual(nn.Module):
    """As ResNets are written: a residual is added in place, and activations are in place."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        hidden = self.norm(self.conv(x))
        hidden += x
        return self.act(hidden) * 2


def writes(program):
    return [n for n in program.graph.nodes if functional_form(n.target) is not None]


def test_what_nobody_sees_is_not_traced_again(monkeypatch):
    module = Residual().eval()
    program = export(module, *IMAGES)
    assert [str(n.target) for n in writes(program)] == ["aten.add_.Tensor", "aten.relu_.default"]
    assert all(map(unseen, writes(program)))
    assert functional_module.functional(program, lambda _: True) is program
    check(module, *IMAGES, target=aten.add_.Tensor)


def read_before(x):
    y = x * 2
    z = y + 1
    y += 3
    return y * z


def read_after(x):
    y = x * 2
    z = y.add_(3)
    return y * z


def through_a_view(x):
    y = x * 2
    z = y[0]
    y += 3
    return y + z


def of_a_view(x):
    y = x * 2
    y[0] += 3
    return y


def returned_too(x):
    y = x * 2
    return y, y.mul_(3)


def in_a_narrower_type(x):
    y = x * 2
    y += torch.ones(1, dtype=torch.float64) / 3
    return y


@pytest.mark.parametrize(
    ("function", "hidden"),
    [
        (read_before, True), (read_after, True), (through_a_view, False), (of_a_view, False),
        (returned_too, True), (in_a_narrower_type, True),
    ],
)  # fmt: skip
def test_values_are_those_of_eager(function, hidden):
    sets = [(torch.randn(n, 3),) for n in (4, 2, 1)]
    program = export(function, *sets)
    assert writes(program)
    assert all(map(unseen, writes(program))) is hidden
    check(function, *sets)


def test_what_may_be_its_argument_itself_is_not_fresh():
    def function(x):
        y = x * 2
        same = y.type_as(x)
        same *= 5
        dropped = nn.functional.dropout(y, 0.5, training=False)
        return y * same + dropped

    program = export(function, (torch.randn(2, 3),))
    assert [unseen(node) for node in writes(program)] == [False]
    check(function, (torch.randn(2, 3),), target=aten.dropout.default)


@pytest.mark.parametrize(
    ("target", "form"),
    [
        (aten.add_.Tensor, aten.add.Tensor),
        (aten.relu_.default, aten.relu.default),
        (aten.add.Tensor, None),
        (aten.zero_.default, aten.zero.default),
        (aten._foreach_add_.Scalar, None),
        (len, None),
    ],
)
def test_functional_form(target, form):
    assert functional_form(target) is form


class Trains(nn.Module):
    """Running statistics that are arguments, or none."""

    def __init__(self, norm, training=True, statistics=True):
        super().__init__()
        self.norm, self.training_, self.statistics = norm, training, statistics

    def forward(self, x):
        mean, variance = x.new_zeros(3), x.new_ones(3)
        given = (mean, variance) if self.statistics else (None, None)
        y = self.norm(x, *given, None, None, self.training_)
        return y, mean, variance


@pytest.mark.parametrize("norm", [nn.functional.batch_norm, nn.functional.instance_norm])
def test_statistics_are_updated_in_training_mode(norm):
    check(Trains(norm), *IMAGES)
    nodes = export(Trains(norm), *IMAGES[:1]).graph.nodes
    assert sum(updates_statistics(node) and is_seen_write(node) for node in nodes) == 1


@pytest.mark.parametrize("options", [{"training": False}, {"statistics": False}])
def test_statistics_that_stay(options):
    nodes = export(Trains(nn.functional.batch_norm, **options), *IMAGES[:1]).graph.nodes
    assert not any(updates_statistics(node) for node in nodes)
