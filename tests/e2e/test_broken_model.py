"""A model that is wrong in ONNX makes the command exit 1 and say what is wrong with it."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir as ir
import pytest

from torchferry.cli.main import main
from torchferry.exporter.export import export

CODE = """
from operator import index

import torch
from torch import nn

class Fixes(nn.Module):
    def forward(self, x):
        rows = index(x.shape[0])
        return x.sum(-1, keepdim=True) + torch.ones(rows, 1)

class Loops(nn.Module):
    def forward(self, x):
        total = torch.zeros(4)
        for row in x:
            self.last = row
            total = total + row
        return total

class Branches(nn.Module):
    def forward(self, x):
        if x.shape[0] == 1:
            return x * 2
        return x + 1

class Twofold(nn.Module):
    def __init__(self):
        super().__init__()
        self.left = nn.Linear(4, 2)
        self.right = nn.Linear(4, 2)
    def forward(self, x):
        return {"left": self.left(x), "right": self.right(x)}

SETS = [(torch.rand(3, 4),), (torch.rand(5, 4),)]
def fixes(): return Fixes(), SETS
def loops(): return Loops(), SETS
def branches(): return Branches(), SETS
def twofold(): return Twofold(), SETS
"""


class Ran(NamedTuple):
    code: int
    text: str
    err: str
    report: dict[str, Any]


Run = Callable[..., Ran]


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Run]:
    """``torchferry export broken:FACTORY -o out --force`` over an earlier export."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    Path("broken.py").write_text(CODE)
    Path("out").mkdir()
    Path("out/model.onnx").write_text("earlier")

    def run(factory: str) -> Ran:
        words = ["export", f"broken:{factory}", "-o", "out", "--force", "--json", "r.json"]
        monkeypatch.setattr(sys, "argv", ["torchferry", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        printed = capsys.readouterr()
        text = " ".join(printed.out.split())
        assert isinstance(stop.value.code, int)
        return Ran(stop.value.code, text, printed.err, json.loads(Path("r.json").read_text()))

    yield run
    sys.modules.pop("broken", None)


def assert_only_the_failed_folder_is_new() -> None:
    assert [p.name for p in Path("out").iterdir()] == ["model.onnx"]
    assert Path("out/model.onnx").read_text() == "earlier"
    assert {p.name for p in Path("out.failed").iterdir()} >= {"model.onnx", "report.html"}
    assert not [p for p in Path().iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    ("factory", "code"),
    [("fixes", "rows = index(x.shape[0])"), ("loops", "for row in x:")],
)
def test_a_dimension_that_the_code_fixes_is_named_with_the_line(
    run: Run, factory: str, code: str
) -> None:
    ran = run(factory)
    assert (ran.code, ran.err) == (1, "")
    line = next(n for n, text in enumerate(CODE.splitlines(), 1) if text.strip() == code)
    place = f"{Path('broken.py').resolve()}:{line}: {code}"
    (problem,) = ran.report["problems"]
    assert problem.startswith(f"dimension batch_size (x axis 0) was fixed to 3 by {place}")
    assert "batch_size ✗ fixed 3 5" in ran.text
    assert code in ran.text
    page = Path("out.failed/report.html").read_text()
    assert code in page
    assert "fixed" in page
    assert_only_the_failed_folder_is_new()


def test_a_size_at_which_the_model_differs_is_named(run: Run) -> None:
    ran = run("branches")
    assert (ran.code, ran.err) == (0, "")
    (dimension,) = ran.report["data"]["dimensions"]
    assert (dimension["name"], dimension["status"]) == ("batch_size", "verified where")
    (limit,) = [one for one in ran.report["data"]["conditions"] if one["limit"]]
    assert dimension["where"] == [limit["condition"]]
    assert str(Path("broken.py").resolve()) in limit["line"]
    assert f"verified where {limit['condition']}" in ran.text
    (check,) = [c for c in ran.report["data"]["checks"] if c["sizes"]["batch_size"] == 1]
    assert check["outside"]
    assert any(output["verdict"] == "differs" for output in check["outputs"])


def test_an_output_that_was_perturbed_in_the_file_is_named(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = sys.modules[export.__module__]
    optimize = walk.optimize

    def perturbing(model: ir.Model, patterns: str, **options: Any) -> ir.Model:
        model = optimize(model, patterns, **options)
        weight = model.graph.initializers["right.bias"]
        weight.const_value = ir.tensor(weight.const_value.numpy() + 0.5, name=weight.name)
        return model

    monkeypatch.setattr(walk, "optimize", perturbing)
    ran = run("twofold")
    assert (ran.code, ran.err) == (1, "")
    right = ran.report["data"]["checks"][0]["outputs"][1]
    assert (right["verdict"], right["abs"]) == ("differs", pytest.approx(0.5, rel=1e-3))
    (problem,) = ran.report["problems"]
    assert problem.startswith(f"output {right['name']} differs from PyTorch at batch_size=3;")
    assert problem.endswith("the conversion to ONNX is at fault")
    assert re.search(rf"{right['name']} \d 0.5", ran.text)
    verdicts = {
        output["name"]: output["verdict"]
        for check in ran.report["data"]["checks"]
        if check["sizes"]["batch_size"]  # of nothing, outputs are equal
        for output in check["outputs"]
    }
    assert sorted(verdicts.values()) == ["differs", "equal"]
    assert_only_the_failed_folder_is_new()
