from __future__ import annotations

import copy
import math

import pytest

from torchferry.judge import Verdict, worst_verdict
from torchferry.judge.verdict import KINDS
from torchferry.values import Discrepancy


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_sentence_and_can_be_copied(kind):
    verdict = Verdict(kind, Discrepancy(abs=0.5), "for a reason", "0.1 (float32)", 0.2)
    assert verdict.about("output y").startswith("output y ")
    assert "for a reason" in str(verdict)
    assert copy.deepcopy(verdict) == verdict
    assert verdict.ok is (kind in ("equal", "rounding"))


def test_the_numbers_say_what_was_compared_and_the_limit():
    verdict = Verdict("differs", Discrepancy(abs=math.inf, dnan=4), limit="0.1 (float32)")
    assert (
        verdict.numbers == "max abs inf, max rel 0, 4 NaN on one side only (limit 0.1 (float32))"
    )
    reason = Verdict("differs", Discrepancy(reason="expected 2 items, got 1"), limit="0.1")
    assert reason.numbers == "expected 2 items, got 1"
    failed = Verdict("failed", evidence="no such node")
    assert failed.about("output y") == "output y could not be computed: no such node"


def test_the_worst_is_told():
    order = [Verdict(kind) for kind in KINDS]
    for number in range(1, len(order)):
        assert worst_verdict(order[:number]).kind == KINDS[number - 1]
    two = [Verdict("differs", Discrepancy(abs=x)) for x in (0.1, 0.2)]
    assert worst_verdict(two) is two[1]
    assert worst_verdict([]).kind == "equal"
