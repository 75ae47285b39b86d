from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchferry.report import Cell, Table
from torchferry.report.number import as_cell, measure_text, number_text, numeric_columns


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (134515008, "134515008"),
        (0.0, "0"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (3.5762786865234375e-07, "3.576e-07"),
        (9999.5, "1e+04"),
        (15321.7, "15322"),
        (1.5e12, "1.5e+12"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_number_text(value, text):
    assert number_text(value) == text


@given(st.floats(-1e300, 1e300))
def test_a_written_number_is_the_number_to_four_digits(value):
    assert float(number_text(value)) == pytest.approx(value, rel=1e-3, abs=0)


def test_measure_text_without_unit_has_no_trailing_blank():
    assert measure_text(2, "") == "2"
    assert measure_text(math.nan, "MiB") == "nan MiB"


def test_as_cell_keeps_tones_and_writes_numbers():
    cell = Cell("7", "bad")
    assert as_cell(cell) is cell
    assert as_cell(7) == Cell("7")
    assert as_cell("a") == Cell("a")


@pytest.mark.parametrize(
    "texts",
    [
        ["1.5 ms", "12"],
        ["3.6e-07", "nan", "-inf"],
        ["1,234 MiB", "-", ""],
        ["< 1%", "2.5x"],
        ["12 GB/s"],
    ],
)
def test_columns_of_numbers(texts):
    assert numeric_columns(Table(("c",), tuple((text,) for text in texts))) == (True,)


@pytest.mark.parametrize(
    "texts", [[], ["-", ""], ["2.13.0"], ["1, 2, 3"], ["2x3"], ["1", "equal"], ["s31"], ["e5"]]
)
def test_columns_of_text(texts):
    assert numeric_columns(Table(("c",), tuple((text,) for text in texts))) == (False,)


def test_tones_do_not_hide_numbers():
    table = Table(("name", "abs"), (("a", Cell("0.5", "bad")), ("b", 1e-7)))
    assert numeric_columns(table) == (False, True)
