from __future__ import annotations

from collections.abc import Callable

import pytest

from torchferry.capturer import Fixed
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.tell.outcome import report
from torchferry.exporter.verify.unverified import unverified
from torchferry.report.model import Facts, Report

Make = Callable[..., Report]


@pytest.fixture
def make(make_findings: Callable[..., Findings]) -> Make:
    return lambda **found: unverified(report(make_findings(**found), "zoo:mlp"), "zoo:mlp")


def test_the_verdict_says_that_nothing_was_verified(make: Make) -> None:
    made = make()
    assert (made.ok, made.problems) == (True, ())
    assert made.verdict == (
        "zoo:mlp: exported, NOT VERIFIED: neither run nor compared with PyTorch"
    )
    assert made.data["verified"] is False
    assert made.sections[0].title == "Verification"
    (facts,) = made.sections[0].blocks
    assert isinstance(facts, Facts)
    assert "not verified, as asked" in str(facts.pairs)


def test_nothing_looks_as_if_it_had_been_compared(make: Make) -> None:
    titles = {section.title for section in make().sections}
    assert titles >= {"Dynamic dimensions", "Inputs", "Model", "Steps"}
    assert not {title for title in titles if "PyTorch" in title or "tried" in title}


def test_a_dimension_that_was_fixed_is_a_problem_still(make: Make) -> None:
    made = make(fixed=(Fixed("x", 0, "batch_size", 3, None),))
    assert not made.ok
    assert "batch_size" in made.problems[0]
    assert made.verdict.startswith("zoo:mlp: 1 problem, NOT VERIFIED")
