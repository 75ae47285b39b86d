"""Losses of classes against eager: weights, ignored targets, smoothing, probabilities."""

import pytest
import torch
from op_case import check
from torch import nn

aten = torch.ops.aten
f = nn.functional
r = torch.randn
WEIGHT = torch.rand(5)
REDUCTIONS = pytest.mark.parametrize("reduction", ["none", "mean", "sum"])


def ids(*sizes):
    return torch.randint(0, 5, sizes)


ROWS = [(r(4, 5), ids(4)), (r(3, 5), torch.tensor([1, 0, 4]))]
PLANES = [(r(4, 5, 3, 2), ids(4, 3, 2)), (r(1, 5, 2, 2), ids(1, 2, 2))]
ONE = [(r(5), torch.tensor(2))]
ALL_IGNORED = [(r(2, 5), torch.tensor([1, 1]))]


@REDUCTIONS
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("sets", [ROWS, PLANES, ONE, ALL_IGNORED])
def test_negative_log_likelihood(sets, weight, reduction):
    check(lambda x, y: f.nll_loss(x, y, weight, ignore_index=1, reduction=reduction), *sets,
          target=aten.nll_loss_nd.default)  # fmt: skip


@REDUCTIONS
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
@pytest.mark.parametrize("sets", [ROWS, PLANES, ONE])
def test_cross_entropy(sets, weight, smoothing, reduction):
    def loss(x, y):
        return f.cross_entropy(x, y, weight, ignore_index=1, reduction=reduction,
                               label_smoothing=smoothing)  # fmt: skip

    check(loss, *sets, target=aten.cross_entropy_loss.default)


@REDUCTIONS
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weight", [None, WEIGHT])
def test_cross_entropy_of_probabilities(weight, smoothing, reduction):
    def loss(x, y):
        return f.cross_entropy(x, y, weight, reduction=reduction, label_smoothing=smoothing)

    check(loss, (r(4, 5, 3), torch.rand(4, 5, 3)), (r(1, 5, 2), torch.rand(1, 5, 2)))
    check(loss, (r(5), torch.rand(5)))


def test_half_precision():
    check(f.cross_entropy, (r(4, 5).half(), ids(4)))


@REDUCTIONS
@pytest.mark.parametrize("p", [1, 2])
def test_multi_margin(p, reduction):
    def loss(x, y, weight):
        return f.multi_margin_loss(x, y, p, 0.8, weight, reduction=reduction)

    check(loss, (*ROWS[0], WEIGHT), (*ROWS[1], WEIGHT), target=aten.multi_margin_loss.default)


@REDUCTIONS
def test_multilabel_margin(reduction):
    def loss(x, y):
        return f.multilabel_margin_loss(x, y, reduction=reduction)

    target = aten.multilabel_margin_loss.default
    check(loss, (r(2, 4), torch.tensor([[3, 0, -1, 1], [-1, 1, 2, 3]])),
          (r(1, 4), torch.tensor([[2, 1, 3, 0]])), target=target)  # fmt: skip
    if reduction != "none":  # torch.export takes the shape of one loss for [1]
        check(loss, (r(4), torch.tensor([3, 0, -1, 1])), target=target)


CASES = [
    (aten.nll_loss_forward.default,
     lambda x, y: aten.nll_loss_forward(x, y, None, 1, 2), ROWS),
    (aten.nll_loss2d_forward.default,
     lambda x, y: aten.nll_loss2d_forward(x, y, None, 2, 2), PLANES),
    (aten.nll_loss.default, aten.nll_loss, ROWS),
    (aten.nll_loss2d.default, aten.nll_loss2d, PLANES),
    (aten.multilabel_margin_loss_forward.default,
     lambda x, y: aten.multilabel_margin_loss_forward(x, y, 1),
     [(r(2, 4), torch.tensor([[3, 0, -1, 1], [-1, 1, 2, 3]]))]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_the_kernels(target, function, sets):
    check(function, *sets, target=target)
