from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser import StatusExport, StatusExportCode, trace_execution_piece_by_piece
from torchferry.diagnoser.explain.reproduction import write_reproduction
from torchferry.diagnoser.trial.option import Options
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
    script = write_reproduction(tree, status, Options(), tmp_path / "made")
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
        write_reproduction(tree, status, Options(), tmp_path)
    assert (tmp_path / "Linear.py").is_file()


@pytest.mark.parametrize("step", ["TIME", "MEMORY", "REPLACE"])
def test_what_no_script_shows_is_refused(step: str, tmp_path: Path) -> None:
    tree = trace_execution_piece_by_piece(nn.ReLU(), [(torch.rand(2),)])
    status = StatusExport(StatusExportCode.FAIL, step, "why")
    with pytest.raises(UsageError, match=f"step {step}"):
        write_reproduction(tree, status, Options(), tmp_path)
    assert list(tmp_path.iterdir()) == []


class Longer(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": x + len(x)}


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.shape[0] > 3 else x - 1


class Draws(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + random.gauss(2, 1)


class Differs(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (3 if torch.compiler.is_exporting() else 2)


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.seen.add_(1)


def add_one(module: nn.Module, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
    return (args[0] + 1,)


def decide(module: nn.Module, args: Any, out: torch.Tensor) -> torch.Tensor:
    return out if out.sum() > 0 else -out


class Hooked(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)
        self.register_forward_pre_hook(add_one)
        self.register_forward_hook(decide)


CASES = [
    (Differs, "fx", "DISC", "not close"),
    (Differs, "to_onnx", "DISC", "not close"),
    (Longer, "torch_script", "DISC", "not close"),
    (Draws, "fx", "DISC", "not close"),
    (Counts, "onnx_dynamo", "DISC", "not close"),
    (Counts, "torch_script", "DISC", "not close"),
    (Counts, "to_onnx", "EXPORT", "forward writes to buffer seen"),
    (Branches, "fx", "EVAL", "Guard failed"),
    (Hooked, "fx", "EXPORT", "data-dependent"),
]


@pytest.mark.parametrize(("cls", "exporter", "step", "said"), CASES[:1])
def test_wrong_numbers_are_shown_by_a_script(
    cls: type[nn.Module], exporter: str, step: str, said: str, tmp_path: Path
) -> None:
    tree = trace_execution_piece_by_piece(cls().eval(), [(torch.rand(n, 4),) for n in (2, 5)])
    status = tree.try_export(exporter)
    assert status.step == step
    script = write_reproduction(tree, status, Options(exporter), tmp_path)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("cls", "exporter", "step", "said"), CASES[1:])
def test_every_step_and_exporter_has_its_script(
    cls: type[nn.Module], exporter: str, step: str, said: str, tmp_path: Path
) -> None:
    test_wrong_numbers_are_shown_by_a_script(cls, exporter, step, said, tmp_path)
