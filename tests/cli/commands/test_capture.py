from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from torchferry.cli.commands.capture import capture
from torchferry.cli.options import StateChoice
from torchferry.errors import CaptureError, UsageError
from torchferry.report.model import Table
from torchferry.sources.archive import load_program

MODELS = """
import operator

import torch

class Fixes(torch.nn.Module):
    def forward(self, x):
        return x * operator.index(x.shape[0])

class Counts(torch.nn.Module):
    n = 0
    def __init__(self):
        super().__init__()
        self.n = 1
    def forward(self, x):
        self.n += 1
        return x * self.n

class Decides(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return x

def sets():
    return [(torch.ones(n, 2),) for n in (3, 5)]
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path


def test_a_model_is_captured_saved_and_told(tmp_path: Path) -> None:
    out = tmp_path / "mlp.pt2"
    report = capture("zoo:mlp", out)
    assert report.ok
    assert "dynamic: batch_size" in report.verdict
    assert "on 3 of 3 calls" in report.verdict
    titles = [section.title for section in report.sections]
    assert titles == ["Capture", "Dimensions"]
    program = load_program(out)
    assert program.module()(x=torch.randn(9, 16)).shape[0] == 9
    assert list(tmp_path.iterdir()) == [out]
    assert json.loads(json.dumps(report.data))["checks"][0]["ok"] is True


def test_patches_that_were_used_are_told() -> None:
    report = capture("zoo:gru")
    (section,) = (section for section in report.sections if section.title == "Patches")
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert table.rows[0][0] == "torch.ops.aten.gru.input"
    assert report.data["attempts"][0]["error"] is not None


def test_a_fixed_dimension_fails_the_report(models: Path) -> None:
    report = capture(f"{models}:Fixes", inputs=f"{models}:sets")
    assert not report.ok
    assert "batch_size (x axis 0) was fixed to 3" in report.problems[0]
    assert "models.py:8" in report.problems[0]
    assert report.data["fixed"][0]["size"] == "3"


def test_state_fails_the_report(models: Path) -> None:
    report = capture(f"{models}:Counts", inputs=f"{models}:sets")
    assert not report.ok
    assert any("forward changes self.n" in problem for problem in report.problems)


def test_state_is_lifted_when_asked(models: Path) -> None:
    report = capture(f"{models}:Counts", inputs=f"{models}:sets", state=StateChoice.lift)
    assert report.ok, report.problems
    assert report.data["state"] == {"n": "an integer"}
    assert "state_n" in report.data["dynamic"]
    assert all(check["ok"] for check in report.data["checks"])


def test_control_flow_is_rewritten_unless_one_says_no(models: Path) -> None:
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        capture(f"{models}:Decides", inputs=f"{models}:sets", rewrite=False)
    for rewrite in (None, True):
        report = capture(f"{models}:Decides", inputs=f"{models}:sets", rewrite=rewrite)
        assert report.ok
        assert "-    if x.sum() > 0:" in report.data["rewritten"]


def test_what_is_refused(tmp_path: Path) -> None:
    for out in (tmp_path / "x.onnx", tmp_path / "none" / "x.pt2"):
        with pytest.raises(UsageError, match="--out"):
            capture("zoo:mlp", out)


def test_options() -> None:
    app = typer.Typer()
    app.command()(capture)
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for option in ("--out", "--inputs", "--dtype", "--no-patch", "--rewrite"):
        assert option in text
    assert CliRunner().invoke(app, ["zoo:mlp", "--dtype", "fp8"]).exit_code == 2
