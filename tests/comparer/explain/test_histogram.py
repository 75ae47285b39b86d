from __future__ import annotations

import math

import torch

from torchferry.comparer.explain.histogram import finite_of, histogram_of


def test_both_sides_are_counted_over_one_range():
    found = histogram_of(torch.arange(24.0), torch.arange(0.0, 48.0, 2.0))
    assert (found.low, found.high) == (0.0, 46.0)
    assert sum(found.expected) == sum(found.got) == 24
    assert found.expected[-1] == 0
    assert found.got[-1] == 1


def test_what_is_no_number_is_left_out():
    found = histogram_of(torch.tensor([1.0, math.nan, math.inf, 2.0]), torch.tensor([math.nan]))
    assert (found.low, found.high) == (1.0, 2.0)
    assert (sum(found.expected), sum(found.got)) == (2, 0)
    assert histogram_of(torch.tensor([math.nan]), None) is None
    assert histogram_of(torch.zeros(0, 3), torch.zeros(0, 3)) is None


def test_equal_numbers_are_one_part():
    assert histogram_of(torch.ones(5), None).expected == (5,)
    assert histogram_of(torch.tensor(True), torch.tensor(True)).got == (1,)


def test_any_dtype_is_counted():
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16,
                  torch.float8_e4m3fn, torch.complex64):  # fmt: skip
        found = histogram_of(torch.tensor([0.0, 1.0]).to(dtype), None)
        assert (found.low, found.high, sum(found.expected)) == (0.0, 1.0, 2)


def test_of_large_tensors_some_elements_are_counted():
    assert finite_of(torch.zeros(2**18), 2**16).numel() == 2**16
    assert finite_of(torch.zeros(2**16 + 1), 2**16).numel() <= 2**16
    assert finite_of(torch.zeros(10), 2**16).numel() == 10
