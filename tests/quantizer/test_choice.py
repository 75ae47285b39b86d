"""Which weights get eight bits."""

import pytest

from torchferry.errors import UsageError
from torchferry.quantizer.choice import Unit, choose_for_loss, choose_for_size, curve

UNITS = [
    Unit("cheap", ("a",), 0.01, 10, 100),
    Unit("dear", ("b", "c"), 0.5, 100, 1000),
    Unit("good", ("d",), -0.001, 1, 10),
]


def names(units):
    return [unit.name for unit in units]


def test_within_a_size_the_worst_for_their_bytes_come_first():
    assert names(choose_for_size(UNITS, 109)) == ["dear"]
    assert names(choose_for_size(UNITS, 110)) == ["dear", "cheap"]
    assert names(choose_for_size(UNITS, 50)) == ["cheap"]
    assert names(choose_for_size(UNITS, 1e9)) == ["dear", "cheap"]  # not what 4 bits improve
    assert choose_for_size(UNITS, -5) == []


def test_within_a_loss_the_fewest_bytes():
    assert choose_for_loss(UNITS, 1.0) == []
    assert names(choose_for_loss(UNITS, 0.2)) == ["dear"]
    assert names(choose_for_loss(UNITS, 0.001)) == ["dear", "cheap"]


@pytest.mark.parametrize("loss", [0, -1, float("nan")])
def test_a_loss_that_nothing_reaches_is_refused(loss):
    with pytest.raises(UsageError, match="give a positive number"):
        choose_for_loss(UNITS, loss)


def test_the_curve_begins_with_all_and_ends_with_nothing():
    points = curve(UNITS, 1000)
    assert points[0] == (1000, 0.51)
    assert points[-1][0] == 1111
    assert points[-1][1] == pytest.approx(0)
