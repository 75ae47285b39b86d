"""Choices against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
G = torch.Generator().manual_seed(0)
FLOATS = [(torch.randn(n, 3, generator=G), torch.randn(3, generator=G)) for n in (2, 4, 1, 0)]
OTHERS = [
    [((x * 3).to(dtype), (y * 3).to(dtype)) for x, y in FLOATS]
    for dtype in (
        torch.float16,
        torch.float64,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.uint8,
        torch.bool,
    )
]

CASES = [
    *((aten.where.self, lambda x, y: torch.where(x > y, x, y), s) for s in (FLOATS, *OTHERS)),
    (aten.where.self, lambda x, y: torch.where(x > 0, x.long(), y), FLOATS),
    (aten.where.ScalarOther, lambda x, y: torch.where(x > y, x, 2), FLOATS),
    (aten.where.ScalarOther, lambda x, y: torch.where(x > y, x, 2.5), OTHERS[2]),
    (aten.where.ScalarSelf, lambda x, y: torch.where(x > y, 0.5, x), OTHERS[0]),
    (aten.where.Scalar, lambda x, y: torch.where(x > y, 1.0, 0.0), FLOATS),
    (aten.where.Scalar, lambda x, y: torch.where(x > y, True, False), FLOATS),
    *(
        (aten.masked_fill.Scalar, lambda x, y: x.masked_fill(x > y, 1), s)
        for s in (FLOATS, *OTHERS)
    ),
    (aten.masked_fill.Scalar, lambda x, y: x.masked_fill(x > y, float("-inf")), FLOATS),
    (aten.masked_fill.Tensor, lambda x, y: x.masked_fill(x > y, y[0]), FLOATS),
    (aten.masked_fill.Scalar, lambda x, y: y.masked_fill(x > 0, 2.0), FLOATS),
]


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target, exact=True)
