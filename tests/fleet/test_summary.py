"""The report of a sweep."""

import json

from torchferry.fleet.job import Job, Row
from torchferry.fleet.summary import sweep_report

ROWS = [
    Row(Job("good"), "ok", "", 1.0, nodes=3),
    Row(Job("bad"), "wrong", "differs", 1.0, nodes=3),
    Row(Job("good", exporter="onnx_dynamo"), "ok", "", 1.0, nodes=3),
]


def test_the_report():
    report = sweep_report(ROWS, "x")
    assert not report.ok
    assert report.verdict == "torchferry: 1 of 2 ok; torch.onnx: 1 of 1 ok"
    assert report.problems == ("bad (torchferry): wrong: differs",)
    assert json.loads(json.dumps(report.data))["rows"][1]["outcome"] == "wrong"
    assert sweep_report(ROWS[::2], "x").ok
