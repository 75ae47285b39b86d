from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.diagnoser.record.recorder import recorded
from torchferry.diagnoser.record.tree import Piece, build_tree
from torchferry.diagnoser.trial.comparison import changed_state, changing_line, judge_call
from torchferry.diagnoser.trial.option import Options
from torchferry.judge import Verdict
from torchferry.judge.reference import BAKED


def piece_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> Piece:
    piece = build_tree(Piece, model)
    with recorded(piece), torch.no_grad():
        model(torch.rand(3, 40).to(dtype))
    return piece


def judged(
    piece: Piece, run: Callable[..., Any], options: Options | None = None, *, flat: bool = False
) -> Verdict:
    (call,) = piece.calls
    given = options or Options()
    return judge_call(
        piece, call, run(*call.args), lambda c: run(*c.args), given, flat=flat
    )  # fmt: skip


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.steps = itertools.count()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x + next(self.steps)  # this line


@pytest.mark.parametrize(
    ("dtype", "off", "kind"),
    [
        (torch.float32, 1e-6, "equal"),
        (torch.float32, 1e-2, "differs"),
        (torch.float64, 1e-6, "differs"),
        (torch.bfloat16, 1e-2, "equal"),
        (torch.bfloat16, 0.5, "differs"),
        (torch.int64, 1, "differs"),
    ],
)
def test_the_dtype_says_what_is_none(dtype: torch.dtype, off: float, kind: str) -> None:
    piece = piece_of(nn.ReLU(), dtype)
    assert judged(piece, lambda x: (x + off).to(dtype)).kind == kind


def test_limits_that_are_given_hold_alone() -> None:
    piece = piece_of(nn.ReLU())
    off = lambda x: x + 1e-3  # noqa: E731  (what a program computes)
    assert judged(piece, off).kind == "differs"
    assert judged(piece, off, Options(atol=2e-3)).kind == "equal"
    assert judged(piece, off, Options(atol=2e-3, rtol=1e-6)).kind == "differs"
    assert judged(piece, lambda x: x * (1 + 1e-7), Options(atol=0.0)).kind == "differs"


def test_a_graph_gives_the_tensors_in_a_list() -> None:
    class Both(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            return {"y": x * 2, "n": 3}

    piece = piece_of(Both())
    assert judged(piece, lambda x: [x * 2], flat=True).kind == "equal"
    assert judged(piece, lambda x: [x * 2, torch.tensor(3)], flat=True).kind == "equal"
    assert judged(piece, lambda x: [x * 2, torch.tensor(4)], flat=True).kind == "differs"
    assert judged(piece, lambda x: [x * 2]).kind == "differs"


def test_a_copy_of_a_piece_runs_in_float64() -> None:
    class Cancels(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * 1.1 + 16000) - 16000

    piece = piece_of(nn.Sequential(Cancels()))
    found = judged(piece, lambda x: x * 1.1)
    assert (found.kind, "float64" in found.evidence) == ("rounding", True)
    assert judged(piece, lambda x: x * 1.2).kind == "differs"


def test_random_numbers_are_told_from_other_differences() -> None:
    model = nn.Dropout(0.5)
    piece = piece_of(model)
    assert judged(piece, model).kind == "random"
    assert judged(piece, lambda x: [torch.rand(1) * 0 + model(x)], flat=True).kind == "random"
    assert judged(piece, lambda x: model(x) + 99).kind == "differs"
    assert judged(piece, lambda x: x).kind == "differs"


def test_what_changes_from_call_to_call_is_named_with_its_line() -> None:
    piece = piece_of(nn.Linear(40, 4))
    assert changed_state(piece, piece.calls[0]) == ""
    assert changing_line(piece, piece.calls[0]) is None
    piece = piece_of(Steps())
    assert judged(piece, lambda x: x + 5).evidence == BAKED
    assert "self.calls" in changed_state(piece, piece.calls[0])
    assert str(changing_line(piece, piece.calls[0])).startswith(f"{__file__}:")


def test_the_state_of_torchs_random_numbers_is_kept() -> None:
    piece = piece_of(nn.Dropout(0.5))
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    judged(piece, lambda x: x)
    changed_state(piece, piece.calls[0])
    assert torch.equal(before, torch.random.get_rng_state())
