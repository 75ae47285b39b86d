"""Loops and branches as users write them: right at sizes and values not seen, or refused."""

import copy

import pytest
import torch
from loop_models import LOOPS, STATES
from torch import nn

import torchferry
from torchferry.errors import FerryError
from torchferry.seams.pytorch import pytree

ALL = LOOPS | STATES


def made(make):
    torch.manual_seed(0)
    return make().eval()


def exported(make, sets):
    return torchferry.export(made(make), [(copy.deepcopy(args), {}) for args in sets])


def check(program, make, args):
    with torch.no_grad():
        want = made(make)(*copy.deepcopy(args))
    got = program(*copy.deepcopy(args))
    for one, other in zip(*map(pytree.tree_leaves, (got, want)), strict=True):
        torch.testing.assert_close(torch.as_tensor(one), torch.as_tensor(other))


@pytest.mark.sample(3)
@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_it_is_right_where_it_was_not_seen_also_after_load(make, tmp_path):
    recorded, later = ALL[make]
    program = exported(make, recorded)
    assert program.report.ok, str(program.report)
    loaded = torchferry.load(program.save(tmp_path / "model.onnx"))
    for args in [*recorded, *later]:
        check(program, make, args)
        check(loaded, make, args)


class CountsItsSteps(nn.Module):
    """Keeps a number of its own in each step, which a graph would do once."""

    def forward(self, x):
        self.n = 0
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = self.step(h, x[:, t])
        return h * self.n

    def step(self, h, row):
        self.n += 1
        return h + row


class KeepsRaggedParts(nn.Module):
    def forward(self, x):
        return torch.cat([part.softmax(1) for part in x.split(3, 1)], 1)


class WritesThroughAnotherName(nn.Module):
    def forward(self, x):
        x = x.clone()
        s = None
        for t in range(x.shape[1]):
            if s is None:
                s = x[:, 0]
            else:
                s += x[:, t]
        return s, x


class RemembersTheLast(nn.Module):
    """State that a later call sees."""

    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        y = x.sum(1) if self.last is None else x.sum(1) + self.last
        self.last = x.mean()
        return y


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "make", [CountsItsSteps, KeepsRaggedParts, WritesThroughAnotherName, RemembersTheLast],
    ids=lambda make: make.__name__,
)  # fmt: skip
def test_it_is_refused_where_a_graph_would_do_something_else(make):
    sets = [(torch.randn(2, 5, 4),), (torch.randn(3, 7, 4),)]
    try:
        program = exported(make, sets)
    except FerryError:
        return
    assert not program.report.ok
    for args in sets:
        try:
            check(program, make, args)
        except FerryError as error:
            assert "takes" in str(error) or "sizes" in str(error)  # noqa: PT017  (it may be right)
