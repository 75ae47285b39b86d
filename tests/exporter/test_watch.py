from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

from torchferry.errors import UsageError
from torchferry.exporter.steps import Steps
from torchferry.exporter.watch import run_source, watch
from torchferry.report.model import Facts, Report, Source, Table

INPUTS = """
import torch
from torchferry.values import make_dynamic_cache

def two():
    return [{"x": torch.rand(n, 16)} for n in (3, 5)]

def one():
    return [{"x": torch.rand(3, 16)}]

def wrong():
    return [{"x": torch.rand(3, 16)}, {"x": torch.rand(3, 15)}]
"""

MODEL = """
import torch
from torch import nn

class Head(nn.Module):
    def forward(self, x, n=1, bias=None, flag=True):
        return x[:, :n] if bias is None else x[:, :n] + bias

def head():
    sets = [(torch.rand(2, 9), 3), ((torch.rand(4, 9), 5), {"flag": True})]
    return Head(), [*sets, {"x": torch.rand(5, 9), "n": 1, "bias": torch.rand(5, 1)},
                    {"x": torch.rand(6, 9), "n": 1, "bias": torch.rand(6, 1)}]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sets.py").write_text(INPUTS)
    (tmp_path / "watched_head.py").write_text(MODEL)
    return tmp_path


def table(report: Report, title: str) -> Table:
    (block,) = next(s for s in report.sections if s.title == title).blocks
    assert isinstance(block, Table)
    return block


def python(report: Report) -> list[str]:
    section = next(s for s in report.sections if s.title == "Python to paste")
    return [block.text for block in section.blocks if isinstance(block, Source)]


def run(model: nn.Module, texts: list[str]) -> dict[str, Any]:
    scope: dict[str, Any] = {"model": model}
    for text in texts:
        exec(text, scope)  # noqa: S102  (what it is for)
    return scope


def test_calls_and_dimensions_are_told(file: Path) -> None:
    report = watch("zoo:mlp", inputs=f"{file / 'sets.py'}:two")
    assert report.ok
    assert report.title == "observe zoo:mlp"
    assert report.verdict == "2 calls of Mlp; dynamic: batch_size"
    calls = table(report, "Calls")
    assert [row[:3] for row in calls.rows] == [
        (1, "((),dict(x:T1s3x16))", "T1s3x4"),
        (2, "((),dict(x:T1s5x16))", "T1s5x4"),
    ]
    assert table(report, "Arguments").rows == (
        ("x", "float32", 0, "batch_size", "3, 5 → dynamic"),
        ("x", "float32", 1, "16", "16 in all 2 calls → static"),
    )
    assert [s.title for s in report.sections] == ["Calls", "Arguments", "Python to paste"]
    assert any("torchferry export zoo:mlp" in step for step in report.next_steps)


@pytest.mark.sample(1)
@pytest.mark.filterwarnings("ignore")  # torch.onnx's own
@pytest.mark.parametrize("name", ["mlp", "tiny-llm"])
def test_what_is_printed_can_be_pasted(name: str) -> None:
    from torchferry.zoo import build

    report = watch(f"zoo:{name}")
    scope = run(build(name).model, python(report))
    shapes = {v.name: [str(d) for d in v.shape] for v in scope["onnx_program"].model.graph.inputs}
    named = {d for shape in shapes.values() for d in shape if not d.isdigit()}
    assert named >= {n for n in report.data["dynamic"] if n == "batch_size"}
    program = scope["program"]
    symbols = {str(s) for node in program.graph.nodes if node.op == "placeholder"
               for s in getattr(node.meta.get("val"), "shape", ())
               if isinstance(s, torch.SymInt)}  # fmt: skip
    assert len(symbols) >= len(report.data["dynamic"])


def test_one_set_says_what_cannot_be_known(file: Path) -> None:
    report = watch("zoo:mlp", inputs=f"{file / 'sets.py'}:one")
    assert report.ok
    assert "no dimension varies; what varies of all arguments cannot be known" in report.verdict
    assert "--inputs" in report.next_steps[0]
    assert report.data["unknown"] == ["x"]
    assert "Dim.AUTO" in python(report)[1]


@pytest.fixture
def head(file: Path, monkeypatch: pytest.MonkeyPatch) -> Report:
    monkeypatch.chdir(file)
    monkeypatch.syspath_prepend(str(file))
    return watch("watched_head:head")


def test_optional_arguments_constants_and_integers(head: Report) -> None:
    assert "dynamic: batch_size, n" in head.verdict
    section = next(s for s in head.sections if s.title == "Optional and constant")
    absent, constant = section.blocks
    assert isinstance(absent, Facts)
    assert isinstance(constant, Facts)
    assert ("bias", "T1s0x1 stands for it") in absent.pairs
    assert constant.pairs == (("flag", "True"),)
    assert ("n", "integer", "", "n", "3, 5, 1, 1 → dynamic") in table(head, "Arguments").rows
    assert head.data["integers"] == {"n": [3, 5, 1, 1]}


def test_what_is_printed_for_an_integer_can_be_pasted(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file)
    (file / "watched_rows.py").write_text(
        "import torch\nclass Rows(torch.nn.Module):\n"
        "    def forward(self, x, n=2):\n        return x[:, :n] * n\n"
        "def rows():\n    return Rows().eval(), [(torch.rand(2, 9), 3), (torch.rand(4, 9),)]\n"
    )
    monkeypatch.syspath_prepend(str(file))
    report = watch("watched_rows:rows")
    scope = run(importlib.import_module("watched_rows").rows()[0], python(report))
    x = torch.rand(5, 9)
    expected = x[:, :7] * 7
    assert torch.equal(scope["program"].module()(x=x, n=7), expected)
    assert torch.equal(scope["onnx_program"](x=x, n=7)[0], expected)


def test_the_data_is_json(head: Report) -> None:
    data = json.loads(json.dumps(head.data))
    assert [c["inputs"] for c in data["calls"]][:2] == [
        "((T1s2x9,int),{})",
        "((T1s4x9,int),dict(flag:bool))",
    ]
    x = next(a for a in data["arguments"] if a["name"] == "x")
    assert x["axes"][0] == {
        "axis": 0, "size": "batch_size", "seen": [2, 4, 5, 6], "why": "2, 4, 5, 6 → dynamic",
    }  # fmt: skip
    assert data["python"]["export"] == python(head)[1]


def test_a_program_knows_its_dynamic_dimensions(tmp_path: Path) -> None:
    shapes = ({0: Dim("rows")},)
    program = torch.export.export(nn.Linear(4, 2), (torch.rand(3, 4),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "linear.pt2")
    report = watch(str(tmp_path / "linear.pt2"))
    assert table(report, "Arguments").rows[0][3:] == ("batch_size", "given")
    assert "dynamic: batch_size" in report.verdict
    assert [s.title for s in report.sections] == ["Calls", "Arguments"]


def test_bad_input_is_refused(file: Path) -> None:
    with pytest.raises(UsageError, match="input set 2 of 2"):
        watch("zoo:mlp", inputs=f"{file / 'sets.py'}:wrong")
    with pytest.raises(UsageError, match="the zoo has no model 'mpl'"):
        watch("zoo:mpl")


def test_run_source_measures_its_steps(file: Path) -> None:
    begun: list[str] = []
    steps = Steps(begun.append)
    source, seen = run_source("zoo:mlp", None, None, steps)
    assert begun == ["load model", "observe"]
    assert [step.size for step in steps.done] == ["740 parameters", "3 calls"]
    assert (source.title, len(seen.calls)) == ("zoo:mlp", 3)
    with pytest.raises(UsageError, match="1 input set"):
        run_source("zoo:mlp", f"{file / 'sets.py'}:one", None, Steps())


def test_sets_of_one_size_are_said_to_say_nothing(file: Path) -> None:
    (file / "same.py").write_text(INPUTS.replace("(3, 5)", "(3, 3)"))
    report = watch("zoo:mlp", inputs=f"{file / 'same.py'}:two")
    assert report.ok
    assert "no dimension varies; all calls have the same sizes" in report.verdict
    assert report.next_steps[0].startswith("give input sets of different sizes")
