from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torchferry import testing
from torchferry.errors import UsageError
from torchferry.testing import assert_exports

MODEL_THAT_FIXES = """
import torch
from torchferry.testing import assert_exports

class Fixes(torch.nn.Module):
    def forward(self, x):
        return x * len(list(range(x.shape[0])))

def test_fixes():
    assert_exports(Fixes(), [(torch.rand(2, 3),), (torch.rand(4, 3),)], rewrite=False)

def test_passes():
    assert_exports(torch.nn.Linear(3, 2), [(torch.rand(2, 3),), (torch.rand(4, 3),)])
"""


def sets() -> list[tuple[torch.Tensor]]:
    return [(torch.rand(2, 4),), (torch.rand(3, 4),)]


def test_it_returns_the_verified_program(tmp_path: Path) -> None:
    program = assert_exports(
        torch.nn.Linear(4, 2), sets(), dynamic=("batch_size",), folder=tmp_path
    )
    x = torch.rand(1, 4)
    assert program(x).shape == (1, 2)
    assert json.loads((tmp_path / "report.json").read_text("utf-8"))["ok"]
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize(
    ("dynamic", "said"),
    [
        (["batch_size", "length"], "length is not dynamic: it has one size in all inputs"),
        ([], "batch_size is dynamic, and the test does not name it"),
    ],
)
def test_other_dimensions_fail(tmp_path: Path, dynamic: list[str], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        assert_exports(torch.nn.Linear(4, 2), sets(), dynamic=dynamic, folder=tmp_path)
    assert (tmp_path / "model.onnx").exists()


def test_a_failure_reads_like_the_report_and_is_kept(tmp_path: Path) -> None:
    class Fixes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * len(list(range(x.shape[0])))

    with pytest.raises(AssertionError) as caught:
        assert_exports(Fixes(), sets(), folder=tmp_path, rewrite=False)
    said = str(caught.value)
    assert "✗ FAILED" in said
    assert "batch_size" in said
    assert said.endswith(f"kept for you: {tmp_path}")
    assert {path.name for path in tmp_path.iterdir()} >= {
        "report.html", "report.json", "report.txt", "model.onnx"
    }  # fmt: skip


def test_what_does_not_export_is_an_assertion_with_the_code(tmp_path: Path) -> None:
    class Counts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> str:
            return "text"

    with pytest.raises(AssertionError, match=r"Counts does not export: ConversionError: .*\[TF-V"):
        assert_exports(Counts(), sets(), folder=tmp_path)
    assert "Counts" in (tmp_path / "report.txt").read_text("utf-8")


def test_wrong_use_stays_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown target"):
        assert_exports(torch.nn.Linear(4, 2), sets(), target="nothing", folder=tmp_path)


def test_the_plugin_keeps_artefacts_where_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_model.py").write_text(MODEL_THAT_FIXES, "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(testing, "_PLACE", testing._Place())
    words = "-q -p torchferry.testing -p no:cacheprovider --torchferry-artifacts kept -c /dev/null"
    assert pytest.main([*words.split(), "--rootdir", str(tmp_path), str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "1 failed, 1 passed" in printed
    assert "batch_size" in printed
    kept = {path.relative_to(tmp_path / "kept").as_posix() for path in tmp_path.rglob("kept/*/*")}
    assert {"test_model.py-test_fixes/model.onnx", "test_model.py-test_passes/report.html"} <= kept
    assert "test_model.py-test_passes/model.onnx" not in kept


def test_the_plugin_loads_nothing_heavy() -> None:
    code = "import sys, torchferry.testing; print({'torch', 'onnx', 'pytest'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
