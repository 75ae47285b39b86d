from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

from torchferry.diagnoser.trial.quiet import quiet
from torchferry.diagnoser.trial.script import torch_script
from torchferry.observer import Observation


def made_of(model: nn.Module, *shape: int) -> object:
    sets = [((torch.rand(n, *shape),), {}) for n in (2, 5)]
    with quiet():
        return torch_script(model, Observation.from_inputs(model, sets), {})


class Reads(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        match self.how:
            case "bool":
                return x if x.sum() > 0 else -x  # bool
            case "item":
                return x * x.sum().item()  # item
            case "numpy":
                return x + torch.from_numpy(x.numpy() + 1)  # numpy
            case "list":
                return x * x.sum().tolist()  # list
            case "index":
                return x[: int(x.argmax()) + 1]  # index
            case "equal":
                return x + 1 if torch.equal(x, x.abs()) else -x  # equal
            case "close":
                return x + 1 if torch.allclose(x, x + 1) else -x  # close
            case _:
                return x if x.shape[0] < 9 else x + len(x)


@pytest.mark.parametrize("how", ["bool", "item", "numpy", "list", "index", "equal", "close"])
def test_a_value_that_decides_is_told_with_its_line(how: str) -> None:
    found = made_of(Reads(how), 4).decided
    assert found is not None
    file, _, number = found.rpartition(":")
    assert Path(file).read_text("utf-8").splitlines()[int(number) - 1].endswith(f"# {how}")


def test_a_size_that_decides_is_no_value() -> None:
    made = made_of(Reads("size"), 4)
    assert made.decided is None
    assert made.line_at_fault is not None
    assert str(made.line_at_fault(None)).startswith(f"{__file__}:")


def test_what_is_not_traced_may_look_at_values() -> None:
    class Careful(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not torch.jit.is_tracing() and x.sum() > 0:
                return x + 0
            return x + 0

    assert made_of(Careful(), 4).decided is None


def test_warnings_are_shown_as_before_afterwards() -> None:
    shown = warnings.showwarning
    printed = torch._C._jit_onnx_log
    made_of(Reads("bool"), 4)
    assert warnings.showwarning is shown
    assert torch._C._jit_onnx_log is printed


def test_a_failed_export_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    class Unknown(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvals(x).abs()

    with pytest.raises(Exception, match="linalg_eigvals"):
        made_of(Unknown(), 3, 3)
    assert capfd.readouterr().out == ""
