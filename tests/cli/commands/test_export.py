from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from torchferry.cli.commands.export import export
from torchferry.cli.main import app
from torchferry.errors import UsageError
from torchferry.exporter import deliver as delivering
from torchferry.exporter.export import EXPORTERS
from torchferry.exporter.memory import WAYS
from torchferry.exporter.verify import recheck as rechecking
from torchferry.optimizer import TARGETS
from torchferry.report.model import Report
from torchferry.sources.source import DTYPES

REPORT = Report("export m", True, "all equal")


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to the room below."""
    told: dict[str, Any] = {}

    def deliver(model: str, out: Path, **options: Any) -> Report:
        told.update(options, model=model, out=out)
        return REPORT

    monkeypatch.setattr(delivering, "deliver", deliver)
    return told


def test_options_have_defaults(given: dict[str, Any]) -> None:
    assert CliRunner().invoke(app, ["export", "zoo:mlp", "-o", "out"]).exit_code == 0
    assert callable(given.pop("progress"))
    assert given == {
        "model": "zoo:mlp", "out": Path("out"), "inputs": None, "sizes": None,
        "budget": None, "target": "onnx", "opset": None,
        "dtype": None, "exporter": "to_onnx", "weights": "copy", "check": True,
        "rewrite": "auto", "strict": False, "replace": False, "onnxruntime": None,
        "state": "refuse", "repeat": True, "verify": "auto",
    }  # fmt: skip


def test_options_are_handed_on_as_plain_values(given: dict[str, Any]) -> None:
    words = (
        "export m.pt2 --output a/b --inputs f.py:sets --sizes n=1..4 --budget 2.5 --opset 18 "
        "--target onnxruntime "
        "--dtype bf16 --exporter onnx_dynamo --weights reference --no-verify "
        "--rewrite --strict --force --onnxruntime 1.28 --state lift --no-repeat --verify whole"
    )
    assert CliRunner().invoke(app, words.split()).exit_code == 0
    del given["progress"]
    assert given == {
        "model": "m.pt2", "out": Path("a/b"), "inputs": "f.py:sets", "sizes": "n=1..4",
        "budget": 2.5, "target": "onnxruntime",
        "opset": 18, "dtype": "bf16", "exporter": "onnx_dynamo", "weights": "reference",
        "check": False, "rewrite": True, "strict": True, "replace": True, "onnxruntime": "1.28",
        "state": "lift", "repeat": False, "verify": "whole",
    }  # fmt: skip
    chosen = ("target", "dtype", "exporter", "weights")
    assert [type(given[name]) for name in chosen] == [str] * 4


def test_choices_are_those_of_the_rooms() -> None:
    choices = {
        name: [choice.value for choice in parameter.annotation.__args__[0]]
        for name, parameter in inspect.signature(export, eval_str=True).parameters.items()
        if name in ("target", "exporter", "verify")
    }
    assert choices == {"target": [*TARGETS], "exporter": [*EXPORTERS], "verify": [*WAYS]}
    text = CliRunner().invoke(app, ["export", "--help"]).output
    assert f"<{'|'.join(DTYPES)}>" in text


def test_the_command_returns_the_report_and_computes_nothing(given: dict[str, Any]) -> None:
    assert export("m", Path("out")) is REPORT


def test_the_help_says_what_each_option_does() -> None:
    text = " ".join(CliRunner().invoke(app, ["export", "--help"]).output.split())
    for option in ("--inputs", "--target", "--opset", "--dtype", "--exporter", "--force",
                   "--html", "--json", "-o, --output"):  # fmt: skip
        assert option in text
    assert "the exit code is 1" in text


def test_check_hands_the_file_on_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def check_file(model: str, file: Path, **options: Any) -> Report:
        told.update(options, model=model, file=file)
        return Report("check", False, "differs")

    monkeypatch.setattr(rechecking, "check_file", check_file)
    words = "export m.pt2 --check a.onnx --inputs f.py:sets --sizes n=1..4 --budget 2 --dtype fp16"
    assert CliRunner().invoke(app, words.split()).exit_code == 1
    del told["progress"]
    assert told == {
        "model": "m.pt2", "file": Path("a.onnx"), "inputs": "f.py:sets", "sizes": "n=1..4",
        "budget": 2, "dtype": "fp16",
    }  # fmt: skip


@pytest.mark.parametrize("words", ["export zoo:mlp", "export zoo:mlp -o out --check a.onnx"])
def test_it_exports_or_checks(words: str) -> None:
    result = CliRunner().invoke(app, words.split())
    assert isinstance(result.exception, UsageError)
    assert "-o OUT to export, or --check FILE" in str(result.exception)
