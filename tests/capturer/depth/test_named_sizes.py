"""Sizes of one argument that have one name are one symbol, and held to be equal in every call."""

import pytest
import torch

import torchferry
from torchferry.capturer import capture
from torchferry.errors import UsageError
from torchferry.observer import Observation
from torchferry.seams import symbols


class Sum(torch.nn.Module):
    def forward(self, x, pieces):
        return [x.sum() + (piece * index).sum(-1) for index, piece in enumerate(pieces)]


class Pick(torch.nn.Module):
    """Fixes the length of the last piece."""

    def forward(self, pieces):
        count = len([*range(pieces[-1].shape[1])])  # fixed
        return pieces[0] + 1, pieces[-1] * count


def pieces(batch, *lengths):
    return [torch.randn(batch, length) for length in lengths]


def sets(batch=0):
    return [((torch.randn(n), pieces(n, n + 2, n + 2, 5)), {}) for n in (3 + batch, 6 + batch)]


def symbols_of(program):
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return [tuple(map(str, node.meta["val"].shape)) for node in nodes]


def test_one_symbol_for_a_name_within_an_argument():
    model = Sum()
    program = capture(model, Observation.from_inputs(model, sets())).program
    (x,), first, second, third = symbols_of(program)
    assert first == second
    assert third == (first[0], "5")
    assert x != first[0]  # another argument has its own
    assert len(set(first)) == 2


@pytest.mark.parametrize("shared", [True, False])
def test_a_call_of_unequal_sizes_is_refused(shared, monkeypatch):
    if not shared:  # as it is where torch lacks the names that it takes
        monkeypatch.setattr(symbols, "probe", lambda _, default=None: default)
    model = Sum()
    with torch.no_grad():
        exported = torchferry.export(model, sets(), budget=0.5)
    right = (torch.randn(2), pieces(2, 4, 4, 5))
    for got, wanted in zip(exported(*right), model(*right), strict=True):
        torch.testing.assert_close(got, wanted)
    for lengths in ((4, 5), (5, 4)):
        with pytest.raises(torchferry.errors.UsageError, match="pieces"):
            exported(torch.randn(2), pieces(2, *lengths, 5))


def test_the_program_refuses_it_too():
    model = Sum()
    found = capture(model, Observation.from_inputs(model, sets()))
    inputs = torch.randn(2), pieces(2, 4, 4, 5)
    torch.testing.assert_close(found(*inputs), model(*inputs))
    with pytest.raises(UsageError, match="Guard failed"):
        found(torch.randn(2), pieces(2, 4, 5, 5))


def test_a_size_that_is_fixed_has_its_line(line):
    model = Pick()
    calls = [((pieces(n, 4 * n, 4 * n),), {}) for n in (2, 3)]
    found = capture(model, Observation.from_inputs(model, calls), rewrite=False)
    assert {str(one.line) for one in found.fixed} == {line("fixed")}
    assert len(found.fixed) == 2


def test_without_a_private_name_each_size_has_its_own(monkeypatch):
    monkeypatch.setattr(symbols, "probe", lambda _, default=None: default)
    model = Sum()
    program = capture(model, Observation.from_inputs(model, sets())).program
    _, first, second, _ = symbols_of(program)
    assert first[1] != second[1]
