from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchferry.report import Bars
from torchferry.report.figure import bar_lengths, bars_svg

LONG = "com.microsoft.SkipSimplifiedLayerNormalization"


def drawn(*items: tuple[str, float], unit: str = "s", title: str = "T") -> ET.Element:
    return ET.fromstring(bars_svg(Bars(title, unit, items)))  # noqa: S314 - our own text


def label_lines(svg: ET.Element) -> list[list[str]]:
    return [[span.text or "" for span in text] for text in svg.findall("text") if len(text)]


def values(svg: ET.Element) -> list[str | None]:
    return [text.text for text in svg.findall("text") if not len(text)]


def test_every_label_and_value_is_drawn_and_read_aloud():
    svg = drawn(("capture", 4.871), ("run", 0.0), title="Time")
    assert label_lines(svg) == [["capture"], ["run"]]
    assert values(svg) == ["4.871 s", "0 s"]
    assert svg.get("role") == "img"
    assert svg.findtext("title") == "Time. capture: 4.871 s; run: 0 s"


def test_bars_are_to_scale():
    svg = drawn(("a", 4.0), ("b", 1.0), ("c", 0.0), ("d", 1e-9))
    widths = [float(bar.get("width").removesuffix("%")) for bar in svg.findall("rect")]
    assert widths[:3] == [100, 25, 0]
    assert 0 < widths[3] < 1  # too small to be true to scale, yet to be seen


def test_long_labels_are_broken_at_joints_and_stay_whole():
    (lines,) = label_lines(drawn((LONG, 1.0)))
    assert lines == ["com.microsoft.Skip", "SimplifiedLayer", "Normalization"]
    (lines,) = label_lines(drawn(("x" * 60, 1.0)))
    assert lines == ["x" * 26, "x" * 26, "x" * 8]


def test_rows_do_not_share_height():
    svg = drawn((LONG, 1.0), ("a", 1.0), (LONG, 2.0))
    bases = [float(span.get("y")) for text in svg.findall("text") for span in text]
    assert bases == sorted(bases)
    assert all(after - before >= 15 for before, after in pairwise(bases))
    assert bases[-1] < float(svg.get("height"))


def test_values_that_are_no_length():
    bars = Bars("T", "", (("a", math.nan), ("b", math.inf), ("c", -3.0), ("d", 2.0)))
    assert bar_lengths(bars) == (0, 1, 0, 1)
    assert values(drawn(*bars.items, unit="")) == ["nan", "inf", "-3", "2"]


@pytest.mark.parametrize("items", [(), (("a", 0.0),), (("a", math.inf),), (("", 1.0),)])
def test_degenerate_bars_are_drawn(items):
    assert len(drawn(*items).findall("rect")) == len(items)


def test_text_is_escaped():
    svg = drawn(("<b>&\"'", 1.0), unit="<i>", title='"<script>')
    assert label_lines(svg) == [["<b>&\"'"]]
    assert values(svg) == ["1 <i>"]
    assert svg.find("script") is None


printable = st.text(st.characters(exclude_categories=["C"]), max_size=80)


@given(st.lists(st.tuples(printable, st.floats(0, allow_infinity=False)), max_size=8))
def test_no_label_loses_a_character(items):
    svg = drawn(*items)
    assert ["".join(lines) for lines in label_lines(svg)] == [label for label, _ in items]
    assert all(0 <= length <= 1 for length in bar_lengths(Bars("", "", tuple(items))))
