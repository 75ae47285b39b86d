"""Embeddings and bags of them against eager, at sizes other than those exported."""

import pytest
import torch
from op_case import check
from torch import nn

aten = torch.ops.aten
f = nn.functional
r = torch.randn


def ids(*sizes, top=5):
    return torch.randint(0, top, sizes)


CASES = [
    (aten.embedding.default, nn.Embedding(5, 4), [(ids(2, 3),), (ids(1, 7),), (ids(0, 3),)]),
    (aten.embedding.default, nn.Embedding(5, 4, padding_idx=0), [(ids(2, 3).int(),)]),
    (aten.one_hot.default, lambda x: f.one_hot(x, 5), [(ids(2, 3),), (ids(1, 7),)]),
    (aten.one_hot.default, lambda x: f.one_hot(x, 5), [(torch.tensor(3),)]),
]


@pytest.mark.parametrize(("target", "function", "sets"), CASES)
def test_matches_eager(target, function, sets):
    check(function, *sets, target=target)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags_by_offsets(mode, padding):
    def bag(indices, offsets, weight):
        return f.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=padding)

    check(
        bag,
        (ids(7), torch.tensor([0, 2, 2, 5]), r(5, 3)),
        (torch.tensor([2, 2, 1]), torch.tensor([0, 2]), r(5, 3)),
        (ids(4), torch.tensor([0, 0, 4, 4]), r(5, 3)),
        target=aten.embedding_bag.padding_idx,
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_one_size(mode):
    check(nn.EmbeddingBag(5, 3, mode=mode), (ids(3, 4),), (ids(1, 2),))


def test_weighted_bags_with_the_last_offset():
    def bag(indices, offsets, weight, weights):
        return f.embedding_bag(indices, weight, offsets, mode="sum", per_sample_weights=weights,
                               include_last_offset=True)  # fmt: skip

    check(
        bag,
        (ids(7), torch.tensor([0, 2, 5, 7]), r(5, 3), r(7)),
        (ids(4), torch.tensor([0, 4, 4]), r(5, 3), r(4)),
    )


def test_bags_in_half_precision():
    check(lambda i, w: f.embedding_bag(i, w, mode="mean"), (ids(3, 4), r(5, 3).half()))


def test_the_kernel_of_bags():
    check(lambda i, o, w: aten._embedding_bag(w, i, o)[0], (ids(7), torch.tensor([0, 3]), r(5, 3)),
          target=aten._embedding_bag.default)  # fmt: skip


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("padding", [None, 2])
def test_indices_after_the_last_offset(mode, dtype, padding):
    """They are in no bag. PyTorch leaves them out of its fast sums, not of counts and others."""

    def bag(indices, offsets, weight):
        return f.embedding_bag(
            indices, weight, offsets, mode=mode, include_last_offset=True, padding_idx=padding
        )

    weight = torch.randn(10, 3).to(dtype)
    sets = [(torch.arange(n), torch.tensor(o), weight)
            for n, o in ((6, [0, 2, 4]), (5, [0, 1, 2, 5]), (7, [0, 0]))]  # fmt: skip
    check(bag, *sets, tolerance=2e-3 if dtype == torch.float16 else None)
