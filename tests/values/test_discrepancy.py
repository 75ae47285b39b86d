import math

import pytest

from torchferry.errors import UsageError
from torchferry.values.discrepancy import Discrepancy, string_diff, together, worst

NAMES = ("abs", "rel", "sum", "n", "dnan", "argm", "dev")


def test_it_reads_like_a_dictionary():
    diff = Discrepancy(0.5, 2.0, 1.5, 3, 0, (1, 2), 0)
    assert tuple(diff.keys()) == NAMES
    assert dict(diff) == {
        "abs": 0.5, "rel": 2.0, "sum": 1.5, "n": 3, "dnan": 0, "argm": (1, 2), "dev": 0
    }  # fmt: skip
    with pytest.raises(KeyError):
        diff["reason"]


def test_mean():
    assert Discrepancy(sum=3.0, n=2).mean == 1.5
    assert Discrepancy().mean == 0.0


@pytest.mark.parametrize(
    ("diff", "text"),
    [
        (Discrepancy(0.5, 500.0, 1.0, 6, argm=(0, 0)), "abs=0.5, rel=500.0, n=6, amax=0,0"),
        (Discrepancy(n=6), "abs=0.0, rel=0.0, n=6"),
        (Discrepancy(2.0, 1.0, 2.0, 1, argm=()), "abs=2.0, rel=1.0, n=1"),
        (Discrepancy(1.0, 1.0, n=2, dnan=1, argm=(1,)), "abs=1.0, rel=1.0, n=2, amax=1, dnan=1"),
        (Discrepancy(n=1, dev=1), "abs=0.0, rel=0.0, n=1, dev=1"),
        (Discrepancy(math.inf, math.inf, reason="x: no"), "abs=inf, rel=inf, n=0, reason: x: no"),
    ],
)  # fmt: skip
def test_string_diff(diff, text):
    assert string_diff(diff) == str(diff) == text


def test_worst():
    small, large = Discrepancy(abs=0.1, rel=3.0), Discrepancy(abs=0.2)
    fault = Discrepancy(reason="dtype")
    assert worst([small, large]) is large
    assert worst(iter([fault, large])) is fault
    assert worst([Discrepancy(rel=1.0), Discrepancy(rel=2.0)]).rel == 2.0
    assert worst([small, Discrepancy(abs=0.1, rel=3.0)]) is small


def test_the_worst_of_nothing_is_an_error():
    with pytest.raises(UsageError, match="nothing was compared"):
        worst([])


def test_together():
    parts = [
        Discrepancy(0.5, 9.0, 1.0, 4, 0, (1,), 1, None, "a", 3.0),
        Discrepancy(2.0, 1.0, 2.0, 1, 2, (0,), 1, "b: dtype", "b", 1.0),
    ]
    assert together(parts) == Discrepancy(2.0, 9.0, 3.0, 5, 2, (0,), 2, "b: dtype", "b", 3.0)
    assert together([]) == Discrepancy()
