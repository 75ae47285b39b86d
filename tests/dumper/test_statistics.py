import math

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given

from torchferry.dumper import statistics as module
from torchferry.dumper.statistics import statistics


@given(st.lists(st.floats(width=32, allow_nan=True), min_size=1, max_size=20))
def test_every_element_is_counted(values):
    found = statistics(torch.tensor(values))
    finite = [value for value in values if math.isfinite(value)]
    assert found.nans == sum(map(math.isnan, values))
    assert found.nans + found.infinities + sum(found.counts) == len(values)
    assert len(found.edges) == (len(found.counts) + 1 if finite else 0)
    if finite:
        assert (found.edges[0], found.edges[-1]) == (min(finite), max(finite))


def test_numbers():
    found = statistics(torch.tensor([[1.0, math.nan], [math.inf, -3.0]]))
    assert (found.least, found.largest, found.mean) == (-3, math.inf, math.inf)
    assert (found.nans, found.infinities) == (1, 1)
    assert sum(found.counts) == 2
    assert found.counts[0] == found.counts[-1] == 1


def test_in_chunks(monkeypatch):
    x = torch.randn(1000)
    whole = statistics(x)
    monkeypatch.setattr(module, "_CHUNK", 7)
    parts = statistics(x.reshape(10, 100).T)
    assert parts.counts == whole.counts
    assert parts.mean == pytest.approx(whole.mean)


@pytest.mark.parametrize(
    ("value", "least", "largest", "mean"),
    [
        (torch.tensor(True), 1, 1, 1),
        (torch.tensor([2**64 - 1, 0], dtype=torch.uint64), 0, 2**64, 2**63),
        (torch.tensor([3 + 4j]), 5, 5, 5),
        (torch.tensor([1.0, 2.0]).to(torch.float8_e4m3fn), 1, 2, 1.5),
        (torch.nn.Parameter(torch.ones(2)), 1, 1, 1),
        (np.array([1, 2], ">i4"), 1, 2, 1.5),
        (np.array([1, -3], ml_dtypes.int4), -3, 1, -1),
        (np.float16(2), 2, 2, 2),
        (np.array([2], np.longdouble), 2, 2, 2),
    ],
    ids=str,
)
def test_of_many_types(value, least, largest, mean):
    found = statistics(value)
    assert (found.least, found.largest, found.mean) == (least, largest, mean)


@pytest.mark.parametrize(
    "value",
    [
        *(torch.zeros(0, 3), torch.empty(2, dtype=torch.int4), np.array(["x"]), np.zeros(0)),
        *(np.datetime64("2020-01-01"), torch.empty(1, dtype=torch.float4_e2m1fn_x2)),
    ],
)
def test_of_no_numbers(value):
    assert statistics(value) is None


def test_only_nan():
    found = statistics(torch.full((3,), math.nan))
    assert math.isnan(found.least)
    assert math.isnan(found.mean)
    assert (found.nans, found.counts) == (3, ())


def test_a_range_wider_than_floats():
    found = statistics(torch.tensor([-1.7e308, 1.7e308], dtype=torch.float64))
    assert found.counts == (2,)
