from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from torchferry.errors import UsageError
from torchferry.report import Bars, Cell, Report, Section, Table
from torchferry.report import json as report_json


def strict(text: str) -> object:
    """Read JSON as a strict reader does: Python's alone would take NaN."""

    def refuse(name: str) -> object:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def with_data(**data: object) -> Report:
    return Report("t", True, "v", data=data)


def test_the_whole_report_is_there(failed, tmp_path):
    report_json.dump(failed, tmp_path / "r.json")
    read = strict((tmp_path / "r.json").read_text())
    assert read == report_json.to_json(failed)
    assert list(read) == [
        "schema",
        "title",
        "ok",
        "verdict",
        "problems",
        "next_steps",
        "data",
        "sections",
    ]
    assert read["schema"] == "torchferry.report/1"
    assert read["ok"] is False
    assert read["problems"] == list(failed.problems)
    kinds = [[block["kind"] for block in section["blocks"]] for section in read["sections"]]
    assert kinds == [["table"], ["table"], ["bars"], ["source"], ["facts"]]
    assert [section["brief"] for section in read["sections"]] == [True] * 4 + [False]


def test_cells_keep_numbers_and_tones():
    table = Table(("a", "b", "c"), ((1, 2.5, Cell("x", "bad")),), title="T", note="N")
    (section,) = report_json.to_json(Report("t", True, "v", (Section("s", (table,)),)))["sections"]
    assert section["blocks"] == [
        {
            "kind": "table",
            "title": "T",
            "columns": ["a", "b", "c"],
            "rows": [[1, 2.5, {"text": "x", "tone": "bad"}]],
            "note": "N",
        }
    ]


def test_numbers_json_does_not_have_become_strings(tmp_path):
    bars = Bars("b", "s", (("a", math.nan), ("b", -math.inf)))
    report = Report(
        "t", True, "v", (Section("s", (bars,)),), data={"deep": [{"worst": math.inf}, math.nan]}
    )
    report_json.dump(report, tmp_path / "r.json")
    read = strict((tmp_path / "r.json").read_text())
    assert read["sections"][0]["blocks"][0]["items"] == [["a", "NaN"], ["b", "-Infinity"]]
    assert read["data"] == {"deep": [{"worst": "Infinity"}, "NaN"]}
    assert float(read["data"]["deep"][0]["worst"]) == math.inf


def test_an_empty_report():
    read = report_json.to_json(Report("", True, ""))
    assert (read["sections"], read["data"], read["problems"]) == ([], {}, [])


def test_any_text_survives(hostile, tmp_path):
    odd = Report("é → \U0001f6a2 \udce9 \x00", True, "v", data={"é": "\n"})
    for report in (hostile, odd):
        report_json.dump(report, tmp_path / "r.json")
        assert strict((tmp_path / "r.json").read_text()) == report_json.to_json(report)


@pytest.mark.parametrize(
    ("value", "where"),
    [(Path("x"), r"data\['k'\] is a P"), ([1, {"a": b""}], r"data\['k'\]\[1\]\['a'\] is a bytes")],
)
def test_other_types_are_refused_by_place(value, where):
    with pytest.raises(TypeError, match=where):
        report_json.to_json(with_data(k=value))


def test_keys_are_strings():
    with pytest.raises(TypeError, match="key 1 is not a string"):
        report_json.to_json(with_data(k={1: 2}))


def test_a_failed_dump_leaves_the_old_file(good, tmp_path):
    file = tmp_path / "r.json"
    report_json.dump(good, file)
    before = file.read_bytes()
    with pytest.raises(TypeError):
        report_json.dump(with_data(k=object()), file)
    assert file.read_bytes() == before
    with pytest.raises(UsageError):
        report_json.dump(good, tmp_path / "none" / "r.json")
