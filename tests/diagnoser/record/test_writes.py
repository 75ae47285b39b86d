from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser import Diagnosis, diagnose
from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.record.writes import lost_writes
from torchferry.diagnoser.trial.made import Attempted
from torchferry.diagnoser.trial.status import StatusExport

EXPORTERS = ("onnx_dynamo", "torch_script")  # to_onnx refuses by itself


class Adds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(x.mean(0))  # writes
        return x + self.seen


class Puts(Adds):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x.mean(0)
        return x + self.seen


class Views(Adds):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.data[1:].copy_(x[0, 1:])
        return x + self.seen


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kept = torch.zeros(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.add(self.kept, x.mean(0), out=self.kept)
        return x + self.kept


class OnTheWay(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[0] = 1
        return y.mul_(2)


class Fills(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x[:, 0] = 0
        return x.sum(1)


class Returns(Fills):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return super().forward(x), x


def found(model: nn.Module) -> StatusExport | None:
    root = build_tree(Piece, model)
    with recorded(root), torch.no_grad():
        model(torch.rand(3, 4))
    before = {name: one.clone() for name, one in model.state_dict().items()}
    status = lost_writes(root, root.calls[0], Attempted(None, lambda _: None))
    assert all(torch.equal(before[name], one) for name, one in model.state_dict().items())
    return status


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (Adds(), "buffer seen"),
        (Puts(), "buffer seen"),
        (Views(), "buffer seen"),
        (Plain(), "tensor kept"),
        (nn.Sequential(Adds()), "buffer 0.seen"),
        (nn.BatchNorm1d(4), "buffer num_batches_tracked, buffer running_mean, buffer running_var"),
        (Fills(), "input x"),
        (nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4)), "input input in 0 (ReLU)"),
    ],
)
def test_what_is_lost_is_named(model: nn.Module, what: str) -> None:
    status = found(model)
    assert status is not None
    assert status.failed
    assert status.reason.startswith(f"forward writes to {what}: ")


@pytest.mark.parametrize(
    "model",
    [OnTheWay(), Returns(), nn.ReLU(inplace=True), nn.BatchNorm1d(4).eval(), nn.Identity(),
     nn.BatchNorm1d(4, track_running_stats=False), nn.Dropout()],
)  # fmt: skip
def test_what_is_kept_is_no_fault(model: nn.Module) -> None:
    assert found(model) is None


def test_the_line_that_writes_is_told() -> None:
    status = found(nn.Sequential(Adds()))
    assert status is not None
    assert status.line is not None
    assert status.line.startswith(__file__)
    assert status.line.endswith("# writes")
    assert "as an argument" in status.advice


def test_what_trains_is_to_be_evaluated() -> None:
    status = found(nn.BatchNorm1d(4))
    assert status is not None
    assert status.advice.startswith("call model.eval() first")


def diagnosed(model: nn.Module, exporter: str, **options: Any) -> Diagnosis:
    return diagnose(model, [(torch.rand(n, 4),) for n in (2, 5)], exporter=exporter, **options)


@pytest.mark.sample(1)
@pytest.mark.parametrize("exporter", EXPORTERS)
def test_a_module_that_writes_its_buffer_is_the_culprit(exporter: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Adds())
    (culprit,) = diagnosed(model, exporter).culprits
    assert culprit.places == ("1",)
    assert culprit.status.reason.startswith("forward writes to buffer seen: ")
    assert Path(str(culprit.status.line).partition(":")[0]).name == "test_writes.py"
    assert torch.equal(model[1].seen, torch.zeros(4))


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_what_parts_write_to_one_another_is_in_the_file(exporter: str) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), Fills())
    assert diagnosed(model, exporter).ok
