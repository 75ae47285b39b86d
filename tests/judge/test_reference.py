"""The verdict on a leaf, with both sides as functions."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import nn

from torchferry.judge import Limits, Reference, Tolerance
from torchferry.judge.reference import BAKED, OWN_DRAWS


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


X = torch.linspace(0.1, 3, 60).reshape(3, 20)


def reference(function, x=X, **options):
    return Reference(lambda model, given: model(given), Function(function), x, **options)


def judged(function, other, x=X, **options):
    ((_, verdict),) = reference(function, x, **options).judge(other(x), lambda: other(x.clone()))
    return verdict


def test_healthy_outputs_cost_one_run_and_nothing_more():
    runs = []

    def function(x):
        runs.append(1)
        return x * 2

    verdict = judged(function, lambda x: x * 2)
    assert (verdict.kind, verdict.evidence, len(runs)) == ("equal", "", 1)
    assert verdict.limit == "0.00016 (float32)"
    recorded = reference(function, expected=X * 2)
    assert [verdict.kind for _, verdict in recorded.judge(X * 2)] == ["equal"]
    assert len(runs) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x * 2.1, lambda x: x * 2 + 1e-3, lambda x: x[:2] * 2, lambda x: [x * 2],
        lambda x: x.double() * 2, lambda x: (x * 2).masked_fill(x > 2.9, torch.nan),
        lambda x: torch.cat([x[:2] * 2, x[2:]]),
    ],
)  # fmt: skip
def test_faults_differ(other):
    assert judged(lambda x: x * 2, other).kind == "differs"


def test_each_leaf_has_its_verdict():
    found = reference(lambda x: {"a": x, "b": (x * 2, 3, 0.5)}).judge(
        {"a": X, "b": (X, 4, 0.5 + 1e-9)}
    )
    assert [(path, verdict.kind) for path, verdict in found] == [
        (("a",), "equal"), (("b", 0), "differs"), (("b", 1), "differs"), (("b", 2), "equal"),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_narrowest_arithmetic_inside_sets_the_limit(dtype):
    inside = lambda x: (x.to(dtype) * 1.1).float()  # noqa: E731  (what is computed)
    verdict = judged(inside, lambda x: x * 1.1)
    assert (verdict.kind, verdict.ok) == ("equal", True)
    assert f"computes in {str(dtype)[6:]} inside" in verdict.evidence
    assert str(dtype)[6:] in verdict.limit
    assert judged(inside, lambda x: x * 1.5).kind == "differs"


def test_limits_that_a_user_sets_hold_as_they_are():
    inside = lambda x: (x.half() * 1.1).float()  # noqa: E731  (what is computed)
    for limits in (Limits(atol=1e-6), Limits(rtol=1e-7), Tolerance(1e-6, 1e-6)):
        verdict = judged(inside, lambda x: x * 1.1, tolerance=limits)
        assert verdict.kind == "differs"
        assert "as set" in verdict.limit
    assert judged(lambda x: x, lambda x: x + 1, tolerance=Limits(atol=2.0)).kind == "equal"
    both = Limits(atol=2.0, rtol=1e-3)
    assert judged(lambda x: x, lambda x: x + 1, tolerance=both).kind == "differs"


CANCELS = lambda x: (x * 1.1 + 16000) - 16000  # noqa: E731  (what is computed)


def test_rounding_of_pytorch_itself_is_no_fault():
    verdict = judged(CANCELS, lambda x: x * 1.1)
    assert verdict.kind == "rounding"
    assert verdict.rounding == pytest.approx(1e-3, rel=1)
    assert judged(CANCELS, lambda x: x * 1.1 + 0.01).kind == "differs"
    assert judged(CANCELS, lambda x: torch.cat([x[:2] * 1.1, x[2:] * 1.2])).kind == "differs"


# What is random ----------------------------------------------------------------------------------


COUNT = itertools.count()


def drops(x, p=0.5):
    return nn.functional.dropout(x, p, training=True)


@pytest.mark.parametrize(
    ("function", "other", "kind", "says"),
    [
        (drops, drops, "random", "with the same seed"),
        (drops, lambda x: drops(x) + 0 * torch.rand(1), "random", "with the same seed"),
        (drops, lambda x: torch.rand(1) * 0 + drops(x), "random", "each its own"),
        (drops, lambda x: x, "differs", "returns the same in every run"),
        (drops, lambda x: torch.rand(1) * 0 + drops(x) * 3, "differs", "not from the same"),
        (lambda x: x + torch.randn_like(x) / 1e3, lambda x: x * 2, "differs", "the same in every"),
        (torch.bernoulli, lambda x: (torch.rand_like(x) < x).float(), "random", "PyTorch draws"),
        (lambda x: (drops(x), x * 2)[1], lambda x: x * 2, "equal", ""),
        (lambda x: (drops(x), x * 2)[1], lambda x: x * 3, "differs", ""),
    ],
)  # fmt: skip
def test_random_numbers(function, other, kind, says):
    torch.manual_seed(0)
    verdict = judged(function, other, X / 3 if function is torch.bernoulli else X)
    assert (verdict.kind, says in verdict.evidence) == (kind, True), verdict


def test_far_more_than_draws_change_is_a_fault_without_their_words():
    verdict = judged(
        lambda x: x + torch.rand_like(x) / 1e3, lambda x: x * 2 + torch.rand_like(x) * 2e-3
    )
    assert (verdict.kind, verdict.evidence) == ("differs", "")


@pytest.mark.parametrize(
    "draw", [random.random, itertools.count().__next__], ids=["python", "counter"]
)  # fmt: skip
def test_what_torchs_seed_does_not_repeat_is_a_constant(draw):
    verdict = judged(lambda x: x + draw(), lambda x: x + 0.5)
    assert (verdict.kind, verdict.evidence) == ("differs", BAKED)


def test_a_call_that_was_recorded_with_other_random_numbers():
    torch.manual_seed(5)
    x = torch.ones(400)
    recorded = drops(x)
    held = Reference(lambda m, g: m(g), Function(drops), x, expected=recorded)
    for other, kind in ((drops, "random"), (lambda x: x, "differs")):
        ((_, verdict),) = held.judge(other(x), lambda other=other: other(x))
        assert verdict.kind == kind
    ((_, verdict),) = held.judge(drops(x))
    assert verdict.kind == "random"
    assert verdict.evidence != OWN_DRAWS


def test_state_from_before_is_told_from_a_fault():
    held = reference(lambda x: x * 2, expected=X * 3)  # as it was once
    ((_, verdict),) = held.judge(X * 2, lambda: X * 2)
    assert (verdict.kind, "earlier calls" in verdict.evidence) == ("random", True)
    ((_, verdict),) = held.judge(X * 5, lambda: X * 5)
    assert verdict.kind == "differs"


# What may be chosen ------------------------------------------------------------------------------


def best(x):
    scores = (x * 0).sum(-1) - 1.5
    return x[scores.topk(2).indices]


def test_ties_are_a_choice_and_no_more():
    x = torch.rand(9, 4)
    verdict = judged(best, lambda x: x[[3, 1]], x)
    assert verdict.kind == "random"
    assert "equal scores (a tie) at topk, " in verdict.evidence
    assert f"{__file__}:" in verdict.evidence
    assert judged(best, lambda x: x[[3, 1]] * 50, x).kind == "differs"
    assert judged(lambda x: (best(x), x)[1], lambda x: x * 1.01, x).kind == "differs"
    ((_, places),) = reference(lambda x: (x * 0)[:, 0].argmax(), x).judge(torch.tensor(7))
    assert places.kind == "random"


def test_memory_that_nothing_wrote_is_a_choice():
    verdict = judged(lambda x: x.new_empty(3), lambda x: torch.tensor([5.0, -3.0, 1e3]))
    assert (verdict.kind, "nothing was written" in verdict.evidence) == ("random", True)


# PyTorch against itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x * 2, None),
        (drops, None),
        (lambda x: x * next(COUNT), "two runs"),
        (lambda x: x * torch.get_num_threads(), "numbers of threads"),
        (lambda x: ((x + 1e9) - 1e9) * 7, "float64"),
    ],
)
def test_pytorch_may_contradict_itself(function, says):
    said = reference(function).contradicts()
    assert said is None if says is None else says in said
    assert torch.get_num_threads() == torch.get_num_threads()


def test_nothing_of_torch_is_left_otherwise():
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    norm = nn.BatchNorm1d(20)
    held = Reference(lambda m, g: m(g), norm, X)
    assert [verdict.kind for _, verdict in held.judge(X * 9, lambda: X)] == ["differs"]
    assert held.contradicts() is None
    assert norm.num_batches_tracked == 0
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads


def test_what_the_model_raises_is_raised():
    def function(x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        reference(function).judge(X)


def test_pytorch_is_no_measure_of_what_it_is_off_itself():
    def cancels(x):  # float32 keeps no digit of a number that is not large
        return x * 100 + (x + 1e8 - 1e8)

    def no_measure(function, change):
        one = reference(function)
        return one.is_no_measure(one.expected + change, [()])

    assert no_measure(cancels, 3.0)
    assert not no_measure(cancels, 30.0)
    assert not no_measure(cancels, float("nan"))
    assert not no_measure(lambda x: x * 2, 1e-3)
