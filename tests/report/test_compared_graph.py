from __future__ import annotations

import math
from pathlib import Path

from torchferry.comparer.comparison import Comparison, Row, Side, Vertex
from torchferry.comparer.explain.histogram import Histogram
from torchferry.report.compared_graph import compared_graph
from torchferry.values.difference import Discrepancy

SIDE = Side((2, 3), "float32", 0, 0, -1.0, 2.0, 0.5)
PLACE = str(Path("x/site-packages/lib/model.py:3"))


def row(number, verdict="equal", by=1e-7, **changes):
    difference = Discrepancy(abs=by, rel=by, sum=by, n=6, argm=(0, 1), scale=1.0)
    values = {"expected": SIDE, "got": SIDE, "error": difference, "verdict": verdict,
              "histogram": Histogram(0.0, 1.0, (1, 2), (2, 1))}  # fmt: skip
    names = (f"v{number}", f"node_{number}", "Add", f"add_{number}", "layers.0", PLACE)
    return Row(*names, **(values | changes))


def graph(count):
    reads = [(place - 1,) if place else () for place in range(count)]
    return tuple(
        Vertex(f"node_{n}", "Add", "layers.0", PLACE, (f"v{n}",), reads[n]) for n in range(count)
    )


def compared(*rows, count=3, **changes):
    first = next((r for r in rows if r.verdict in ("differs", "failed")), None)
    return Comparison(rows, {}, (), count, 0, first, graph=graph(count), **changes)


def test_a_node_says_what_is_known_of_both_sides():
    block = compared_graph(compared(row(0), row(1, "differs", 0.25), suspects=("node_1",)))
    assert block.text == "3 nodes, 2 of them compared; the HTML page shows them"
    assert [item.tone for item in block.items] == [None, "bad", "muted"]
    assert block.first == 1
    item = block.items[1]
    assert item.reads == (0,)
    facts = dict(item.facts)
    assert facts["line"] == "lib/model.py:3"
    assert facts["stands for"] == "add_1"
    assert facts["difference"] == "0.25 at most, 0.04167 on average"
    assert facts["relative"] == "0.25 of its scale, 1"
    assert ("mean", "0.5", "0.5") in item.sides
    assert item.spread.second == (2, 1)
    assert 0 < block.items[0].heat < item.heat


def test_nan_and_what_could_not_be_computed_are_told():
    bad = Side((2, 3), "float32", 2, 1, 0.0, 1.0, 0.5)
    block = compared_graph(compared(row(0, got=bad)))
    assert ("NaN", "0", "2") in block.items[0].sides
    assert ("infinite", "0", "1") in block.items[0].sides
    lost = Discrepancy(math.inf, math.inf, math.inf, reason="it could not be computed")
    failed = row(0, "failed", got=None, error=lost, note="no kernel", histogram=None)
    item = compared_graph(compared(failed)).items[0]
    assert ("type", "float32[2, 3]", "nothing") in item.sides
    assert dict(item.facts)["reason"] == "it could not be computed: no kernel"
    assert (item.heat, item.spread) == (1.0, None)
    lonely = Discrepancy(math.inf, math.inf, math.inf, n=6, dnan=2)
    item = compared_graph(compared(row(0, "differs", error=lonely, got=bad))).items[0]
    assert dict(item.facts)["difference"] == "NaN on one side only, in 2 elements"


def test_of_several_values_of_a_node_the_worst_is_told():
    vertex = Vertex("split", "Split", "", "", ("v0", "v1"), ())
    rows = (row(0, by=1e-3), row(1, "differs", 1e-4))
    found = Comparison(rows, {}, (), 1, 0, rows[1], graph=(vertex,))
    assert dict(compared_graph(found).items[0].facts)["value"] == "v1"


def test_without_a_fault_the_largest_difference_comes_first():
    assert compared_graph(compared(row(0), row(1, by=1e-6), row(2))).first == 1
    assert compared_graph(compared()).first == 0


def test_a_node_at_fault_is_marked_though_nothing_stands_for_what_it_makes():
    rows = (row(0), row(3, "differs", 0.5))
    only = compared_graph(compared(*rows, count=4, suspects=("node_2",)))
    assert [item.tone for item in only.items] == [None, "muted", "bad", "bad"]
    assert only.first == 2
    assert only.text.startswith("4 nodes, 2 of them compared")
    assert dict(only.items[2].facts)["verdict"] == "it is at fault, which shows first in v3"
    two = compared_graph(compared(*rows, count=4, suspects=("node_1", "node_2")))
    assert [item.tone for item in two.items] == [None, "bad", "bad", "bad"]
    assert two.first == 3  # the one whose numbers are seen
    assert dict(two.items[1].facts)["verdict"].startswith("one of 2 nodes that may be at fault")


def test_what_is_random_is_not_taken_for_the_largest_difference():
    assert compared_graph(compared(row(0, "random", 0.9), row(1, by=1e-6), row(2))).first == 1
    open_rows = (row(0, by=1e-6), row(1, "incomparable", 0.5))
    assert compared_graph(compared(*open_rows, count=2)).first == 1
