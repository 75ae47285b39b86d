from __future__ import annotations

import io
import math
import re
import xml.etree.ElementTree as ET

import pytest

from torchferry.report import Report, Section, html, json, text
from torchferry.report.depth import Mark, Plot, error_plot


def marks(count, bad=()):
    return [
        Mark(f"v{i}", f"layer.{i // 10}", 1e-7, "bad" if i in bad else None) for i in range(count)
    ]


def parsed(svg):
    return ET.fromstring(svg)  # noqa: S314  (it is our own)


def points(svg):
    """Number of dots of each colour."""
    root = parsed(svg)
    paths = [p for p in root.iter("path") if p.get("stroke-linecap")]
    return {p.get("stroke"): p.get("d").count("M") for p in paths}


def test_a_dot_a_value_and_a_cell_a_layer():
    plot = error_plot("Errors", marks(30, bad={12}), 1e-4, first=12)
    assert points(plot.svg) == {"var(--bar,#0072b2)": 29, "var(--bad,#b3261e)": 1}
    root = parsed(plot.svg)
    cells = [rect.find("title").text for rect in root.iter("rect")]
    assert cells == ["layer.0: 1e-07, v0", "layer.1: 1e-07, v10", "layer.2: 1e-07, v20"]
    fills = [rect.get("fill") for rect in root.iter("rect")]
    assert ["bad" in fill for fill in fills] == [False, True, False]
    assert "first: v12" in plot.svg
    assert root.get("aria-label") == "Errors. 30 values, 1 beyond tolerance, the first is v12"


@pytest.mark.parametrize("count", [1, 2, 5000])
def test_thousands_of_values_stay_small_and_the_bad_one_is_drawn(count):
    plot = error_plot("Errors", marks(count, bad={count - 1}), 1e-4, first=count - 1)
    assert len(plot.svg) < 60_000
    assert points(plot.svg)["var(--bad,#b3261e)"] == 1
    assert sum(points(plot.svg).values()) <= 700
    assert len(plot.text.splitlines()[0]) <= 72


def test_heights_are_logarithmic_and_clamped():
    errors = [0.0, 1e-30, 1e-9, 1e-4, 10.0, 1e9, math.inf, math.nan]
    plot = error_plot("Errors", [Mark(str(e), "", e) for e in errors], 1e-4)
    path = re.search(r'<path d="(M[^"]+h0)"', plot.svg)[1]
    heights = [float(y) for y in re.findall(r"M\S+ (\S+)h0", path)]
    assert heights[0] == heights[1] == heights[2] == 196.0
    assert heights[3] == pytest.approx(111.0)  # half way from 1e-9 to 1e1
    assert heights[4:] == [26.0] * 4
    assert plot.text.splitlines()[0] == "▁▁▁▅████"


def test_what_was_not_compared_is_no_large_error():
    drawn = [Mark("r", "draws", 0.9, "muted"), Mark("i", "draws", 0.9, "warn")]
    plot = error_plot("Errors", [Mark("a", "sums", 1e-4), *drawn, Mark("b", "sums", 0.0)], 1e-4)
    assert plot.text.splitlines()[0] == "▅??▁"
    assert plot.text.endswith("1e1 or more, ? was not compared")
    cells = {rect.find("title").text: rect for rect in parsed(plot.svg).iter("rect")}
    assert list(cells) == ["sums: 0.0001, a", "draws: not compared", "sums: 0, b"]
    assert "--warn" in cells["draws: not compared"].get("fill")
    mixed = error_plot("Errors", [Mark("a", "one", 1e-4), Mark("r", "one", 0.9, "muted")], 1e-4)
    assert "one: 0.0001, a" in mixed.svg


def test_the_name_of_the_first_stands_above_all_dots():
    """So that it is read also where all that follows is infinite."""
    endless = [Mark("a", "", 1e-7), *(Mark(f"v{i}", "", math.inf, "bad") for i in range(9))]
    texts = {t.text: t for t in parsed(error_plot("E", endless, 1e-4, 1).svg).iter("text")}
    assert float(texts["first: v0"].get("y")) <= 26 - 6  # dots are 6 px


def test_names_are_escaped():
    plot = error_plot("a < b & c", [Mark("<v>", '"l"', 1e-3, "bad")], 1e-4, first=0)
    root = parsed(plot.svg)
    assert root.find("title").text.startswith("a < b & c. 1 values")
    assert "first: <v>" in [t.text for t in root.iter("text")]


def test_no_values_are_no_fault():
    plot = error_plot("Errors", [], 1e-4)
    assert parsed(plot.svg) is not None
    assert plot.text.splitlines()[0] == ""
    assert "one bar a value" in error_plot("Errors", marks(2), 1e-4).text


def test_the_text_points_to_the_first():
    lines = error_plot("Errors", marks(144, bad={100}), 1e-4, first=100).text.splitlines()
    assert lines[1] == " " * 50 + "^ v100, 101 of 144"
    assert lines[2].startswith("one bar for 1 to 2 values; ▁ is an error of 1e-9")


def test_every_renderer_shows_a_plot():
    from rich.console import Console

    plot = error_plot("Errors by depth", marks(3), 1e-4)
    report = Report("t", ok=True, verdict="v", sections=(Section("s", (plot,)),))
    console = Console(record=True, width=100, file=io.StringIO())
    text.render(report, console)
    assert "▂▂▂" in console.export_text()
    block = json.to_json(report)["sections"][0]["blocks"][0]
    assert block == {"kind": "plot", "title": "Errors by depth", "text": plot.text}
    assert "Errors by depth" in html.render(report)
    assert isinstance(plot, Plot)
