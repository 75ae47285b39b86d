"""The greater, the lesser, and what lies between bounds, against eager."""

import pytest
import torch
from op_case import check

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
G = torch.Generator().manual_seed(0)
FLOATS = [(torch.randn(n, 3, generator=G), torch.randn(3, generator=G)) for n in (2, 4, 1, 0)]
HALVES = [(x.half(), y.half()) for x, y in FLOATS]
INTS = [((x * 9).long(), (y * 9).long()) for x, y in FLOATS]
SHORTS = [(x.short(), y.short()) for x, y in INTS]
BYTES = [(x.abs().byte(), y.abs().byte()) for x, y in INTS]
BOOLS = [(x > 0, y > 0) for x, y in FLOATS]
ODD = [(torch.tensor([NAN, 1.0, NAN, INF, -INF, -0.0]), torch.tensor([1.0, NAN, NAN, 1, 1, 0.0]))]
ALL = (FLOATS, HALVES, INTS, SHORTS, BYTES, BOOLS, ODD)
NUMBERS = (FLOATS, HALVES, INTS, SHORTS, ODD)

CASES = [
    *((aten.maximum.default, torch.maximum, s) for s in ALL),
    *((aten.minimum.default, torch.minimum, s) for s in ALL),
    (aten.max.other, torch.max, FLOATS),
    (aten.min.other, torch.min, INTS),
    *((aten.fmax.default, torch.fmax, s) for s in (FLOATS, INTS, ODD)),
    *((aten.fmin.default, torch.fmin, s) for s in (FLOATS, INTS, ODD)),
    *((aten.clamp.default, lambda x, y: torch.clamp(x, -1, 1), s) for s in NUMBERS),
    *((aten.clamp.default, lambda x, y: torch.clamp(x, min=0.5), s) for s in NUMBERS),
    *((aten.clamp.default, lambda x, y: torch.clamp(x, max=0), s) for s in NUMBERS),
    (aten.clamp.default, lambda x, y: torch.clamp(x, 2, 1), FLOATS),
    (aten.clamp.default, lambda x, y: torch.clamp(x, max=x.shape[0]), INTS),
    *((aten.clamp.Tensor, lambda x, y: torch.clamp(x, y, y + 1), s) for s in NUMBERS),
    (aten.clamp.Tensor, lambda x, y: torch.clamp(x, max=y), FLOATS),
    (aten.clamp_min.default, lambda x, y: torch.clamp_min(x, 0), ODD),
    (aten.clamp_max.default, lambda x, y: torch.clamp_max(x, 0), ODD),
    (aten.clamp_min.Tensor, torch.clamp_min, FLOATS),
    (aten.clamp_max.Tensor, torch.clamp_max, INTS),
    (aten.nan_to_num.default, lambda x, y: torch.nan_to_num(x), ODD),
    (aten.nan_to_num.default, lambda x, y: torch.nan_to_num(x, 1.0, 2.0), ODD),
    (aten.nan_to_num.default, lambda x, y: torch.nan_to_num(x, neginf=-2.0), ODD),
    (aten.nan_to_num.default, lambda x, y: torch.nan_to_num(x.half()), ODD),
    (aten.nan_to_num.default, lambda x, y: torch.nan_to_num(x), INTS),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "inputs"), CASES)
def test_matches_eager(target, function, inputs):
    check(function, *inputs, target=target, exact=True)
