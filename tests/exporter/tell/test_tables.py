from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchferry.exporter.tell import tables
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.verify.dimension import DimensionCheck
from torchferry.exporter.verify.verify import Check, Compared
from torchferry.judge import Kind, Verdict
from torchferry.observer import Call, Observation
from torchferry.report.model import Bars, Cell, Facts, Table
from torchferry.values import Discrepancy

MakeFindings = Callable[..., Findings]


def output(name: str, difference: float, verdict: Kind = "equal", **others: Any) -> Compared:
    return Compared(name, Verdict(verdict, Discrepancy(abs=difference, rel=difference, **others)))


def at(size: int, *outputs: Compared, **others: Any) -> Check:
    return Check({"batch_size": size}, made=size in (1, 6), outputs=outputs, **others)


def texts(table: Table, column: str) -> list[str]:
    index = table.columns.index(column)
    cells = [row[index] for row in table.rows]
    return [cell.text if isinstance(cell, Cell) else str(cell) for cell in cells]


def tones(table: Table, column: str) -> list[str | None]:
    index = table.columns.index(column)
    return [cell.tone for row in table.rows if isinstance(cell := row[index], Cell)]


def test_dimensions_leave_out_what_nobody_needs() -> None:
    fine = DimensionCheck("batch_size", ("x[0]",), "verified", (1, 3), ())
    table = tables.dimension_table([fine])
    assert table.columns == ("dimension", "verdict", "sizes that agree", "where")
    assert table.rows == (("batch_size", Cell("verified", "good"), "1, 3", "x[0]"),)


def test_dimensions_that_fail_say_at_which_sizes_and_why() -> None:
    rows = [
        DimensionCheck("batch_size", ("x[0]", "y[0]"), "differs", (3,), (1, 5)),
        DimensionCheck("width", ("x[1]",), "fixed", (4,), (8,), "fixed to 4 by m.py:7"),
        DimensionCheck("height", ("x[2]",), "unverified", (4,), ()),
    ]
    table = tables.dimension_table(rows)
    assert tones(table, "verdict") == ["bad", "bad", "warn"]
    assert texts(table, "sizes that do not") == ["1, 5", "8", ""]
    assert texts(table, "note") == ["", "fixed to 4 by m.py:7", ""]


def test_no_dimension_is_said_in_words() -> None:
    table = tables.dimension_table([])
    assert table.rows == ()
    assert "takes the sizes seen only" in table.note


def test_an_output_has_one_row_with_its_worst_size(make_findings: MakeFindings) -> None:
    found = make_findings(
        at(3, output("y", 1e-6), output("z", 2e-6)), at(5, output("y", 3e-6), output("z", 1e-6))
    )
    table = tables.output_table(found)
    assert texts(table, "output") == ["y", "z"]
    assert texts(table, "max abs") == ["3e-06", "2e-06"]
    assert texts(table, "worst at") == ["batch_size=5", "batch_size=3"]
    assert texts(table, "sets") == ["2", "2"]
    assert "0.0001" in table.note


def test_what_differs_is_worst_even_if_something_random_is_further_off(
    make_findings: MakeFindings,
) -> None:
    found = make_findings(
        at(3, output("noise", 9.0, "random"), output("y", 0.5, "differs")),
        at(5, output("noise", 9.0, "random"), output("y", 0.1)),
    )
    assert tones(tables.output_table(found), "verdict") == ["warn", "bad"]
    by_size = tables.sizes_table(found)
    assert texts(by_size, "worst output") == ["y", "y"]
    assert texts(by_size, "verdict") == ["differs", "equal"]


def test_many_outputs_are_cut_but_none_that_is_not_ok(make_findings: MakeFindings) -> None:
    fine = [output(f"present.{i}", 1e-7) for i in range(20)]
    table = tables.output_table(make_findings(at(3, *fine)))
    assert len(table.rows) == 12
    assert "… and 8 more outputs, all equal" in table.note
    bad = [output(f"bad.{i}", 1.0, "differs") for i in range(15)]
    table = tables.output_table(make_findings(at(3, *fine, *bad)))
    assert texts(table, "output") == [f"bad.{i}" for i in range(15)]
    assert "… and 20 more outputs" in table.note


def test_a_reason_stands_in_the_place_of_the_verdict(make_findings: MakeFindings) -> None:
    reason = "expected float32, got float16"
    found = make_findings(at(3, output("y", 0.0, "differs", reason=reason)))
    for table in (tables.output_table(found), tables.sizes_table(found)):
        assert texts(table, "verdict") == [reason]
        assert tones(table, "verdict") == ["bad"]


def test_sizes_tell_recorded_made_refused_and_failed(make_findings: MakeFindings) -> None:
    found = make_findings(
        at(3, output("y", 1e-6)),
        at(6, refused="ValueError: too many"),
        at(1, error="onnxruntime failed"),
        at(5),
    )
    table = tables.sizes_table(found)
    assert texts(table, "batch_size") == ["3", "6", "1", "5"]
    assert texts(table, "inputs") == ["recorded", "made", "made", "recorded"]
    assert texts(table, "verdict") == [
        "equal", "PyTorch refuses: ValueError: too many", "onnxruntime failed", "no output",
    ]  # fmt: skip
    assert tones(table, "verdict") == ["good", "muted", "bad", "bad"]


def test_the_whole_table_has_every_output_at_every_size(make_findings: MakeFindings) -> None:
    found = make_findings(
        at(3, output("y", 1e-6), output("z", 0.5, "differs")), at(5, output("y", 2e-6)), at(6)
    )
    table = tables.whole_table(found)
    assert texts(table, "output") == ["y", "z", "y"]
    assert texts(table, "sizes") == ["batch_size=3", "batch_size=3", "batch_size=5"]


def test_sizes_in_words() -> None:
    assert tables.sizes_text(Check({"a": 1, "b": 2}, made=False)) == "a=1, b=2"
    assert tables.sizes_text(Check({}, made=False)) == "the size seen"


def test_inputs_say_why_each_axis_is_what_it_is() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor, flag: bool) -> None: ...

    calls = [
        Call((), {"x": torch.zeros(n, 4), "y": torch.zeros(n, 4), "flag": True}) for n in (3, 5)
    ]
    seen = Observation(inspect.signature(forward), "Model", calls)
    both = "x and 1 more, to y"
    assert tables.argument_table(seen.arguments).rows == (
        (both, "float32", 0, "batch_size", "3, 5 → dynamic"),
        (both, "float32", 1, "4", "4 in all 2 calls → static"),
        ("flag", "constant", "", "", "True"),
    )


def test_arguments_without_axes_have_a_row() -> None:
    signature = inspect.signature(lambda x, n: None)
    calls = [Call((), {"x": torch.tensor(1.0), "n": n}) for n in (2, 7)]
    assert tables.argument_table(Observation(signature, "Model", calls).arguments).rows == (
        ("x", "float32", "", "", "no dimension"),
        ("n", "integer", "", "n", "2, 7 → dynamic"),
    )


def test_steps_as_numbers_and_as_pictures(make_findings: MakeFindings) -> None:
    found = make_findings()
    assert tables.step_table(found).rows == (("capture", "1.25", 300, "2 nodes"),)
    time, memory = tables.step_bars(found)
    assert (time.unit, time.items) == ("s", (("capture", 1.25),))
    assert (memory.unit, memory.items) == ("MiB", (("capture", 300.0),))


def test_the_model_in_numbers_and_its_operators(make_findings: MakeFindings) -> None:
    facts, bars = tables.model_blocks(make_findings())
    assert isinstance(facts, Facts)
    assert isinstance(bars, Bars)
    assert dict(facts.pairs) == {
        "nodes": "2",
        "weights": "0 tensors",
        "size on disk": "8.9 KiB",
        "target": "onnx",
        "operator sets": "ai.onnx 20, com.microsoft 1",
        "IR version": "10",
    }
    assert dict(bars.items) == {"Relu": 1.0, "com.microsoft.Gelu": 1.0}


def test_the_environment_names_versions_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tables, "_PACKAGES", ("torch", "no-such-package"))
    pairs = dict(tables.environment().pairs)
    assert pairs["torch"] == torch.__version__.split("+")[0] or pairs["torch"] == torch.__version__
    assert pairs["no-such-package"] == "not installed"
    assert pairs["Python"].startswith("3.")
