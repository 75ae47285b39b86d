"""What code asks of torch at a size of 1, where values hardly ever show the difference."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.capturer.trial.asked import Asked, asked_otherwise
from torchferry.capturer.trial.reliance import run_model
from torchferry.errors import UsageError


class Model(nn.Module):
    """With tables that a size looks things up in."""

    def __init__(self, body):
        super().__init__()
        self.body = body
        self.first, self.second = nn.Buffer(torch.ones(3)), nn.Buffer(torch.zeros(3))

    def forward(self, *args):
        return self.body(self, *args)


def masked(ids):
    return ids.masked_fill(ids == 102, 0) if ids.shape[1] == 1 else ids


def deduplicated(a, b):
    return torch.where(a == b[:1], 0.0, a) if len(a) == 1 else a


def ids(rows, columns):
    return torch.arange(rows * columns).view(rows, columns) % 90


def floats(rows, columns=3):
    torch.manual_seed(rows)
    return torch.randn(rows, columns)


EDGES = torch.tensor([-1.0, 0.0, 0.5, 1.0])
OTHERWISE = {
    "what replaces NaN": (
        lambda self, x: torch.nan_to_num(x, nan=(0.0, 1.0)[int(len(x) == 1)]),
        lambda n: (floats(n),), (torch.tensor([[math.nan, 1.0, 2.0]]),),
    ),
    "the number of a padding": (
        lambda self, x: (x != {True: 0, False: 31000}[len(x) == 1]).sum(1),
        lambda n: (ids(n, n + 1),), (torch.tensor([[31000, 1, 2]]),),
    ),
    "a branch of a helper that another argument takes": (
        lambda self, a, b: torch.cat([masked(a), masked(b)], 1),
        lambda n: (ids(n, n + 2), ids(n, 1)), (torch.tensor([[102], [1]]), ids(2, 1)),
    ),
    "the same, of floats": (
        lambda self, a, b: deduplicated(a, b) + deduplicated(b, a),
        lambda n: (floats(n), floats(1)), (torch.ones(1, 3), torch.ones(1, 3)),
    ),
    "a side": (
        lambda self, x: torch.searchsorted(EDGES, x, side=("left", "right")[int(len(x) == 1)]),
        lambda n: (floats(n),), (torch.tensor([[0.5, -1.0, 0.0]]),),
    ),
    "a tensor for zeros": (
        lambda self, x: torch.where(x == 0, (self.first, self.second)[int(len(x) == 1)], x),
        lambda n: (floats(n),), (torch.tensor([[0.0, 1.0, 0.0]]),),
    ),
    "a function of a table": (
        lambda self, x: (torch.ge, torch.gt)[int(len(x) == 1)](x, 0.5),
        lambda n: (floats(n),), (torch.tensor([[0.5, 1.0, 0.0]]),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", OTHERWISE)
def test_a_size_that_asks_otherwise_is_refused_whatever_values_say(name, check):
    body, make, call = OTHERWISE[name]
    model = Model(body)
    made = tf.export(model, [make(2), make(3)], check=check, progress=False)
    for n in (2, 4, 7):
        torch.testing.assert_close(made(*make(n)), model(*make(n)))
    with pytest.raises(UsageError, match="is 1: its code does something else there"):
        made(*call)


SAME = {
    "constants of all sizes": lambda self, x: torch.where(x > 0.25, x, -1.0).clamp(min=-0.5),
    "numbers that follow a size": lambda self, x: x * len(x) ** -0.5 + x.shape[0] // 2,
    "a loop over a dimension that is fixed": lambda self, x: sum(x[:, i] for i in range(3)),
    "one token for all": lambda self, x: x - x[-1:],
    "attention that is causal": lambda self, x: nn.functional.scaled_dot_product_attention(
        x[None], x[None], x[None], is_causal=len(x) > 1
    ),
    "helpers and modules": lambda self, x: deduplicated(nn.functional.gelu(torch.cat([x, x])), x),
}


@pytest.mark.parametrize("name", SAME)
def test_a_size_that_asks_the_same_is_taken(name):
    model = Model(SAME[name])
    made = tf.export(model, [(floats(4),), (floats(6),)], progress=False)
    for n in (1, 2, 9):
        torch.testing.assert_close(made(floats(n)), model(floats(n)), rtol=1e-5, atol=1e-6)


def test_a_constant_that_varies_follows_a_size():
    model = Model(lambda self, x: x.clamp(min=len(x)) + torch.full((3,), 0.5))

    def calls(n):
        inputs = ((floats(n),), {})
        with Asked(model) as asked:
            run_model(model, inputs)
        return asked.calls

    assert asked_otherwise(calls(1), [calls(2), calls(3), calls(4)]) is None
    assert (
        asked_otherwise(calls(1), [calls(2), calls(2), calls(2)]) is not None
    )  # which may be a constant


def test_calls_of_libraries_and_modules_are_theirs():
    model = Model(lambda self, x: nn.Softmax(-1)(x))
    inputs = ((floats(2),), {})
    with Asked(model) as asked:
        run_model(model, inputs)
    assert not asked.calls
