"""Element-wise losses against eager, in every reduction."""

import pytest
import torch
from op_case import check
from torch import nn

aten = torch.ops.aten
f = nn.functional
r = torch.randn

pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss")

PAIRS = (r(2, 3, 4), r(2, 3, 4)), (r(1, 5, 4), r(1, 5, 4)), (r(0, 3, 4), r(0, 3, 4))
FULL = PAIRS[:2]
SHARES = [
    (torch.rand(2, 3), torch.rand(2, 3), torch.rand(3)),
    (torch.tensor([[0.0, 1.0, 0.5]]), torch.tensor([[1.0, 0.0, 0.5]]), torch.rand(3)),
]
SIGNS = torch.tensor([1, -1, 1])
THREE = (r(3, 4), r(3, 4), r(3, 4)), (r(2, 4), r(2, 4), r(2, 4))

CASES = [
    (aten.mse_loss.default, f.mse_loss, PAIRS),
    (
        aten.mse_loss.default,
        lambda x, y, reduction: f.mse_loss(x.half(), y.half(), reduction=reduction),
        FULL,
    ),
    (
        aten.mse_loss.default,
        lambda x, y, reduction: f.mse_loss(x.double(), y.double(), reduction=reduction),
        FULL,
    ),
    (aten.l1_loss.default, f.l1_loss, PAIRS),
    (
        aten.smooth_l1_loss.default,
        lambda x, y, reduction: f.smooth_l1_loss(x, y, reduction=reduction, beta=0.3),
        PAIRS,
    ),
    (
        aten.huber_loss.default,
        lambda x, y, reduction: f.huber_loss(x, y, reduction=reduction, delta=0.4),
        PAIRS,
    ),
    (
        aten.binary_cross_entropy.default,
        lambda x, y, w, reduction: f.binary_cross_entropy(
            x, y, w.expand_as(x), reduction=reduction
        ),
        SHARES,
    ),
    (
        aten.binary_cross_entropy.default,
        lambda x, y, w, reduction: f.binary_cross_entropy(x, y, reduction=reduction),
        SHARES,
    ),
    (
        aten.binary_cross_entropy_with_logits.default,
        lambda x, y, w, reduction: f.binary_cross_entropy_with_logits(
            x * 40 - 20, y, w, reduction=reduction, pos_weight=w * 2
        ),
        SHARES,
    ),
    (
        aten.binary_cross_entropy_with_logits.default,
        lambda x, y, w, reduction: f.binary_cross_entropy_with_logits(
            x.double() * 40, y.double(), reduction=reduction
        ),
        SHARES,
    ),
    (
        aten.soft_margin_loss.default,
        lambda x, y, reduction: f.soft_margin_loss(x, y.sign(), reduction=reduction),
        FULL,
    ),
    (
        aten.kl_div.default,
        lambda x, y, reduction: f.kl_div(x, y.relu(), reduction=reduction),
        PAIRS,
    ),
    (
        aten.kl_div.default,
        lambda x, y, reduction: f.kl_div(x, y, reduction=reduction, log_target=True),
        PAIRS,
    ),
    (
        aten.poisson_nll_loss.default,
        lambda x, y, reduction: f.poisson_nll_loss(x, y.abs() * 3, full=True, reduction=reduction),
        FULL,
    ),
    (
        aten.poisson_nll_loss.default,
        lambda x, y, reduction: f.poisson_nll_loss(
            x.abs(), y.abs(), log_input=False, reduction=reduction
        ),
        FULL,
    ),
    (
        aten.margin_ranking_loss.default,
        lambda x, y, reduction: f.margin_ranking_loss(x, y, y.sign(), 0.2, reduction=reduction),
        FULL,
    ),
    (
        aten.hinge_embedding_loss.default,
        lambda x, y, reduction: f.hinge_embedding_loss(x, y.sign(), 0.7, reduction=reduction),
        FULL,
    ),
    (
        aten.cosine_embedding_loss.default,
        lambda x, y, z, reduction: f.cosine_embedding_loss(x, y, z, 0.1, reduction=reduction),
        [(r(3, 4), r(3, 4), SIGNS), (r(2, 4), r(2, 4), SIGNS[:2])],
    ),
    (aten.triplet_margin_loss.default, f.triplet_margin_loss, THREE),
    (
        aten.triplet_margin_loss.default,
        lambda x, y, z, reduction: f.triplet_margin_loss(
            x, y, z, 0.5, 1, swap=True, reduction=reduction
        ),
        THREE,
    ),
]


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets, reduction):
    check(lambda *t: function(*t, reduction=reduction), *sets, target=target)


def test_a_beta_of_zero_is_the_distance():
    check(lambda x, y: f.smooth_l1_loss(x, y, beta=0.0), *FULL)


INTEGERS = [(torch.arange(12).reshape(3, 4), torch.arange(12, 0, -1).reshape(3, 4))]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_losses_of_integers_are_floats(dtype):
    sets = [tuple(x.to(dtype) for x in pair) for pair in INTEGERS]
    sign = torch.tensor([1, -1, 1])
    check(lambda x, y: f.cosine_embedding_loss(x, y, sign), *sets)
    if dtype is torch.int64:
        check(f.poisson_nll_loss, *sets)
        check(lambda x, y: f.triplet_margin_loss(x, y, x * 2), *sets)
