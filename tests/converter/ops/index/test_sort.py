"""Elements in order."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")
ROWS = [(torch.randn(4, 6),), (torch.randn(7, 6),), (torch.randn(1, 6),), (torch.randn(0, 6),)]
SOME = ROWS[:3]
TIES = [((x * 2).round(),) for (x,) in SOME]
STRANGE = [(torch.tensor([[1.0, NAN, INF, -INF, NAN, 0.0, -0.0], [INF, 2, NAN, INF, 2, 1, NAN]]),)]
SCALAR = [(torch.tensor(1.5),)]

CASES = [
    *[(aten.sort.default, lambda x, d=d, e=e: x.sort(d, e), sets)
      for sets in (TIES, STRANGE) for d in (-1, 0) for e in (False, True)],
    (aten.sort.default, lambda x: x.sort(), ROWS),
    (aten.sort.default, lambda x: x.sort(), SCALAR),
    (aten.sort.stable, lambda x: x.sort(stable=True, dim=0, descending=True), TIES),
    (aten.argsort.default, lambda x: x.argsort(0, True), TIES),
    (aten.argsort.stable, lambda x: torch.argsort(x, dim=1, stable=True), STRANGE),
    (aten.argsort.default, lambda x: x.argsort(), SCALAR),
    (aten.msort.default, lambda x: x.msort(), STRANGE),
    *[(aten.topk.default, lambda x, k=k: x.topk(k), ROWS) for k in (0, 1, 3, 6)],
    (aten.topk.default, lambda x: x.topk(2, 0, largest=False), SOME[:2]),
    (aten.topk.default, lambda x: x.topk(x.shape[0] // 2 + 1, 0), SOME),
    (aten.topk.default, lambda x: x.topk(1), SCALAR),
    (aten.topk.default, lambda x: x.topk(3).values, STRANGE),
    (aten.topk.default, lambda x: x.topk(5, largest=False).values, STRANGE),
    (aten.kthvalue.default, lambda x: x.kthvalue(2), SOME),
    (aten.kthvalue.default, lambda x: x.kthvalue(1, 0, True), SOME),
    (aten.kthvalue.default, lambda x: x.kthvalue(6).values, STRANGE),
    (aten.kthvalue.default, lambda x: x.kthvalue(1), SCALAR),
    (aten.median.dim, lambda x: x.median(1), SOME),
    (aten.median.dim, lambda x: x.median(0, True), SOME),
    (aten.median.dim, lambda x: x.median(-1).values, STRANGE),
    (aten.median.dim, lambda x: x.median(0), SCALAR),
    (aten.median.default, lambda x: x.median(), SOME),
    (aten.median.default, lambda x: x.median(), STRANGE),
    (aten.median.default, lambda x: x.median(), SCALAR),
    (aten.median.default, lambda x: x[:, :0].median(), SOME[:1]),
    (aten.nanmedian.default, lambda x: x.nanmedian(), STRANGE),
    (aten.nanmedian.default, lambda x: (x * NAN).nanmedian(), SOME),
    (aten.nanmedian.dim, lambda x: x.nanmedian(1).values, STRANGE),
    (aten.nanmedian.dim, lambda x: x.nanmedian(0), SOME),
    (aten.mode.default, lambda x: x.mode().values, TIES),
    (aten.mode.default, lambda x: x.mode(0, True).values, TIES),
    (aten.mode.default, lambda x: x.mode(), SCALAR),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.float16, torch.float64]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_dtype(dtype):
    def function(x):
        parts = *x.sort(stable=True), x.mode()[0]
        return parts if dtype is torch.bool else (*parts, x.topk(2)[0], x.kthvalue(2, 0)[0])

    check(function, *[((x * 3).to(dtype),) for (x,) in SOME[:2]])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16])
def test_the_middle_of_any_dtype(dtype):
    check(lambda x: (x.median(), x.median(1).values, x.nanmedian(0).values),
          *[((x * 30).to(dtype),) for x, in SOME[:2]])  # fmt: skip


def test_places_point_to_the_values():
    def function(x):
        pairs = x.median(1), x.nanmedian(1), x.nan_to_num().mode(1), x.kthvalue(5)
        return [(v == x.nan_to_num().gather(1, i[:, None])[:, 0]) | v.isnan() for v, i in pairs]

    check(function, *STRANGE, exact=True)


def test_integers_need_one_node():
    model = translate(export(lambda x: x.topk(2), (torch.arange(6),)), 20)
    assert [node.op_type for node in model.graph] == ["TopK"]
