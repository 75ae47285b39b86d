"""The incomplete gamma functions against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
INFINITY, NAN = float("inf"), float("nan")
ENDS = torch.tensor([0.0, 1.5, INFINITY, -1.0])


def pairs(rows):
    return torch.rand(rows, 40) * 12, torch.rand(rows, 40) * 20


@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matches_eager(function, dtype):
    sets = [tuple(t.to(dtype) for t in pairs(rows)) for rows in (3, 1, 7)]
    check(function, *sets)


@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_ends_and_what_lies_beyond(function):
    check(function, (ENDS.repeat_interleave(4), ENDS.repeat(4)))
    check(function, (torch.tensor([1.5, NAN]), torch.tensor([NAN, 1.5])))


@pytest.mark.parametrize("function", [torch.igamma, torch.igammac])
def test_large_orders(function):
    order = torch.tensor([30.0, 300, 3000, 30000]).double()
    check(function, (order[:, None], order * 1.01), tolerance=1e-5)


def test_names():
    given = pairs(2)
    check(torch.special.gammainc, given, pairs(3))
    check(torch.special.gammaincc, given, pairs(3))
