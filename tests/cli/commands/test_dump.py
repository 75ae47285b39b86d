from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from torchferry.cli.commands.dump import dump
from torchferry.dumper import read_dump
from torchferry.exporter import dump as room
from torchferry.report.model import Report
from torchferry.sources.source import DTYPES

REPORT = Report("dump m", True, "2 values")


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(dump)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to the room below."""
    given: dict[str, Any] = {}

    def made(model: str, out: Path, **options: Any) -> Report:
        given.update(options, model=model, out=out)
        return REPORT

    monkeypatch.setattr(room, "dump", made)
    return given


def test_options_have_defaults(app: typer.Typer, told: dict[str, Any]) -> None:
    assert CliRunner().invoke(app, ["zoo:mlp", "-o", "x.onnx"]).exit_code == 0
    assert callable(told.pop("progress"))
    assert told == {
        "model": "zoo:mlp", "out": Path("x.onnx"), "inputs": None, "dtype": None, "modules": "*",
        "drop": (), "storage_limit": room.STORAGE_LIMIT,
    }  # fmt: skip


def test_options_are_handed_on_as_plain_values(app: typer.Typer, told: dict[str, Any]) -> None:
    words = ["m", "-o", "x", "--inputs", "f.py:sets", "--dtype", "fp16", "--modules", "*.mlp"]
    words += ["--drop", "a", "--drop", "b", "--storage-limit", "99"]
    assert CliRunner().invoke(app, words).exit_code == 0
    del told["progress"]
    assert told == {
        "model": "m", "out": Path("x"), "inputs": "f.py:sets", "dtype": "fp16",
        "modules": "*.mlp", "drop": ("a", "b"), "storage_limit": 99,
    }  # fmt: skip
    assert type(told["dtype"]) is str


def test_what_is_refused(app: typer.Typer, told: dict[str, Any]) -> None:
    assert CliRunner().invoke(app, ["m"]).exit_code == 2  # no --out
    assert CliRunner().invoke(app, ["m", "-o", "x", "--storage-limit", "-1"]).exit_code == 2
    for name, code in [*((name, 0) for name in DTYPES), ("fp8", 2)]:
        assert CliRunner().invoke(app, ["m", "-o", "x", "--dtype", name]).exit_code == code


def test_the_whole_way(tmp_path: Path) -> None:
    report = dump("zoo:mlp", tmp_path / "x.onnx")
    assert report.ok
    assert ("", 0, "O") in read_dump(tmp_path / "x.onnx")
