"""Reductions against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten
NAN, INF = float("nan"), float("inf")

FLOATS = (torch.randn(3, 4),), (torch.randn(1, 4),), (torch.randn(5, 4),)
EMPTY = (*FLOATS, (torch.randn(0, 4),))
INTS = (torch.tensor([[3, -1], [2**53 + 1, 5]]),), (torch.tensor([[-7, 2**31]]),)
MASKS = (torch.rand(3, 4) > 0.5,), (torch.rand(1, 4) > 0.5,), (torch.zeros(0, 4) > 0,)
HOLES = (
    (torch.tensor([[1.0, NAN, 3.0], [INF, 2.0, -INF], [0.0, -0.0, NAN]]),),
    (torch.tensor([[NAN, NAN, NAN]]),),
)
LARGE = (  # doubles hold every other of these, and sums of every fourth
    (torch.randint(2**55, 2**58, (3, 4, 5)),), (torch.randint(2**55, 2**58, (1, 5, 2)),),
    (torch.randint(2**55, 2**58, (0, 3, 3)),),
)  # fmt: skip
BESIDE = (torch.tensor([[1.0, INF, NAN]]),), (torch.tensor([[INF, -INF], [2.0, INF]]),)
FAR = (
    (torch.tensor([[-INF, -100.0], [-1000.0, -INF], [-INF, -INF]]),),
    (torch.tensor([[-INF, 1000.0]]),),
)
HALVES = (torch.randn(3, 300, dtype=torch.float16),), (torch.randn(1, 300, dtype=torch.float16),)
POINT = ((torch.tensor(2.5),),)

SUMS = [
    (aten.sum.default, lambda x: x.sum(), EMPTY),
    (aten.sum.dim_IntList, lambda x: x.sum(0), EMPTY),
    (aten.sum.dim_IntList, lambda x: x.sum((-1, 0), keepdim=True), EMPTY),
    (aten.sum.dim_IntList, lambda x: x.sum(()), FLOATS),
    (aten.sum.dim_IntList, lambda x: x.sum(1, dtype=torch.float64), FLOATS),
    (aten.sum.default, lambda x: x.sum(dtype=torch.int64), FLOATS),
    (aten.sum.dim_IntList, lambda x: x.sum(0), INTS),
    (aten.sum.default, lambda x: x.sum(), LARGE),
    (aten.sum.dim_IntList, lambda x: x.sum(0), LARGE),
    (aten.sum.dim_IntList, lambda x: x.sum((0, 2), keepdim=True), LARGE),
    (aten.sum.dim_IntList, lambda x: (x % 1000003 * 31).sum(-1) % 4096, LARGE),
    (aten.sum.default, lambda x: x.sum(), MASKS),
    (aten.sum.dim_IntList, lambda x: x.sum(-1), HALVES),
    (aten.sum.dim_IntList, lambda x: x.sum(0), POINT),
    (aten.sum.dim_IntList, lambda x: x.to(torch.int8).sum(1), FLOATS),
    (aten.nansum.default, lambda x: x.nansum(1), HOLES),
    (aten.nansum.default, lambda x: x.nansum(), INTS),
    (aten.mean.default, lambda x: x.mean(), EMPTY),
    (aten.mean.dim, lambda x: x.mean(0, keepdim=True), EMPTY),
    (aten.mean.dim, lambda x: x.mean(-1), EMPTY),
    (aten.mean.dim, lambda x: x.mean((0, 1)), HALVES),
    (aten.mean.dim, lambda x: x.mean(1, dtype=torch.float32), INTS),
    (aten.mean.default, lambda x: x.mean(), POINT),
    (aten.nanmean.default, lambda x: x.nanmean(1), HOLES),
    (aten.nanmean.default, lambda x: x.nanmean(), HALVES),
    (aten.count_nonzero.default, torch.count_nonzero, HOLES),
    (aten.count_nonzero.dim_IntList, lambda x: torch.count_nonzero(x, (0, 1)), MASKS),
    (aten.count_nonzero.default, lambda x: torch.count_nonzero(x, 0), INTS),
    (aten.logsumexp.default, lambda x: x.logsumexp(1), HOLES),
    (aten.logsumexp.default, lambda x: x.logsumexp((0, 1)), BESIDE),
    (aten.logsumexp.default, lambda x: x.logsumexp((0, 1), keepdim=True), BESIDE),
    (aten.logsumexp.default, lambda x: x.logsumexp((0, 1), keepdim=True), FLOATS),
    (aten.logsumexp.default, lambda x: (x * 1000).logsumexp(0), EMPTY),
    (aten.logsumexp.default, lambda x: x.logsumexp(1), MASKS),
    (aten.logsumexp.default, lambda x: x.logsumexp(1), FAR),
    (aten.special_logsumexp.default, lambda x: torch.special.logsumexp(x, 1), FLOATS),
    (aten.prod.default, lambda x: x.prod(), EMPTY),
    (aten.prod.dim_int, lambda x: x.prod(0, keepdim=True), EMPTY),
    (aten.prod.dim_int, lambda x: x.prod(0), INTS),
    (aten.prod.dim_int, lambda x: x.prod(-1, keepdim=True), INTS),
    (aten.prod.default, lambda x: x.prod(), INTS),
    (aten.prod.default, lambda x: x.prod(), MASKS),
    (aten.prod.dim_int, lambda x: x.prod(1, dtype=torch.int32), INTS),
    (aten.prod.default, lambda x: x.prod(), POINT),
]
EXTREMES = [
    (aten.amax.default, lambda x: x.amax(1), HOLES),
    (aten.amax.default, lambda x: x.amax(), HOLES),
    (aten.amin.default, lambda x: x.amin((0, 1), keepdim=True), HOLES),
    (aten.amin.default, lambda x: x.amin(-1), EMPTY),
    (aten.amax.default, lambda x: x.amax(1), MASKS),
    (aten.amax.default, lambda x: x.to(torch.int16).amax(0), FLOATS),
    (aten.max.default, lambda x: x.max(), HOLES),
    (aten.min.default, lambda x: x.min(), INTS),
    (aten.max.default, lambda x: x.max(), POINT),
    (aten.max.dim, lambda x: x.max(1), HOLES),
    (aten.max.dim, lambda x: x.max(0, keepdim=True), INTS),
    (aten.min.dim, lambda x: x.min(-1), EMPTY),
    (aten.min.dim, lambda x: x.min(1)[1], HOLES),
    (aten.max.dim, lambda x: x.max(1), MASKS),
    (aten.max.dim, lambda x: x.max(-1), HALVES),
    (aten.max.dim, lambda x: x.max(0), POINT),
    (aten.aminmax.default, lambda x: tuple(torch.aminmax(x)), HOLES),
    (aten.aminmax.default, lambda x: tuple(torch.aminmax(x, dim=-1, keepdim=True)), FLOATS),
    (aten.argmax.default, lambda x: x.argmax(), HOLES),
    (aten.argmax.default, lambda x: x.argmax(-1, keepdim=True), HOLES),
    (aten.argmin.default, lambda x: x.argmin(1), HOLES),
    (aten.argmin.default, lambda x: x.argmin(0), INTS),
    (aten.argmax.default, lambda x: x.argmax(1), EMPTY),
    (aten.argmax.default, lambda x: x.argmax(keepdim=True), FLOATS),
    (aten.argmax.default, lambda x: torch.round(x).argmax(1), FLOATS),  # ties
    (aten.argmax.default, lambda x: x.argmax(), POINT),
]
TRUTHS = [
    (aten.any.default, lambda x: x.any(), MASKS),
    (aten.any.dim, lambda x: x.any(0, keepdim=True), MASKS),
    (aten.any.dims, lambda x: torch.any(x, (0, 1)), MASKS),
    (aten.all.default, lambda x: x.all(), MASKS),
    (aten._is_all_true.default, aten._is_all_true, MASKS),
    (aten._is_any_true.default, aten._is_any_true, MASKS),
    (aten.all.dim, lambda x: x.all(1), MASKS),
    (aten.all.dims, lambda x: torch.all(x, ()), HOLES),
    (aten.any.dim, lambda x: x.any(1), HOLES),
    # What a negative float is as a uint8 is undefined in C.
    (aten.all.default, lambda x: x.abs().to(torch.uint8).all(), FLOATS),
    (aten.all.dim, lambda x: x.all(-1), [(torch.randn(2, 3),)]),
    (aten.any.default, lambda x: x.any(), POINT),
]


@pytest.mark.parametrize(("target", "function", "sets"), [*SUMS, *EXTREMES, *TRUTHS])
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize("function", [lambda x: x.any(1), lambda x: x.max(1), lambda x: x.all()])
@pytest.mark.parametrize("opset", [18, 23])
def test_older_and_newer_opsets(function, opset):
    check(function, *HOLES, opset=opset)


def test_plain_reductions_are_one_node():
    for function in (lambda x: x.sum(1), lambda x: x.mean(-1), lambda x: x.prod(0)):
        assert len(translate(export(function, *FLOATS), 20).graph) == 1
    assert len(translate(export(lambda x: x.amax(0), (torch.tensor([[1, 2]]),)), 20).graph) == 1
