"""Random numbers: shape, dtype, and what their distribution says of many of them."""

import pytest
import torch
from op_case import export, run

from torchferry.converter.translate import translate

aten = torch.ops.aten
MANY = 20000
X = torch.full((MANY,), 0.3)

# Target, function of many numbers, mean, standard deviation, least and greatest.
INF = float("inf")
CASES = [
    (aten.rand.default, lambda x: torch.rand(MANY), 0.5, 0.2887, 0, 1),
    (aten.rand.default, lambda x: torch.rand(x.shape[0]), 0.5, 0.2887, 0, 1),
    (aten.randn.default, lambda x: torch.randn(x.shape[0], 2), 0, 1, -INF, INF),
    (aten.randn.default, lambda x: torch.randn(MANY, dtype=torch.float16), 0, 1, -INF, INF),
    (aten.rand_like.default, torch.rand_like, 0.5, 0.2887, 0, 1),
    (aten.randn_like.default, torch.randn_like, 0, 1, -INF, INF),
    (aten.randn_like.default, lambda x: torch.randn_like(x.double()), 0, 1, -INF, INF),
    (aten.randint.default, lambda x: torch.randint(4, (MANY,)), 1.5, 1.118, 0, 3),
    (aten.randint.low, lambda x: torch.randint(-2, 3, (x.shape[0],)), 0, 1.414, -2, 2),
    (aten.randint_like.default, lambda x: torch.randint_like(x, 4), 1.5, 1.118, 0, 3),
    (aten.randint_like.low_dtype, lambda x: torch.randint_like(x, -2, 3), 0, 1.414, -2, 2),
    (None, torch.bernoulli, 0.3, 0.4583, 0, 1),
    (None, lambda x: torch.normal(x, 2.0), 0.3, 2, -INF, INF),
    (None, lambda x: torch.normal(1.0, x), 1, 0.3, -INF, INF),
    (None, lambda x: torch.normal(x, x), 0.3, 0.3, -INF, INF),
    (None, lambda x: torch.normal(1.0, 2.0, (MANY,)), 1, 2, -INF, INF),
    (None, lambda x: x.clone().uniform_(2, 4), 3, 0.577, 2, 4),
    (None, lambda x: x.clone().normal_(2, 4), 2, 4, -INF, INF),
    (None, lambda x: x.clone().exponential_(2), 0.5, 0.5, 0, INF),
    (None, lambda x: x.clone().bernoulli_(0.7), 0.7, 0.4583, 0, 1),
    (None, lambda x: x.clone().geometric_(0.5), 2, 1.414, 1, INF),
    (None, lambda x: x.clone().log_normal_(0, 0.5), 1.133, 0.604, 0, INF),
    (None, lambda x: torch.multinomial(torch.stack([x, x, 2 * x], 1), 1), 1.25, 0.829, 0, 2),
    (None, lambda x: torch.multinomial(torch.tensor([1.0, 0, 3]), MANY, True), 1.5, 0.866, 0, 2),
    (None, lambda x: torch.randperm(MANY), MANY / 2, MANY * 0.2887, 0, MANY - 1),
]  # fmt: skip


@pytest.mark.parametrize(("target", "function", "mean", "deviation", "least", "greatest"), CASES)
def test_statistics(target, function, mean, deviation, least, greatest):
    program = export(function, (X,))
    if target is not None:
        assert target in {node.target for node in program.graph.nodes}
    (got,) = run(translate(program, 20), [X])
    expected = function(X)
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    numbers = got.double()
    error = 6 * deviation / MANY**0.5
    assert abs(numbers.mean() - mean) < error
    assert abs(numbers.std() - deviation) < 6 * error
    assert least <= numbers.min()
    assert numbers.max() <= greatest


def test_complex_numbers_have_variance_one():
    program = export(lambda x: torch.randn(MANY, dtype=torch.complex64).abs() ** 2 + 0 * x, (X,))
    (got,) = run(translate(program, 20), [X])
    assert abs(got.mean() - 1) < 6 / MANY**0.5


def test_cauchy_by_its_median():
    """It has no mean."""
    (got,) = run(translate(export(lambda x: x.clone().cauchy_(3.0), (X,)), 20), [X])
    assert abs(got.median() - 3) < 0.1


def test_a_sample_without_replacement_has_each_once():
    weights = torch.tensor([1.0, 2.0, 0.0, 3.0])
    model = translate(export(lambda x: torch.multinomial(x, 3), (weights,)), 20)
    (got,) = run(model, [weights])
    assert sorted(got.tolist()) == [0, 1, 3]


def test_a_permutation_has_each_once():
    model = translate(export(lambda x: torch.randperm(50) + x, (torch.zeros(1),)), 20)
    assert sorted(run(model, [torch.zeros(1)])[0].tolist()) == list(range(50))


def test_sizes_other_than_exported():
    program = export(lambda x: torch.rand_like(x) + torch.rand(x.shape[0]), (X[:3],), (X[:5],))
    model = translate(program, 20)
    assert [run(model, [X[:n]])[0].shape[0] for n in (3, 5, 1, 0)] == [3, 5, 1, 0]
