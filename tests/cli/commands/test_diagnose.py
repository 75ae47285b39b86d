from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from torchferry import diagnoser
from torchferry.cli.commands.diagnose import diagnose
from torchferry.cli.options import Dtype
from torchferry.diagnoser import Limits
from torchferry.report.model import Cell, Facts, Table
from torchferry.sources import source as sources

FAULTY = """
import torch


class Bad(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def made():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Bad())
    return model, [(torch.rand(n, 4),) for n in (2, 5)]
"""


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    made.command()(diagnose)
    return made


@pytest.fixture
def faulty(tmp_path: Path) -> str:
    file = tmp_path / "faulty.py"
    file.write_text(FAULTY, "utf-8")
    return f"{file}:made"


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the command hands to the room below, in the place of diagnosing."""
    given: dict[str, Any] = {}

    class _StopError(Exception):
        pass

    def find(model: object, inputs: object, **options: Any) -> None:
        given.update(options)
        raise _StopError

    def load(text: str, **options: Any) -> Any:
        given.update(options, model=text)
        return sources.Source(text, None, [])

    monkeypatch.setattr(diagnoser, "diagnose", find)
    monkeypatch.setattr(sources, "load_source", load)
    return given


def test_options_have_defaults(app: typer.Typer, told: dict[str, Any]) -> None:
    CliRunner().invoke(app, ["zoo:mlp"])
    assert callable(told.pop("progress"))
    assert told == {
        "model": "zoo:mlp", "inputs": None, "sizes": None, "dtype": None,
        "least": 1, "exporter": "fx",
        "limits": None,
        "reproduce": None, "export_rest": None, "traced_functions": (),
    }  # fmt: skip


def test_options_are_handed_on_as_plain_values(app: typer.Typer, told: dict[str, Any]) -> None:
    words = [
        "m",
        "--inputs",
        "f.py:sets",
        "--sizes",
        "n=1..4",
        "--dtype",
        "bf16",
        "--exporter",
        "onnx_dynamo",
    ]
    words += ["--seconds", "7", "--reproduce", "made", "--export-rest", "rest.onnx"]
    words += ["--function", "a.b", "--function", "c.d"]
    CliRunner().invoke(app, words)
    del told["progress"]
    assert told == {
        "model": "m", "inputs": "f.py:sets", "sizes": "n=1..4", "dtype": "bf16", "least": 1,
        "exporter": "onnx_dynamo", "limits": Limits(7.0), "reproduce": Path("made"),
        "export_rest": Path("rest.onnx"),
        "traced_functions": ["a.b", "c.d"],
    }  # fmt: skip
    assert type(told["exporter"]) is str


def test_a_memory_limit_alone_is_a_limit(app: typer.Typer, told: dict[str, Any]) -> None:
    CliRunner().invoke(app, ["m", "--megabytes", "900"])
    assert told["limits"] == Limits(megabytes=900)


def test_choices_are_those_of_the_rooms(app: typer.Typer, told: dict[str, Any]) -> None:
    from torchferry.diagnoser.trial.attempt import EXPORTERS

    for name in EXPORTERS:
        CliRunner().invoke(app, ["m", "--exporter", name])
        assert told.pop("exporter") == name
    assert CliRunner().invoke(app, ["m", "--exporter", "onnx"]).exit_code == 2


def test_a_fault_is_a_problem_with_its_line(faulty: str) -> None:
    report = diagnose(faulty)
    assert not report.ok
    assert report.verdict == "1 fault in Sequential (fx): 1 (Bad)"
    (problem,) = report.problems
    assert "faulty.py:7 `return x if x.sum() > 0 else -x`" in problem
    assert "torch.cond" in problem
    (tree,) = report.sections[0].blocks
    assert isinstance(tree, Table)
    assert [row[0] for row in tree.rows] == ["__main__", "..0", "..1"]
    tones = [row[2].tone for row in tree.rows if isinstance(row[2], Cell)]
    assert tones == ["warn", "good", "bad"]
    assert report.sections[1].title == "1 (Bad)"
    assert isinstance(report.sections[1].blocks[0], Facts)
    data = json.loads(json.dumps(report.data))
    assert [module["status"] for module in data["modules"]] == ["OK_CHILDC", "OK", "FAIL"]
    assert data["culprits"][0]["places"] == ["1"]
    assert any("--reproduce" in step for step in report.next_steps)


def test_a_healthy_model_is_ok() -> None:
    report = diagnose("zoo:mlp")
    assert report.ok
    assert report.verdict.endswith("can be exported as it is (fx)")
    assert report.problems == ()
    assert report.next_steps[0].startswith("torchferry export zoo:mlp")


def test_notes_of_modules_that_work_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "random.py"
    file.write_text(
        "import torch\n\n\nclass Noisy(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x + torch.rand_like(x)\n\n\n"
        "def made():\n    return Noisy(), [(torch.rand(n, 40),) for n in (2, 5)]\n",
        "utf-8",
    )
    report = diagnose(f"{file}:made")
    (section,) = [one for one in report.sections if one.title == "Notes"]
    (table,) = section.blocks
    assert isinstance(table, Table)
    assert "random" in str(table.rows)


def test_the_help_says_what_it_does(app: typer.Typer) -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    for words in ("cannot be exported", "--exporter", "--reproduce", "--export-rest", "MODEL"):
        assert words in text


MANY = """
import torch


class Bad(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def made(bad=True):
    parts = [torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()) for _ in range(30)]
    parts += [torch.nn.Sequential(torch.nn.Sequential(Bad()), torch.nn.ReLU())] if bad else []
    return torch.nn.Sequential(*parts), [(torch.rand(n, 4),) for n in (2, 5)]


def works():
    return made(bad=False)
"""


def test_of_many_modules_the_faults_and_what_is_beside_them_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "many.py"
    file.write_text(MANY, "utf-8")
    report = diagnose(f"{file}:made")
    (table,) = report.sections[0].blocks
    assert isinstance(table, Table)
    tones = {
        str(row[0]).lstrip("."): row[2].tone for row in table.rows if isinstance(row[2], Cell)
    }
    assert len(table.rows) == 1 + 31 + 2 + 1
    assert (tones["__main__"], list(tones.values()).count("bad")) == ("warn", 1)
    assert table.note.startswith("60 more modules: --html and --json have them all")
    assert len(report.data["modules"]) == 95
    (table,) = diagnose(f"{file}:works").sections[0].blocks
    assert isinstance(table, Table)
    assert len(table.rows) == 31


MADE = """
import torch


def made():
    return torch.nn.Linear(4, 2)


def one():
    return [(torch.rand(2, 4),)]


def two():
    return [(torch.rand(n, 4),) for n in (2, 3)]
"""


def test_one_set_of_inputs_tells_which_module_breaks(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MADE, "utf-8")
    report = diagnose(f"{tmp_path}/made.py:made", inputs=f"{tmp_path}/made.py:one")
    assert report.ok
    (step,) = report.next_steps
    assert step.startswith("give two or more input sets of different sizes")


def test_the_next_command_has_the_options_of_this_one(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MADE, "utf-8")
    model, inputs = f"{tmp_path}/made.py:made", f"{tmp_path}/made.py:two"
    (step,) = diagnose(model, inputs=inputs, dtype=Dtype.bf16).next_steps
    assert step.startswith(f"torchferry export {model} --inputs {inputs} --dtype bf16 -o OUT ")
