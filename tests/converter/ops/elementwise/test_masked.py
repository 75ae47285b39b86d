"""Which elements are true."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
X = torch.tensor([[0.0, 2.0, -0.0], [float("nan"), 0.0, 1.0]])
SETS = [(X,), (torch.zeros(1, 3),), (torch.ones(4, 3),), (torch.zeros(0, 3),)]

CASES = [
    (aten.nonzero.default, lambda x: x.nonzero(), SETS),
    (aten.nonzero.default, lambda x: x.sum().nan_to_num().nonzero(), SETS),
    *[(aten.nonzero_static.default, lambda x, n=n: torch.nonzero_static(x, size=n), SETS[:3])
      for n in (0, 2, 20)],
    (aten.nonzero_static.default,
     lambda x: torch.nonzero_static(x, size=4, fill_value=7), SETS[:3]),
    (aten.argwhere.default, lambda x: x.argwhere(), SETS),
    (aten.nonzero_numpy.default, lambda x: x.nonzero(as_tuple=True), SETS),
    (aten.where.default, lambda x: torch.where(x > 0), SETS),
    (aten.where.default, lambda x: torch.where(x.sum() > 0), SETS),
    (aten.masked_select.default, lambda x: x.masked_select(x > 0), SETS),
    (aten.masked_select.default, lambda x: x.masked_select(x[:1] > 0), SETS[:3]),
    (aten.masked_select.default, lambda x: x[:1].masked_select(x > 0), SETS[:3]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float16, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype(dtype):
    inputs = [(x.nan_to_num().to(dtype),) for (x,) in SETS]
    check(lambda x: (x.nonzero(), x.masked_select(x > 0)), *inputs)
