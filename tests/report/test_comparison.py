from __future__ import annotations

import json as standard_json
import math
from dataclasses import replace

import pytest

from torchferry.comparer.comparison import Comparison, Row, Side, Stage
from torchferry.judge import Verdict
from torchferry.report import html, json
from torchferry.report.comparison import comparison_report
from torchferry.report.model import Cell, Facts, Table
from torchferry.values.difference import Discrepancy

SIDE = Side((2, 3), "float32")


def row(number, verdict="equal", error=1e-7, **changes):
    values = {
        "name": f"v{number}", "node": f"node_{number}", "op_type": "Add",
        "origin": f"add_{number}", "layer": f"layers.{number // 10}.mlp", "line": "model.py:3",
        "expected": SIDE, "got": SIDE,
        "error": Discrepancy(abs=error, rel=error, sum=error, n=6, argm=(0, 1), scale=1.0),
        "verdict": verdict,
    }  # fmt: skip
    return Row(**(values | changes))


def comparison(rows, **changes):
    values = {"outputs": {"y": Discrepancy(abs=1e-7, n=2)}, "differing": (), "nodes": len(rows),
              "unaligned": 0}  # fmt: skip
    first = next((r for r in rows if r.verdict in ("differs", "failed")), None)
    return Comparison(tuple(rows), **(values | {"first": first} | changes))


def section(report, title):
    return next(s for s in report.sections if s.title == title).blocks[0]


def test_agreement_is_told_in_one_line():
    report = comparison_report("compare m o.onnx", comparison([row(0), row(1, "random")]))
    assert report.ok
    assert report.verdict == "all agree: 1 value, 1 random, and 1 output"
    assert report.problems == ()
    assert [s.title for s in report.sections] == ["Outputs", "Error by depth", "Layers", "Values"]


def test_the_evidence_of_the_verdict_is_told():
    said = Verdict("rounding", evidence="PyTorch itself moves by 1e-3")
    report = comparison_report("compare m o.onnx", comparison([row(0)], verdict=said))
    assert report.verdict.endswith("1 output (rounding: PyTorch itself moves by 1e-3)")
    assert (report.data["verdict"], report.data["evidence"]) == (said.kind, said.evidence)


def test_values_without_a_counterpart_are_counted():
    report = comparison_report("compare m o.onnx", comparison([row(0)], unaligned=7))
    assert report.verdict == "all agree: 1 of the graph's 8 values, and 1 output"


def test_what_cannot_be_compared_is_no_agreement():
    rows = [row(0), row(1, "incomparable", 0.5, name="y", note="it depends on random numbers")]
    report = comparison_report("compare m o.onnx", comparison(rows, open=("y", "z")))
    assert not report.ok
    assert report.verdict == (
        "no difference in 1 value, 1 that cannot be compared; not compared: y, z"
    )
    assert report.problems == (
        "y was not compared: it depends on random numbers", "z was not compared",
    )  # fmt: skip
    assert "--feed torch looks past them" in report.next_steps[0]
    assert not any("--bisect" in step for step in report.next_steps)  # nothing differs
    cells = section(report, "Outputs").rows[0]
    assert (cells[0], cells[-1]) == (Cell("y", "warn"), "not compared")
    assert json.to_json(report)["data"]["open"] == ["y", "z"]


def faulty(**changes):
    rows = [row(0), row(1, "differs", 0.5), row(2, "differs", 0.7)]
    options = {"differing": ("y",), "suspects": ("node_x",)}
    return comparison(rows, **(options | changes))


def test_the_first_divergence_comes_first():
    report = comparison_report("compare m o.onnx", faulty())
    assert not report.ok
    assert report.verdict == (
        "the first of 3 values to differ is v1, made by node_x; 1 of 1 outputs differ"
    )
    assert report.sections[0].title == "First divergence"
    facts = dict(report.sections[0].blocks[0].pairs)
    assert isinstance(report.sections[0].blocks[0], Facts)
    assert facts["node"] == Cell("Add node_1", "bad")
    assert facts["node at fault"] == Cell("node_x", "bad")
    assert facts["value"] == "v1: float32[2, 3], expected float32[2, 3]"
    assert facts["difference"].startswith("0.5 at most, at [0, 1], 0.08333 on average")
    assert (facts["module"], facts["line"]) == ("layers.0.mlp", "model.py:3")
    assert report.problems == (
        "v1 in layers.0.mlp, at model.py:3: it is off by 0.5. Look at node_x",
    )
    # Options only: the title does not know with which others the command was called.
    assert report.next_steps[0].startswith("--cut first.onnx ")


def test_several_suspects_are_listed():
    nodes = tuple(f"n{i}" for i in range(10))
    facts = dict(section(comparison_report("t", faulty(suspects=nodes)), "First divergence").pairs)
    assert facts["made by"].endswith("n7 and 2 more")


def test_the_files_of_the_piece_are_named(tmp_path):
    report = comparison_report("t", faulty(cut=tmp_path / "first.onnx"))
    assert report.next_steps[0] == (
        f"{tmp_path / 'first.onnx'} shows it alone; first.inputs.safetensors holds its inputs and "
        "what is expected"
    )


def test_the_local_error_and_what_is_no_number_are_shown():
    bad = row(1, "differs", math.inf, local=Discrepancy(abs=0.25, scale=2.0),
              got=Side((2, 3), "float32", nans=4))  # fmt: skip
    report = comparison_report("t", comparison([bad]))
    facts = dict(section(report, "First divergence").pairs)
    assert facts["difference"] == "cannot be told in numbers"
    assert facts["by itself"].startswith("0.25 at most")
    assert facts["NaN, infinite"] == "4 NaN, 0 inf; expected 0, 0"
    assert "by itself" in section(report, "Values").columns


def test_nan_is_told_as_such():
    lonely = Discrepancy(math.inf, math.inf, math.inf, n=6, dnan=4)
    bad = replace(row(1, "differs", got=Side((2, 3), "float32", nans=4)), error=lonely)
    report = comparison_report(
        "t", comparison([row(0), bad], outputs={"y": lonely}, differing=("y",), suspects=("n",))
    )
    assert report.problems == (
        "v1 in layers.0.mlp, at model.py:3: it has 4 NaN, 0 inf; expected 0, 0. Look at n",
    )
    told = "NaN on one side only, in 4 elements"
    assert dict(section(report, "First divergence").pairs)["difference"] == told
    assert section(report, "Outputs").rows == ((Cell("y", "bad"), "-", "-", "-", told),)


def test_the_verdict_of_a_value_stands_by_its_name():
    table = section(comparison_report("t", faulty()), "Values")
    assert table.columns[:3] == ("#", "value", "verdict")
    assert table.rows[1][:3] == (2, "v1", Cell("differs", "bad"))
    assert "NaN, inf" not in table.columns  # no value has any


def test_of_thousands_that_agree_those_around_the_largest_difference_are_shown():
    rows = [row(i, error=1e-5 if i == 2000 else 1e-7) for i in range(4000)]
    rows[10] = row(10, "random", 0.9)
    report = comparison_report("t", comparison(rows))
    table = section(report, "Values")
    assert [line[0] for line in table.rows] == list(range(1989, 2014))
    assert table.note.startswith("25 of 4000")
    first = section(comparison_report("t", comparison([row(i) for i in range(4000)])), "Values")
    assert first.note.startswith(f"{len(first.rows)} of 4000")
    cells = {line[0]: line[2:] for line in section(report, "Layers").rows}
    assert cells["layers.200.mlp" if "layers.200.mlp" in cells else "layers.200"][-1] == "v2000"


def test_a_value_that_could_not_be_computed_has_its_reason():
    failed = row(1, "failed", math.inf, got=None, note="onnxruntime: no kernel")
    report = comparison_report("t", comparison([failed], suspects=("node_1",)))
    facts = dict(section(report, "First divergence").pairs)
    assert facts["value"] == "v1: nothing, expected float32[2, 3]"
    assert "onnxruntime: no kernel" in report.problems[0]


def test_outputs_may_agree_though_a_value_does_not():
    report = comparison_report("t", faulty(differing=()))
    assert not report.ok
    assert report.verdict.endswith("; the outputs agree")


def test_outputs_may_differ_though_all_values_agree():
    report = comparison_report("t", comparison([row(0)], differing=("y",)))
    assert report.verdict.endswith("these outputs differ: y")
    assert report.problems


def test_a_wrong_capture_fails():
    report = comparison_report("t", comparison([row(0)], captured=False, notes=("it is wrong",)))
    assert not report.ok
    assert "not what eager mode computes" in report.verdict
    assert report.problems == ("it is wrong",)


STAGES = [("convert", True), ("optimize", True), ("the file, none", False)]


@pytest.mark.parametrize(
    ("stages", "says"),
    [
        (STAGES, "the steps from MODEL agree: the file was changed, or something else wrote it"),
        (STAGES[:2], "no step brings a difference in"),
        (STAGES[2:], "the file is so without any optimization: look at what wrote it"),
        ([("convert", True), ("optimize", False)], "the difference comes in with: optimize"),
        ([("the file, none", True), ("the file, all", False)],
         "the difference comes in with: the file, all"),
    ],
)  # fmt: skip
def test_the_stage_that_brings_it_in_is_named(stages, says):
    found = tuple(Stage(name, Discrepancy(abs=0.1), ok) for name, ok in stages)
    table = section(comparison_report("t", faulty(stages=found)), "Stages")
    assert isinstance(table, Table)
    assert table.note == says


@pytest.mark.parametrize("fault", [None, 0, 2500, 4999])
def test_five_thousand_values_make_a_small_page_that_shows_the_first_divergence(fault):
    rows = [row(i, "differs" if i == fault else "equal", 0.5 if i == fault else 1e-7)
            for i in range(5000)]  # fmt: skip
    report = comparison_report("t", comparison(rows, suspects=("node_x",)))
    page = html.render(report)
    assert len(page) < html.MAX_BYTES
    shown = section(report, "Values")
    assert "of 5000 values; the JSON report has all" in shown.note
    assert fault is None or f"v{fault}" in [line[1] for line in shown.rows]
    layers = section(report, "Layers").rows
    assert len(layers) == 80
    assert section(report, "Layers").note == "the worst 80 of 500"
    assert fault is None or f"layers.{fault // 10}.mlp".removesuffix(".mlp") in [
        x[0] for x in layers
    ]
    assert len(json.to_json(report)["data"]["values"]) == 5000


def test_the_data_is_json():
    data = json.to_json(comparison_report("t", faulty()))["data"]
    assert standard_json.loads(standard_json.dumps(data)) == data
    assert data["first"] == "v1"
    assert data["values"][1]["error"]["abs"] == 0.5
    assert data["values"][1]["expected"] == {
        "shape": [2, 3], "dtype": "float32", "nans": 0, "infinities": 0,
        "least": None, "largest": None, "mean": None,
    }  # fmt: skip


def test_nothing_compared_is_no_table():
    report = comparison_report("t", comparison([], outputs={}))
    assert report.sections == ()
