"""Each element once."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN = float("nan")


def inputs(dtype):
    """Matrices with elements and rows that repeat."""
    sizes = ((5, 3), (7, 3), (1, 3))
    made = [(torch.arange(r * c).reshape(r, c) * 7 % 5 % 3 - 1) for r, c in sizes]
    made[0][2:4] = made[0][0]
    return [(x.to(dtype),) for x in made]


FLOAT, LONG = inputs(torch.float32), inputs(torch.int64)
STRANGE = [(torch.tensor([[1.0, NAN], [0.0, NAN], [1.0, NAN], [-0.0, 3.0]]),)]
NOTHING = [(torch.arange(4),), (torch.zeros(0, dtype=torch.int64),), (torch.tensor([3]),)]
NO_FLOAT = [(x.float(),) for (x,) in NOTHING]
BOTH = {"return_inverse": True, "return_counts": True}

CASES = [
    *[(aten._unique2.default, lambda x: x.unique(**BOTH), sets)
      for sets in (FLOAT, LONG, STRANGE, NOTHING, NO_FLOAT)],
    (aten._unique2.default, lambda x: x.unique(), FLOAT),
    (aten._unique2.default, lambda x: x.sum().unique(**BOTH), FLOAT),
    *[(aten.unique_dim.default, lambda x, d=d: x.unique(dim=d, **BOTH), sets)
      for sets in (FLOAT, LONG) for d in (0, -1)],
    *[(aten.unique_consecutive.default, lambda x: x.unique_consecutive(**BOTH), sets)
      for sets in (FLOAT, LONG, STRANGE, NOTHING, NO_FLOAT)],
    *[(aten.unique_consecutive.default, lambda x, d=d: x.unique_consecutive(dim=d, **BOTH), sets)
      for sets in (FLOAT, LONG) for d in (0, 1)],
    (aten.unique_consecutive.default, lambda x: x.unique_consecutive(dim=0), NOTHING[:1]),
    (aten.bincount.default, lambda x: x.bincount(), NOTHING),
    (aten.bincount.default, lambda x: x.bincount(minlength=9), NOTHING),
    (aten.bincount.default, lambda x: (x % 2).bincount(x * 1.5), NOTHING[::2]),
    (aten.bincount.default, lambda x: (x % 2).bincount(x), NOTHING[::2]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


DTYPES = [torch.bool, torch.uint8, torch.int16, torch.int32, torch.float16, torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype(dtype):
    def function(x):
        return x.unique(**BOTH), x.unique_consecutive(**BOTH), x.unique_consecutive(dim=0)

    check(function, *inputs(dtype)[:2], exact=True)
