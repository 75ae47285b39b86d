"""A program beside its model, where conditions are broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from torchferry.capturer.trial.trial import Trial
from torchferry.dims import Condition
from torchferry.observer import Observation

NOT_ONE = Condition("n0 != 1", ("batch_size",))


class Model(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def trial(
    function: Callable[[torch.Tensor], torch.Tensor],
    rows: tuple[int, ...] = (6, 9),
    conditions: tuple[Condition, ...] = (NOT_ONE,),
) -> Trial:
    """Of a program that was captured from the first call."""
    model = Model(function).eval()
    sets = [((torch.randn(n, 3 + i),), {}) for i, n in enumerate(rows)]
    dynamic = dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC)
    given = {"x": sets[0][0][0]}
    program = torch.export.export(model, (), given, dynamic_shapes={"x": dynamic})
    return Trial(model, Observation.from_inputs(model, sets), program, conditions)


def centred(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x - x.mean(0)
    return x


def weighed(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x * x.shape[0] / x.shape[0]
    return x


def shifted(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x + (torch.arange(x.shape[1]) // 20)
    return x


def clipped(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 1:
        x = x[:, :16]
    return x.sum(1)


def test_it_is_right_where_less_code_gives_the_same() -> None:
    verdict = trial(weighed).at({"batch_size": 1, "x_dim_1": 3})
    assert verdict is not None
    assert verdict.ok


def test_it_is_wrong_where_less_code_gives_something_else() -> None:
    verdict = trial(centred).at({"batch_size": 1, "x_dim_1": 3})
    assert verdict is not None
    assert verdict.kind == "differs"


def test_values_on_which_pytorch_contradicts_itself_say_nothing() -> None:
    """Where a number is 0, float32 and float64 have nothing in common."""

    def other_in_float64(x: torch.Tensor) -> torch.Tensor:
        moved = centred(x) * torch.finfo(x.dtype).bits
        return torch.where((x == 0).any(), moved, x)

    verdict = trial(other_in_float64).at({"batch_size": 1, "x_dim_1": 40})
    assert verdict is not None
    assert verdict.ok


def test_other_sizes_are_large_too() -> None:
    verdict = trial(shifted).at({"batch_size": 1, "x_dim_1": 3})
    assert verdict is not None
    assert verdict.kind == "differs"


def test_a_large_size_that_the_program_refuses_says_nothing() -> None:
    verdict = trial(clipped).at({"batch_size": 1, "x_dim_1": 3})
    assert verdict is not None
    assert verdict.ok


def test_large_sizes_keep_to_the_other_conditions() -> None:
    odd = Condition("n0 % 2 == 1", ("x_dim_1",))
    held = trial(lambda x: x.sum(1) if x.shape[1] % 2 else x.mean(1), conditions=(NOT_ONE, odd))
    assert held.at({"batch_size": 1, "x_dim_1": 3}).ok


def test_other_code_proves_nothing() -> None:
    verdict = trial(lambda x: x * 2 if x.shape[0] > 1 else x + x).at(
        {"batch_size": 1, "x_dim_1": 3}
    )
    assert verdict is not None
    assert (verdict.kind, verdict.ok) == ("failed", False)
    assert "test_trial.py:" in verdict.evidence
    assert "else x + x" in verdict.evidence


def test_sizes_that_the_model_refuses_say_nothing() -> None:
    refusing = trial(lambda x: x.reshape(x.shape[0] // x.shape[0], -1))
    assert refusing.at({"batch_size": 0, "x_dim_1": 3}) is None


@pytest.mark.parametrize(("kept", "kind"), [((), "differs"), ((NOT_ONE,), "equal")])
def test_recorded_calls_that_the_program_accepts_are_held_to_it(
    kept: tuple[Condition, ...], kind: str
) -> None:
    assert trial(centred, rows=(6, 1)).recorded(kept).kind == kind


def test_a_recorded_call_of_another_constant_size_is_not_one_that_it_accepts() -> None:
    model = Model(lambda x: x * 2)
    sets = [((torch.randn(n, 3),), {}) for n in (6, 9)]
    program = torch.export.export(model, (), {"x": sets[0][0][0]})
    seen = Observation.from_inputs(model, sets)
    assert Trial(model, seen, program, ()).recorded(()).ok
