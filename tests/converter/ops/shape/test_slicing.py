"""Parts along an axis."""

import pytest
import torch
from op_case import check, export

from torchferry.converter.translate import translate

aten = torch.ops.aten
ROWS = [(torch.randn(5, 4),), (torch.randn(7, 4),), (torch.randn(1, 4),), (torch.randn(0, 4),)]
SOME = ROWS[:3]
PLANES = [(torch.randn(3, 4, 2),), (torch.randn(5, 4, 2),), (torch.randn(1, 4, 2),)]
SCALAR = [(torch.tensor(1.5),)]
INTO = [(torch.randn(5, 4), torch.randn(5, 2)), (torch.randn(1, 4), torch.randn(1, 2))]

CASES = [
    (aten.slice.Tensor, lambda x: x[1:3], ROWS),
    (aten.slice.Tensor, lambda x: x[-2:], ROWS),
    (aten.slice.Tensor, lambda x: x[:-1, ::2], ROWS),
    (aten.slice.Tensor, lambda x: x[:, 3:1], ROWS),
    (aten.slice.Tensor, lambda x: x[:, -9:9], ROWS),
    (aten.slice.Tensor, lambda x: x[x.shape[0] // 2 :], ROWS),
    (aten.slice.Tensor, lambda x: x[: x.shape[0] - 1 : 2], SOME),
    (aten.select.int, lambda x: x[:, -1], ROWS),
    (aten.select.int, lambda x: x[0], SOME),
    (aten.select.int, lambda x: x.select(0, x.shape[0] - 1), SOME),
    (aten.narrow.default, lambda x: x.narrow(1, 1, 2), ROWS),
    (aten.narrow.default, lambda x: x.narrow(1, -2, 2), ROWS),
    (aten.narrow_copy.default, lambda x: torch.narrow_copy(x, 1, 0, 3), ROWS),
    (aten.flip.default, lambda x: x.flip(0, -1), ROWS),
    (aten.flip.default, lambda x: x.flip(()), ROWS),
    (aten.flip.default, lambda x: x.flip(0), SCALAR),
    (aten.fliplr.default, lambda x: x.fliplr(), ROWS),
    (aten.flipud.default, lambda x: x.flipud(), ROWS),
    (aten.rot90.default, lambda x: x.rot90(), ROWS),
    (aten.rot90.default, lambda x: x.rot90(2), ROWS),
    (aten.rot90.default, lambda x: x.rot90(-1, (2, 0)), PLANES),
    (aten.rot90.default, lambda x: x.rot90(4), ROWS),
    (aten.roll.default, lambda x: x.roll(2, 0), ROWS),
    (aten.roll.default, lambda x: x.roll((-9, 3), (0, 1)), ROWS),
    (aten.roll.default, lambda x: x.roll(4, 1), ROWS),
    (aten.roll.default, lambda x: x.roll(3), ROWS),
    (aten.roll.default, lambda x: x.roll(x.shape[0] + 1, 1), ROWS),
    (aten.unfold.default, lambda x: x.unfold(1, 3, 1), ROWS),
    (aten.unfold.default, lambda x: x.unfold(0, 1, 2), SOME),
    (aten.unfold.default, lambda x: x.unfold(1, 2, 2), PLANES),
    (aten.unfold.default, lambda x: x.unfold(0, 1, 1), SCALAR),
    (aten.slice_scatter.default, lambda x, y: torch.slice_scatter(x, y, 1, 1, 3), INTO),
    (aten.slice_scatter.default, lambda x, y: torch.slice_scatter(x, y, 1, 0, 4, 2), INTO),
    (aten.slice_scatter.default, lambda x, y: torch.slice_scatter(x, y, 1, -2), INTO),
    (aten.slice_scatter.default, lambda x, y: torch.slice_scatter(x, x + 1), INTO),
    (aten.slice_scatter.default, lambda x, y: torch.slice_scatter(x, x[:, :0], 1, 3, 1), INTO),
    (aten.slice_scatter.default,
     lambda x, y: torch.slice_scatter(x, x[:1], 0, x.shape[0] - 1, x.shape[0]), INTO),
    (aten.select_scatter.default, lambda x, y: torch.select_scatter(x, y[:, 0], 1, -1), INTO),
    (aten.select_scatter.default, lambda x, y: torch.select_scatter(x, x[0], 0, 0), INTO),
    (aten.select_scatter.default,
     lambda x, y: torch.select_scatter(x, x[0], 0, x.shape[0] - 1), INTO),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target, exact=True)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.float16, torch.complex64])
def test_any_dtype(dtype):
    def function(x):
        parts = x[:, 1:3], x[:, -1], x.flip(0, 1), x.roll(1, 0), x.unfold(1, 2, 1)
        return *parts, torch.slice_scatter(x, x[:, :1], 1, 2, 3), x.rot90()

    check(function, *[((x > 0).to(dtype),) for (x,) in SOME])


def test_a_part_in_place():
    def function(x):
        y = x.clone()
        y[:, 1:3] = 0
        y[0] += 1
        return y

    check(function, *SOME, exact=True)


def test_what_is_whole_is_no_node():
    model = translate(export(lambda x: x[:, :].roll(4, 1)[:, :9] + 1, *ROWS), 20)
    assert [node.op_type for node in model.graph] == ["Add"]
