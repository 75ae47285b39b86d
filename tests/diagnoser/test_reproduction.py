from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser import StatusExport, StatusExportCode, trace_execution_piece_by_piece
from torchferry.diagnoser.reproduction import write_reproduction
from torchferry.errors import UsageError
from torchferry.values import make_dynamic_cache


class Decides(nn.Module):
    """Uses all that a script has to bring: weights, buffers, attributes, submodules, a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4, bias=False)
        self.register_buffer("shift", torch.arange(4.0), persistent=False)
        self.limits = {"low": (0.5,), "high": float("inf"), "dtype": torch.float32}
        self.act = torch.nn.functional.relu
        self.thing = object()  # has no form in Python, and is not needed

    def forward(self, x: torch.Tensor, cache: Any, *, scale: float) -> torch.Tensor:
        keys, _ = cache.update(x, x, 0)
        y = self.act(self.lin(keys)) * scale + self.shift
        if y.sum() > self.limits["low"][0]:
            return y
        return -y


def inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    past = torch.rand(batch, 2, 3, 4)
    return (torch.rand(batch, 2, 1, 4), make_dynamic_cache([(past, past + 1)])), {"scale": 2.0}


@pytest.mark.slow  # test_diagnose.py writes a simpler one
def test_the_script_fails_as_the_piece_does(tmp_path: Path) -> None:
    tree = trace_execution_piece_by_piece(Decides().eval(), [inputs(2), inputs(5)])
    status = tree.try_export()
    script = write_reproduction(tree, status, "fx", tmp_path / "made")
    assert {path.name for path in script.parent.iterdir()} == {
        "Decides.py", "Decides.safetensors",
    }  # fmt: skip
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == "<class 'torch.Tensor'>\n"  # PyTorch runs it
    assert status.reason.splitlines()[0] in done.stderr


def test_what_does_not_fail_by_itself_is_said(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    tree = trace_execution_piece_by_piece(model, [(torch.rand(n, 4),) for n in (2, 5)])
    status = StatusExport(StatusExportCode.FAIL, "EXPORT", "no such reason")
    with pytest.raises(UsageError, match="by itself it does not fail"):
        write_reproduction(tree, status, "fx", tmp_path)
    assert (tmp_path / "Linear.py").is_file()


def test_only_failures_of_the_export_are_written(tmp_path: Path) -> None:
    tree = trace_execution_piece_by_piece(nn.ReLU(), [(torch.rand(2),)])
    status = StatusExport(StatusExportCode.FAIL_DISC, "DISC", "abs=1")
    with pytest.raises(UsageError, match="step DISC"):
        write_reproduction(tree, status, "fx", tmp_path)
