"""Adaptive pooling against eager, above all at sizes that the wanted ones do not divide."""

import pytest
import torch
from op_case import check
from torch import nn

aten = torch.ops.aten
f = nn.functional
r = torch.randn

LINES = (r(2, 3, 8),), (r(1, 3, 7),), (r(1, 3, 3),)
PLANES = (r(2, 3, 8, 9),), (r(1, 3, 7, 11),), (r(2, 3, 6, 13),), (r(2, 3, 2, 3),)
CUBES = (r(2, 3, 8, 9, 4),), (r(1, 3, 7, 11, 5),)
SIZES = [(3, 4), (1, 1), (5, 1), (1, 6)]


@pytest.mark.parametrize("size", [*SIZES, (4, None)])
@pytest.mark.parametrize("sets", [PLANES, PLANES[:1]], ids=["dynamic", "static"])
def test_average(size, sets):
    check(lambda x: f.adaptive_avg_pool2d(x, size), *sets,
          target=aten.adaptive_avg_pool2d.default)  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("sets", [PLANES, PLANES[:1]], ids=["dynamic", "static"])
def test_maximum(size, sets):
    check(lambda x: f.adaptive_max_pool2d(x, size, return_indices=True), *sets,
          target=aten.adaptive_max_pool2d.default)  # fmt: skip


CASES = [
    (aten.adaptive_avg_pool1d.default, lambda x: f.adaptive_avg_pool1d(x, 5), LINES),
    (aten.adaptive_avg_pool1d.default, lambda x: f.adaptive_avg_pool1d(x, 4), [(r(3, 8),)]),
    (aten.adaptive_avg_pool2d.default, lambda x: f.adaptive_avg_pool2d(x, (2, 3)),
     [(r(2, 3, 8, 9).double(),)]),
    (aten.adaptive_avg_pool2d.default, lambda x: f.adaptive_avg_pool2d(x, (3, 2)),
     [(r(2, 3, 8, 9).half(),), (r(1, 3, 7, 9).half(),)]),
    (aten.adaptive_avg_pool2d.default,
     lambda x, y: f.adaptive_avg_pool2d(x, y.shape),
     [(r(2, 3, 8, 9), r(2, 3)), (r(1, 3, 7, 5), r(4, 2))]),
    (aten._adaptive_avg_pool2d.default, lambda x: aten._adaptive_avg_pool2d(x, [3, 3]), PLANES),
    (aten.adaptive_avg_pool3d.default, lambda x: f.adaptive_avg_pool3d(x, (2, 3, 2)), CUBES),
    (aten._adaptive_avg_pool3d.default, lambda x: aten._adaptive_avg_pool3d(x, [2, 2, 3]), CUBES),
    (aten.adaptive_max_pool1d.default,
     lambda x: f.adaptive_max_pool1d(x, 5, return_indices=True), LINES),
    (aten.adaptive_max_pool2d.default,
     lambda x: f.adaptive_max_pool2d(x, (4, 3), return_indices=True), [(r(2, 3, 8, 9),)]),
    (aten.adaptive_max_pool3d.default,
     lambda x: f.adaptive_max_pool3d(x, (2, 3, 2), return_indices=True), CUBES),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


def test_infinity_stays_in_its_own_window():
    x = r(1, 1, 7)
    x[0, 0, 0] = torch.inf
    check(lambda x: f.adaptive_avg_pool1d(x, 3), (x,), (torch.cat([x, x], 2),))


def test_ties_go_to_the_first():
    check(lambda x: f.adaptive_max_pool2d(x, (2, 3), return_indices=True),
          (torch.ones(1, 2, 5, 7),), (torch.ones(1, 2, 4, 8),))  # fmt: skip


def test_plain_where_the_size_is_a_multiple():
    model = check(lambda x: f.adaptive_avg_pool2d(x, (4, 3)), (r(2, 3, 8, 9),))
    assert [node.op_type for node in model.graph] == ["AveragePool"]
