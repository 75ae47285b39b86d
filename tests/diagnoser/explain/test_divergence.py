from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from torchferry.diagnoser.explain.divergence import line_of_change, line_of_difference


class Scaled(nn.Module):
    """Computes something else when it is exported, in its second line."""

    def __init__(self, exported: float) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.exported = exported

    def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.lin(x)) + 1
        y = y * (self.exported if torch.compiler.is_exporting() else 3.0)  # here
        return torch.softmax(y + shift, dim=-1)


def line_in(model: nn.Module, x: torch.Tensor) -> str | None:
    shift = torch.ones(4)
    program = torch.export.export(model, (x,), {"shift": shift})
    return line_of_difference(lambda: model(x, shift=shift), program, (x,), {"shift": shift})


def line_here() -> int:
    lines = Path(__file__).read_text("utf-8").splitlines()
    return next(number for number, text in enumerate(lines, 1) if text.endswith("# here"))


def test_the_first_operator_that_differs_says_the_line() -> None:
    line = line_in(Scaled(2.0), torch.rand(2, 4))
    assert line == f"{__file__}:{line_here()}"


@pytest.mark.parametrize("shape", [(2, 4), (1, 4), (0, 4)])
def test_equal_programs_have_no_such_line(shape: tuple[int, ...]) -> None:
    assert line_in(Scaled(3.0), torch.rand(shape)) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_numbers_equal_themselves(value: float) -> None:
    assert line_in(Scaled(3.0), torch.full((2, 4), value)) is None


def test_a_result_of_another_shape_differs() -> None:
    class Wider(nn.Module):
        def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
            more = 3 if torch.compiler.is_exporting() else 2
            return x.repeat(1, more) * shift.sum()

    line = line_in(Wider(), torch.rand(2, 4))
    assert line is not None
    assert line.startswith(f"{__file__}:")


def test_complex_numbers_are_compared() -> None:
    class Turned(nn.Module):
        def forward(self, x: torch.Tensor, *, shift: torch.Tensor) -> torch.Tensor:
            z = torch.complex(x, shift.expand_as(x))
            return z * (1j if torch.compiler.is_exporting() else -1j)

    assert line_in(Turned(), torch.rand(2, 4)) is not None


def test_what_changes_when_it_is_run_again_has_its_line() -> None:
    steps = iter(range(9))

    def run() -> torch.Tensor:
        y = torch.ones(2, 3).relu()
        return y * next(steps)  # changes

    line = line_of_change(run)
    assert line is not None
    file, _, number = line.rpartition(":")
    assert file == __file__
    assert Path(__file__).read_text("utf-8").splitlines()[int(number) - 1].endswith("# changes")
    assert line_of_change(lambda: torch.ones(2) * 3) is None
