"""Arithmetic on sizes and integers is Python's: exact, in the order of the code, of its types."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import torchferry as tf
from torchferry.errors import CaptureError, FerryError, UsageError
from ways import WAYS, build


class Model(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)


class OfInteger(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, i, n: int):
        return self.body(i, n)


def rows(n):
    return torch.arange(3 * n).view(n, 3)


POWERS = {
    "1 << n": lambda i, n: i + (1 << n),
    "2 ** n": lambda i, n: i + 2**n,
    "(-3) ** n": lambda i, n: i + (-3) ** n,
    "n ** 7": lambda i, n: i + n**7,
    "n ** rows": lambda i, n: i + n ** i.shape[0],
}


@pytest.mark.parametrize("name", POWERS)
def test_a_power_of_integers_is_exact(name):
    """onnxruntime's Pow computes in double, and float32 was what integers were added in."""
    model = OfInteger(POWERS[name])
    sets = [(rows(3), 2), (rows(2), 3)]
    made = tf.export(model, sets, budget=10, progress=False)
    assert made.report.ok
    for n in (0, 1, 5, 25, 35):
        for i in (rows(5) - 7, torch.full((2, 3), 2**40 + 1)):
            assert torch.equal(made(i, n), model(i, n)), n


@pytest.mark.parametrize("n", [63, 64, 200])
def test_a_power_that_no_integer_holds_is_refused(n):
    made = tf.export(
        OfInteger(POWERS["1 << n"]), [(rows(3), 2), (rows(2), 3)], budget=10, progress=False
    )
    with pytest.raises(FerryError):
        made(rows(3), n)


FLOATS = {
    "int(n * 0.29 * 100)": lambda n: int(n * 0.29 * 100),
    "int((n * .1 + n * .2) * 10)": lambda n: int((n * 0.1 + n * 0.2) * 10),
    "int(n - .1 - .2 + .3)": lambda n: int(n - 0.1 - 0.2 + 0.3),
    "int(n * (1 / 49) * 49)": lambda n: int(n * (1 / 49) * 49),
    "ceil(n * 0.7 * 10)": lambda n: math.ceil(n * 0.7 * 10),
    "floor(n / 100 * 29 * .1 * 10)": lambda n: math.floor(n / 100 * 29 * 0.1 * 10),
}


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("check", [True, False])
def test_floats_of_sizes_are_rounded_step_by_step(name, check):
    """torch's expressions have products of floats in another order: 28.999999999999996 * n."""
    size = FLOATS[name]
    made = tf.export(
        Model(lambda x: x * size(x.shape[0])),
        [(torch.ones(4, 1),), (torch.ones(6, 1),)],
        check=check, budget=10, progress=False,
    )  # fmt: skip
    for n in (1, 2, 3, 5, 10, 33, 81, 98, 162, 324):
        assert made(torch.ones(n, 1))[0].item() == size(n), n


TENS = {
    "round(n, -1)": lambda x: x * round(x.shape[0], -1),
    "x[:round(n, -1)]": lambda x: x[: round(x.shape[0], -1)],
}


@pytest.mark.parametrize("name", TENS)
@pytest.mark.parametrize("way", WAYS)
def test_sizes_are_rounded_to_tens(name, way):
    model = Model(TENS[name]).eval()
    made = build(model, [(torch.rand(10, 2),), (torch.rand(20, 2),)], way)
    for n in (12, 15, 25, 37):
        x = torch.rand(n, 2)
        torch.testing.assert_close(made(x), model(x))


# The integer wins in the calls after the bar, and then the result is one of integers.
COMPETE = {
    "min(n, 2.5)": (lambda x: x * min(x.shape[0], 2.5), (4, 6), (2,)),
    "max(1, n / 4)": (lambda x: x * max(1, x.shape[0] / 4), (8, 6), (4, 2)),
    "x // max(1, n / 4)": (lambda x: x // max(1, x.shape[0] / 4), (8, 6), (4, 2)),
    "full": (lambda x: torch.full((2,), max(1, x.shape[0] / 4)), (8, 6), (4, 2)),
    "arange": (lambda x: torch.arange(min(x.shape[0], 6.0)), (8, 7), (5, 2)),
}


@pytest.mark.parametrize("name", COMPETE)
@pytest.mark.parametrize("way", WAYS)
def test_an_integer_that_wins_against_a_float_stays_one(name, way):
    """torch makes a float of both; a program is right only where the float wins."""
    body, recorded, others = COMPETE[name]
    model = Model(body).eval()
    sets = [(rows(n),) for n in recorded]
    try:
        made = build(model, sets, way)
    except FerryError:
        assert way == "onnx_dynamo"  # torch.onnx has no form for it
        return
    assert torch.equal(made(rows(9)), model(rows(9)))
    for n in others:
        with pytest.raises(UsageError):
            made(rows(n))


@pytest.mark.parametrize("way", ["verified", "unverified", "capture"])
def test_where_all_are_floats_either_may_win(way):
    model = Model(lambda x: x * max(1, x.shape[0] / 4)).eval()
    made = build(model, [(torch.rand(n, 3),) for n in (8, 6)], way)
    for n in (2, 4, 9):
        x = torch.rand(n, 3)
        torch.testing.assert_close(made(x), model(x))


INDICES = {
    "slices": lambda x, i: torch.cat([x[i:], x[:i]]),
    "a row": lambda x, i: x[i],
    "select": lambda x, i: x.select(0, i),
    "floor division": lambda x, i: x * i // 3,
}


class Indexed(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, i: int):
        return self.body(x, i)


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", INDICES)
def test_an_integer_that_was_recorded_negative_may_be_so(name, check):
    model = Indexed(INDICES[name])
    sets = [(torch.randn(5, 2), -2), (torch.randn(6, 2), -3)]
    made = tf.export(model, sets, check=check, progress=False)
    for n, i in ((5, -2), (6, -3), (4, -1), (4, -4), (4, 1), (4, 0)):
        x = torch.randn(n, 2)
        torch.testing.assert_close(made(x, i), model(x, i))


def test_indices_of_numpy_over_a_size_are_no_condition():
    class Frames(nn.Module):
        def forward(self, video):
            places = np.linspace(0, video.shape[1] - 1, 4).astype(np.int64)
            return video[:, torch.from_numpy(places)]

    sets = [(torch.rand(2, n, 3),) for n in (8, 8)]
    made = tf.export(Frames(), sets, progress=False)
    assert torch.equal(made(*sets[0]), Frames()(*sets[0]))


DECIDED_BY_DATA = {
    "max(1, n / 4)": lambda x, n: max(1, n / 4),
    "min(2.5, n)": lambda x, n: min(2.5, n),
    "max(n, rows / 4)": lambda x, n: max(n, x.shape[0] / 4),
}


class Counts(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x, mask):
        return x * self.body(x, int(mask.sum()))


def counted(n, count):
    return rows(n), torch.arange(n) < count


@pytest.mark.parametrize("name", DECIDED_BY_DATA)
def test_an_integer_and_a_float_of_which_data_takes_one_are_refused(name):
    model = Counts(DECIDED_BY_DATA[name])
    with pytest.raises(CaptureError, match=r"test_numbers_of_sizes.py:\d+: data decides"):
        tf.export(model, [counted(9, 7), counted(12, 8)], check=False, progress=False)


def test_two_integers_of_which_data_takes_one_are_right():
    model = Counts(lambda x, n: min(3, n))
    made = tf.export(model, [counted(9, 7), counted(12, 8)], progress=False)
    for n, count in ((9, 2), (4, 3), (1, 0), (20, 20)):
        assert torch.equal(made(*counted(n, count)), model(*counted(n, count)))


OF_DATA = {
    "ceil, round": lambda a, v: (a * math.ceil(v), a * round(v)),
    "ceil, itself": lambda a, v: (a * math.ceil(v), a * v, a * (math.ceil(v) - v)),
    "floor, ceil, trunc": lambda a, v: (a * math.floor(v), a * math.ceil(v), a * math.trunc(v)),
    "ceil of twice": lambda a, v: (a * math.ceil(v), a * math.ceil(2 * v)),
    "between two": lambda a, v: a * (math.ceil(v) - v) + a.flip(0) * (v - int(v)),
    "remainder": lambda a, v: (a * (v % 1), a * v),
    "floor division": lambda a, v: (a * (v // 1), a * v, a * (v * 2 // 2)),
}


class OfFloat(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, a):
        return self.body(a, a.max().item())


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", OF_DATA)
def test_a_float_of_data_and_what_is_rounded_of_it_are_two(name, check):
    model = OfFloat(OF_DATA[name])
    sets = [(torch.tensor(one),) for one in ([0.3, 2.6, 1.0], [1.2, 3.4, 0.1, 0.2])]
    try:
        made = tf.export(model, sets, check=check, progress=False)
    except FerryError:
        assert "%" in name or name in ("remainder", "floor division")
        return
    for values in ([2.5, 1.0], [3.5], [-0.5, -2.0], [4.7, 1.0, 0.0]):
        a = torch.tensor(values)
        torch.testing.assert_close(made(a), model(a))


class Scaled(nn.Module):
    def forward(self, x, f=0.0):
        return x / torch.tensor(float(f))


class Unset(nn.Module):
    def forward(self, x, f=float("nan")):
        return x * 2 if f != f else x + f


@pytest.mark.parametrize(
    ("model", "value", "is_default"), [(Scaled(), -0.0, False), (Unset(), math.nan, True)]
)
def test_a_default_is_what_was_exported_down_to_its_sign(model, value, is_default):
    sets = [((torch.rand(n, 2), value), {}) for n in (2, 3)]
    made = tf.export(model, sets, check=False, progress=False)
    x = torch.rand(4, 2)
    assert torch.equal(made(x, value), model(x, value))
    if is_default:
        assert torch.equal(made(x), model(x))
    else:
        with pytest.raises(UsageError, match="not forward's default"):
            made(x)
