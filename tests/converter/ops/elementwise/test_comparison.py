"""Comparisons and logic against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
G = torch.Generator().manual_seed(0)
INTS = [
    (torch.randint(-2, 3, (n, 3), generator=G), torch.tensor([0, 1, -1])) for n in (2, 4, 1, 0)
]
FLOATS = [(x.float(), y.float()) for x, y in INTS]
MIXED = [(x, y.float()) for x, y in INTS]
OTHERS = [
    [(x.to(dtype), y.to(dtype)) for x, y in INTS]
    for dtype in (torch.float16, torch.float64, torch.int32, torch.int8, torch.bool)
]
ODD = [
    (torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1, NAN]), torch.tensor([NAN, INF, 1, -0.0, 0, 2, 1]))
]
COMPARED = ("eq", "ne", "gt", "ge", "lt", "le")
KINDS = ("isnan", "isinf", "isposinf", "isneginf", "isfinite", "isreal", "signbit")

CASES = [
    *((getattr(aten, name).Tensor, getattr(torch, name), s)
      for name in COMPARED for s in (FLOATS, INTS, MIXED, ODD, *OTHERS)),
    *((getattr(aten, name).Scalar, lambda x, y, name=name: getattr(torch, name)(x, 0.5), s)
      for name in COMPARED for s in (FLOATS, INTS)),
    (aten.lt.Scalar, lambda x, y: x < x.shape[0], INTS),
    *((getattr(aten, f"logical_{name}").default, getattr(torch, f"logical_{name}"), s)
      for name in ("and", "or", "xor") for s in (FLOATS, INTS, ODD, OTHERS[-1])),
    *((aten.logical_not.default, lambda x, y: torch.logical_not(x), s) for s in (INTS, ODD)),
    *((getattr(aten, name).default, lambda x, y, name=name: getattr(torch, name)(x), s)
      for name in KINDS for s in (ODD, INTS, OTHERS[0])),
    *((aten.isclose.default, torch.isclose, s) for s in (FLOATS, INTS, ODD)),
    (aten.isclose.default, lambda x, y: torch.isclose(x, y, equal_nan=True), ODD),
    (aten.isclose.default, lambda x, y: torch.isclose(x, y, rtol=0.5, atol=0.1), FLOATS),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target)
