from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from torchferry.cli.commands.observe import observe
from torchferry.exporter import watch as watching
from torchferry.report.model import Report
from torchferry.sources.source import DTYPES

REPORT = Report("observe m", True, "2 calls of M")


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(observe)
    return made


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to the room below."""
    given: dict[str, Any] = {}

    def watch(model: str, **options: Any) -> Report:
        given.update(options, model=model)
        return REPORT

    monkeypatch.setattr(watching, "watch", watch)
    return given


def test_options_have_defaults(app: typer.Typer, told: dict[str, Any]) -> None:
    assert CliRunner().invoke(app, ["zoo:mlp"]).exit_code == 0
    assert callable(told.pop("progress"))
    assert told == {"model": "zoo:mlp", "inputs": None, "sizes": None, "dtype": None}


def test_options_are_handed_on_as_plain_values(app: typer.Typer, told: dict[str, Any]) -> None:
    words = ["m.pt2", "--inputs", "f.py:sets", "--sizes", "n=1..4", "--dtype", "bf16"]
    assert CliRunner().invoke(app, words).exit_code == 0
    del told["progress"]
    assert told == {
        "model": "m.pt2", "inputs": "f.py:sets", "sizes": "n=1..4", "dtype": "bf16",
    }  # fmt: skip
    assert type(told["dtype"]) is str


def test_choices_are_those_of_the_rooms(app: typer.Typer, told: dict[str, Any]) -> None:
    for name in DTYPES:
        assert CliRunner().invoke(app, ["m", "--dtype", name]).exit_code == 0
    result = CliRunner().invoke(app, ["m", "--dtype", "fp8"])
    assert result.exit_code == 2


def test_the_command_returns_the_report(told: dict[str, Any]) -> None:
    assert observe("m") is REPORT


def test_the_whole_way(tmp_path: Path) -> None:
    report = observe("zoo:mlp")
    assert report.ok
    assert report.verdict.endswith("Mlp; dynamic: batch_size")


def test_the_help_says_what_it_does(app: typer.Typer) -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    for words in ("which dimensions are dynamic, and why", "--inputs", "--dtype", "MODEL"):
        assert words in text
