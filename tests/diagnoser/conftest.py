"""Models with one fault, used by several tests of the room."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from torchferry.diagnoser import ModelDiagnoseOutput, trace_execution_piece_by_piece

sys.path.append(str(Path(__file__).parent))  # planting.py, which the benchmark shares


class Good(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x))


class Bad(nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x * mask
        return x - mask


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.good = Good()
        self.bad = Bad()

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.bad(self.good(x), mask)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b1 = Block()
        self.head = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.head(self.b1(x, mask=mask))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.ModuleList([nn.ReLU()])])
        self.named = nn.ModuleDict({"act": nn.GELU()})
        self.again = self.layers[0]
        self.never = nn.Tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.named["act"](self.layers[1][0](self.layers[0](x))))


@pytest.fixture
def layers() -> nn.Module:
    """Containers in each other, a module in two places, one that is called twice, one never."""
    return Layers()


@pytest.fixture
def model() -> nn.Module:
    """Two levels; ``b1.bad`` cannot be exported."""
    return Model()


@pytest.fixture
def inputs() -> list[tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]]:
    """Two batches for it."""
    return [((torch.randn(n, 8),), {"mask": torch.rand(n, 1)}) for n in (2, 5)]


@pytest.fixture
def tree(
    model: nn.Module, inputs: list[tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]]
) -> ModelDiagnoseOutput:
    """What was seen of it."""
    return trace_execution_piece_by_piece(model, inputs)


@pytest.fixture
def untouched(model: nn.Module) -> None:
    """Afterwards no module has a method of its own."""
    yield
    assert [name for m in model.modules() for name in vars(m) if name == "forward"] == []
