from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from torchferry.diagnoser import ModelDiagnoseOutput, trace_execution_piece_by_piece
from torchferry.diagnoser.replace.fallback import RestSession
from torchferry.diagnoser.replace.rest import write_rest
from torchferry.errors import UsageError
from torchferry.values.difference import max_diff


def opened(tree: ModelDiagnoseOutput, folder: Path, *paths: str) -> RestSession:
    culprits = [piece for piece in tree.walk() if piece.path in paths]
    return RestSession(write_rest(tree, culprits, folder / "rest.onnx"), culprits)


def test_the_model_runs_with_the_module_at_other_sizes(
    model: nn.Module, tree: ModelDiagnoseOutput, tmp_path: Path
) -> None:
    rest = opened(tree, tmp_path, "b1.bad")
    for rows in (1, 7):
        # Both branches of what could not be exported.
        for sign in (1, -1):
            x, mask = sign * torch.rand(rows, 8), torch.rand(rows, 1)
            with torch.no_grad():
                torch.testing.assert_close(rest(x, mask=mask), model(x, mask=mask))
    assert [len(stage.operators) for stage in rest.stages] == [1, 0]


class Step(nn.Module):
    """Takes a number, returns two tensors in a dict, and cannot be exported."""

    def forward(self, x: torch.Tensor, *, rows: int) -> dict[str, torch.Tensor]:
        scale = 2.0 if x.max() > 0.5 else 3.0
        return {"y": x * scale, "n": torch.full((1,), float(rows))}


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.one = Step()
        self.two = Step()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        kept = torch.tanh(x)
        made = self.one(self.lin(x), rows=x.shape[0])
        last = self.two(made["y"] + kept, rows=3)
        return kept + last["n"] + made["n"], last


@pytest.mark.parametrize("seed", [0, 9])  # with 9 a call of one row takes another branch
def test_operators_one_after_the_other_take_numbers_and_give_several(
    seed: int, tmp_path: Path
) -> None:
    torch.manual_seed(seed)
    model = Steps().eval()
    tree = trace_execution_piece_by_piece(model, [(torch.randn(n, 4),) for n in (2, 5)])
    rest = opened(tree, tmp_path, "one", "two")
    assert [[n.op_type for n in stage.operators] for stage in rest.stages] == [
        ["C_Steps_one"], ["C_Steps_two"], [],
    ]  # fmt: skip
    for rows in (1, 3, 6):
        x = torch.randn(rows, 4)
        with torch.no_grad():
            assert max_diff(model(x), rest(x)).abs < 1e-6


def test_what_the_module_returns_can_be_the_model_s_output(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.ReLU()))
    tree = trace_execution_piece_by_piece(model, [(torch.randn(n, 4),) for n in (2, 5)])
    rest = opened(tree, tmp_path, "1")
    x = torch.randn(3, 4)
    torch.testing.assert_close(rest(x), model(x).detach())


def test_an_operator_that_stands_for_nothing_known_is_refused(
    tree: ModelDiagnoseOutput, tmp_path: Path
) -> None:
    path = opened(tree, tmp_path, "b1.bad").path
    with pytest.raises(UsageError, match="C_Model_b1_bad"):
        RestSession(path, [])


def test_wrong_arguments_are_refused(tree: ModelDiagnoseOutput, tmp_path: Path) -> None:
    rest = opened(tree, tmp_path, "b1.bad")
    with pytest.raises(UsageError, match="mask"):
        rest(torch.rand(2, 8))
