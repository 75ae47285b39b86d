"""Where values stand among others."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
EDGES = torch.tensor([-1.0, 0.0, 0.5, 0.5, 2.0])
X = torch.tensor([[0.5, -3.0, 0.0], [2.0, 9.0, float("nan")]])
PAIRS = [(X, EDGES), (torch.randn(5, 3), EDGES[:3]), (torch.randn(1, 3), EDGES[:0])]
MATRIX = [
    (X, torch.randn(2, 4).sort().values),
    (torch.randn(3, 3), torch.randn(3, 6).sort().values),
]
SETS = [(torch.arange(6).reshape(2, 3), torch.tensor([5, 1, 9])),
        (torch.arange(3).reshape(1, 3), torch.tensor([2])),
        (torch.arange(3).reshape(1, 3), torch.zeros(0, dtype=torch.int64))]  # fmt: skip
COUNTED = [(torch.tensor([0.0, 0.1, 0.25, 0.99, 1.0, 1.5, -0.2]),), (torch.randn(20),),
           (torch.ones(1),)]  # fmt: skip

CASES = [
    (aten.bucketize.Tensor, torch.bucketize, PAIRS),
    (aten.bucketize.Tensor, lambda x, e: torch.bucketize(x, e, right=True, out_int32=True), PAIRS),
    (aten.bucketize.Tensor, lambda x, e: torch.bucketize(x.nan_to_num().long(), e), PAIRS),
    (aten.bucketize.Scalar, lambda x, e: torch.bucketize(0.5, e), PAIRS),
    (aten.searchsorted.Tensor, lambda x, e: torch.searchsorted(e, x), PAIRS),
    (aten.searchsorted.Tensor, lambda x, e: torch.searchsorted(e, x, side="right"), MATRIX),
    (aten.searchsorted.Tensor,
     lambda x, e: torch.searchsorted(e.flip(-1), x, sorter=e.flip(-1).argsort()), MATRIX),
    (aten.searchsorted.Scalar, lambda x, e: torch.searchsorted(e, 0.5, right=True), PAIRS),
    (aten.isin.Tensor_Tensor, torch.isin, SETS),
    (aten.isin.Tensor_Tensor, lambda x, t: torch.isin(x, t * 1.0, invert=True), SETS),
    (aten.isin.Tensor_Tensor, lambda x, t: torch.isin(x[0, 1], t), SETS),
    (aten.isin.Tensor_Scalar, lambda x, t: torch.isin(x, 1), SETS),
    (aten.isin.Scalar_Tensor, lambda x, t: torch.isin(1, t), SETS),
    (aten.histc.default, lambda x: x.histc(4, 0, 1), COUNTED),
    (aten.histc.default, lambda x: x.histc(3), COUNTED),
    (aten.histc.default, lambda x: x.double().histc(10, -2, 2), COUNTED),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


EDGES = torch.tensor([-1.0, 0, 0.5, 2])
LINES = [(torch.randn(4, 5),), (torch.randn(7, 5),), (torch.full((1, 5), 2.0),)]
HISTOGRAMS = [
    lambda x: torch.histogram(x, 6),
    lambda x: torch.histogram(x, 5, range=(-1.0, 2.0)),
    lambda x: torch.histogram(x, 3, range=(2.0, 2.0)),
    lambda x: torch.histogram(x, 4, weight=x.abs()),
    lambda x: torch.histogram(x.double(), 4, density=True),
    lambda x: torch.histogram(x, EDGES),
    lambda x: torch.histogram(x.where(x < 1, float("nan")), EDGES, weight=x),
]


@pytest.mark.parametrize("function", HISTOGRAMS)
def test_histograms(function):
    for one in LINES:  # torch 2.13 does not export them with dynamic sizes
        check(function, one)
