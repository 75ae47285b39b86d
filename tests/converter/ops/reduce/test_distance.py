"""Distances against eager, at sizes other than those exported."""

from math import inf

import pytest
import torch
from op_case import check
from torch import nn

from torchferry.graph.runtime import EMPTY_TENSORS
from versions import can

aten = torch.ops.aten
f = nn.functional
r = torch.randn

ROWS = (r(2, 3, 4), r(2, 3, 4)), (r(1, 5, 4), r(1, 5, 4))
CASES = [
    (aten.cosine_similarity.default, f.cosine_similarity, ROWS),
    (aten.cosine_similarity.default, lambda x, y: f.cosine_similarity(x, y, -1), ROWS),
    (aten.cosine_similarity.default, f.cosine_similarity, [(r(2, 3, 4), r(3, 1))]),
    (aten.cosine_similarity.default, lambda x, y: f.cosine_similarity(x, y, 0), [(r(()), r(()))]),
    (
        aten.cosine_similarity.default,
        f.cosine_similarity,
        [(r(2, 1), r(2, 3)), (r(1, 1), r(1, 3))],
    ),
    (aten.cosine_similarity.default, f.cosine_similarity, [(torch.zeros(2, 3), r(2, 3))]),
    (aten.cosine_similarity.default, f.cosine_similarity, [(r(2, 3).half(), r(2, 3).half())]),
    (
        aten._cdist_forward.default,
        lambda x, y: aten._cdist_forward(x, y, 2.0, None),
        [(r(3, 4), r(5, 4))],
    ),
    (aten._pdist_forward.default, lambda x: aten._pdist_forward(x, 1.0), [(r(5, 4),)]),
    (aten.cdist.default, torch.cdist, [(r(30, 4), r(40, 4))]),
    (
        aten.pairwise_distance.default,
        f.pairwise_distance,
        [(torch.arange(6).reshape(2, 3), torch.arange(6, 0, -1).reshape(2, 3))],
    ),
    (aten.cdist.default, torch.cdist, [(r(2, 0, 4), r(2, 3, 4))]),
    (aten.cdist.default, torch.cdist, [(r(2, 3).double(), r(5, 3).double())]),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, inf])
def test_norms(p):
    check(lambda x, y: f.pairwise_distance(x, y, p), *ROWS, target=aten.pairwise_distance.default)
    check(lambda x, y: f.pairwise_distance(x, y, p, keepdim=True), *ROWS)
    pairs = (r(2, 3, 4), r(2, 5, 4)), (r(1, 6, 4), r(1, 2, 4))
    check(lambda x, y: torch.cdist(x, y, p), *pairs, target=aten.cdist.default)
    rows = (4, 6, 1) if can(EMPTY_TENSORS) else (4, 6)  # one row has no pairs
    check(lambda x: f.pdist(x, p), *((r(n, 3),) for n in rows), target=aten.pdist.default)
    check(lambda x: f.pdist(x, p), (r(4, 3),), target=aten.pdist.default)
