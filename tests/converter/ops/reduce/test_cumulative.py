"""Running sums, products and extremes against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")

FLOATS = (torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(0, 4),)
HOLES = (
    (torch.tensor([[1.0, NAN, 3.0, 3.0], [INF, 2.0, -INF, INF], [-INF, -INF, 0.0, NAN]]),),
    (torch.tensor([[NAN, 1.0, NAN, 2.0]]),),
)
INTS = (torch.tensor([[3, -1], [2**40 + 1, 5], [3, 2**21]]),), (torch.tensor([[-7, 2**31]]),)
MASKS = (torch.tensor([[True, False], [True, True]]),), (torch.tensor([[True, True]]),)
FAR = (
    (torch.tensor([[-INF, -100.0], [-1000.0, -INF], [-INF, -INF]]),),
    (torch.tensor([[-INF, 1000.0]]),),
)
HALVES = (torch.randn(2, 200, dtype=torch.float16),), (torch.randn(1, 200, dtype=torch.float16),)
POINT = ((torch.tensor(2.5),),)

CASES = [
    (aten.cumsum.default, lambda x: x.cumsum(0), FLOATS),
    (aten.cumsum.default, lambda x: x.cumsum(-1), HOLES),
    (aten.cumsum.default, lambda x: x.cumsum(0), INTS),
    (aten.cumsum.default, lambda x: x.cumsum(1), MASKS),
    (aten.cumsum.default, lambda x: x.cumsum(1, dtype=torch.int32), INTS),
    (aten.cumsum.default, lambda x: x.cumsum(0, dtype=torch.int8), MASKS),
    (aten.cumsum.default, lambda x: x.cumsum(1), HALVES),
    (aten.cumsum.default, lambda x: x.cumsum(0), POINT),
    (aten.cumprod.default, lambda x: x.cumprod(0), FLOATS),
    (aten.cumprod.default, lambda x: x.cumprod(-1), HOLES),
    (aten.cumprod.default, lambda x: x.cumprod(0), INTS),
    (aten.cumprod.default, lambda x: x.cumprod(1), MASKS),
    (aten.cumprod.default, lambda x: x.cumprod(0, dtype=torch.float64), INTS),
    (aten.cumprod.default, lambda x: x.cumprod(0), POINT),
    (aten.logcumsumexp.default, lambda x: x.logcumsumexp(0), FLOATS),
    (aten.logcumsumexp.default, lambda x: x.logcumsumexp(1), HOLES),
    (aten.logcumsumexp.default, lambda x: (x * 100).logcumsumexp(-1), FLOATS),
    (aten.logcumsumexp.default, lambda x: x.logcumsumexp(1), FAR),
    (aten.logcumsumexp.default, lambda x: x.logcumsumexp(1), HALVES),
    (aten.logcumsumexp.default, lambda x: x.logcumsumexp(0), POINT),
    (aten.cummax.default, lambda x: x.cummax(0), FLOATS),
    (aten.cummax.default, lambda x: x.cummax(1), HOLES),
    (aten.cummin.default, lambda x: x.cummin(-1), HOLES),
    (aten.cummin.default, lambda x: x.cummin(0), INTS),
    (aten.cummax.default, lambda x: x.cummax(1), MASKS),
    (aten.cummax.default, lambda x: x.cummax(0), POINT),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


def test_two_runs_in_one_program_have_names_of_their_own():
    model = check(lambda x: x.cumprod(0).cumprod(1) + x.cumprod(0), *FLOATS)
    bodies = [node.attributes["body"].as_graph() for node in model.graph if node.op_type == "Loop"]
    names = [value.name for body in bodies for node in body for value in node.outputs]
    assert len(names) == len(set(names)) > 0
