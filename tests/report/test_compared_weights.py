from __future__ import annotations

from torchferry.comparer.comparison import Comparison, WeightDifference
from torchferry.report import json
from torchferry.report.compared_weights import ADVICE
from torchferry.report.comparison import comparison_report
from torchferry.report.model import Cell


def weight(number: int) -> WeightDifference:
    return WeightDifference(
        f"layers.{number}.weight", f"onnx::MatMul_{number}", (3, 17), 0.12, 0.135, 0.015, 2, 256,
        f"/layers.{number}/MatMul",
    )  # fmt: skip


def report(count: int):
    found = Comparison((), {}, (), 3, 0, weights=tuple(map(weight, range(count))))
    assert not found.ok
    return comparison_report("compare m o.onnx", found)


def test_a_weight_is_the_first_divergence():
    shown = report(1)
    assert not shown.ok
    sentence = (
        "weight layers.0.weight (initializer onnx::MatMul_0) differs at [3, 17]: 0.12 in the "
        "model, 0.135 in the ONNX file (max abs 0.015, in 2 of 256 elements)"
    )
    assert shown.verdict.startswith(f"{sentence}; of the values, all agree")
    assert shown.problems[0] == f"{sentence}: {ADVICE}"
    assert shown.sections[0].title == "Weights"
    row = shown.sections[0].blocks[0].rows[0]
    assert row[0] == Cell("layers.0.weight", "bad")
    assert row[1:] == ("onnx::MatMul_0", "[3, 17]", "0.12", "0.135", "0.015", "2 of 256",
                       "/layers.0/MatMul")  # fmt: skip
    assert json.to_json(shown)["data"]["weights"] == [
        {"name": "layers.0.weight", "initializer": "onnx::MatMul_0", "at": [3, 17],
         "expected": 0.12, "got": 0.135, "abs": 0.015, "wrong": 2, "size": 256,
         "node": "/layers.0/MatMul"}
    ]  # fmt: skip


def test_many_weights_stay_readable():
    shown = report(200)
    assert "as 199 more weights do" in shown.verdict
    assert [text.split()[1] for text in shown.problems[:3]] == [
        "layers.0.weight", "layers.1.weight", "layers.2.weight",
    ]  # fmt: skip
    assert shown.problems[3] == f"197 more weights differ; see Weights: {ADVICE}"
    table = shown.sections[0].blocks[0]
    assert len(table.rows) == 50
    assert table.note == "and 150 more; --json has all"
    assert len(json.to_json(shown)["data"]["weights"]) == 200


def test_none_are_not_mentioned():
    found = Comparison((), {}, (), 3, 0)
    shown = comparison_report("compare m o.onnx", found)
    assert shown.ok
    assert "weight" not in shown.verdict
    assert [section.title for section in shown.sections] == []
