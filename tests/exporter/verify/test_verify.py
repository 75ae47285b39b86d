from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchferry.dims import Condition
from torchferry.errors import RunError, UsageError
from torchferry.exporter.verify.verify import Check, Compared, verify
from torchferry.judge import Tolerance, Verdict
from torchferry.observer import Observation

F32 = Tolerance.of(torch.float32)


class Function(nn.Module):
    """A model that computes any function of ``x``."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


class Session:
    """What stands for onnxruntime: any function, and the names of its outputs."""

    def __init__(self, function: Callable[[torch.Tensor], Any], leaves: list[Any]) -> None:
        self.function = function
        self.signature = SimpleNamespace(leaves=leaves)

    def __call__(self, x: torch.Tensor) -> Any:
        return self.function(x)


def check(
    model: Callable[[torch.Tensor], Any],
    exported: Callable[[torch.Tensor], Any],
    *,
    leaves: tuple[Any, ...] = (["y"],),
    sets: list[torch.Tensor] | None = None,
    program: Callable[[torch.Tensor], Any] | None = None,
    fixed: dict[str, int] | None = None,
) -> list[Check]:
    """Verify one function against another, by default at 3 and 5 rows and at others made."""
    module = Function(model)
    inputs = [torch.rand(3, 4) + 1, torch.rand(5, 4) + 1] if sets is None else sets
    seen = Observation.from_inputs(module, [((x,), {}) for x in inputs])
    captured: Any = SimpleNamespace(module=lambda: Function(program)) if program else None
    session: Any = Session(exported, list(leaves))
    return verify(module, seen, session, tolerance=F32, program=captured, fixed=fixed)


def verdicts(checks: list[Check]) -> set[str]:
    return {output.kind for check in checks for output in check.outputs}


# Which sizes are tried -------------------------------------------------------------------------


def test_recorded_inputs_come_first_then_others_with_batch_1() -> None:
    checks = check(torch.relu, torch.relu)
    assert [(c.sizes["batch_size"], c.made) for c in checks] == [
        (3, False), (5, False), (6, True), (1, True),
    ]  # fmt: skip
    assert all(c.ok and not c.failed for c in checks)


def test_a_fixed_dimension_is_tried_at_no_other_size() -> None:
    checks = check(torch.relu, torch.relu, fixed={"batch_size": 3})
    assert [c.made for c in checks] == [False, False]


def refusing(*allowed: int) -> Callable[[torch.Tensor], torch.Tensor]:
    def function(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] not in allowed:
            raise ValueError(f"takes {allowed}\nand nothing else")
        return x * 2

    return function


def test_a_size_that_pytorch_refuses_is_said_and_is_no_fault() -> None:
    checks = check(refusing(3, 5), lambda x: x * 2)
    refused = [c for c in checks if c.refused is not None]
    assert [c.sizes["batch_size"] for c in refused] == [6, 1]
    assert refused[0].refused == "ValueError: takes (3, 5)"
    assert not any(c.ok or c.failed for c in refused)


def test_when_a_size_is_refused_its_alternative_is_tried() -> None:
    checks = check(refusing(3, 5, 10), lambda x: x * 2)
    assert [c.sizes["batch_size"] for c in checks if c.ok] == [3, 5, 10]


def test_a_model_that_takes_no_inputs_again_is_refused_everywhere() -> None:
    checks = check(refusing(), torch.relu)
    assert all(c.refused == "ValueError: takes ()" for c in checks)
    assert not any(c.ok or c.failed for c in checks)


# How outputs compare ---------------------------------------------------------------------------


def test_a_difference_is_found_at_each_size_and_named() -> None:
    checks = check(
        lambda x: (x, x * 2), lambda x: (x, x * 2 + 0.01), leaves=(["kept"], ["doubled"])
    )
    for one in checks:
        assert [(o.name, o.kind) for o in one.outputs] == [
            ("kept", "equal"), ("doubled", "differs"),
        ]  # fmt: skip
        assert one.failed
        assert one.outputs[1].difference.abs == pytest.approx(0.01, rel=1e-3)


def test_a_difference_at_one_size_only() -> None:
    checks = check(lambda x: x, lambda x: x * 2 if x.shape[0] == 1 else x)
    assert [c.sizes["batch_size"] for c in checks if c.failed] == [1]


@pytest.mark.parametrize("side", ["model", "exported"])
def test_nan_on_one_side_differs(side: str) -> None:
    def spoiled(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(torch.arange(4) == 2, math.nan)

    pair = (spoiled, lambda x: x) if side == "model" else (lambda x: x, spoiled)
    assert verdicts(check(*pair)) == {"differs"}
    assert verdicts(check(spoiled, spoiled)) == {"equal"}


@pytest.mark.parametrize(
    "got",
    [lambda x: x.double(), lambda x: x[:, :2], lambda x: x[None], lambda x: x.to(torch.bool)],
    ids=["dtype", "width", "rank", "bool"],
)
def test_another_dtype_or_shape_differs_with_a_reason(got: Callable[[Any], Any]) -> None:
    outputs = [o for c in check(torch.ones_like, got) for o in c.outputs]
    assert {o.kind for o in outputs} == {"differs"}
    assert all(o.difference.reason for o in outputs)


def test_another_structure_is_one_fault() -> None:
    def rows(x: torch.Tensor) -> list[torch.Tensor]:
        return list(x)

    checks = check(rows, lambda x: [x[i % len(x)] for i in range(3)], leaves=(["a"], ["b"], ["c"]))
    by_size = {c.sizes["batch_size"]: c for c in checks}
    assert by_size[3].ok
    assert by_size[5].outputs[0].name == "structure"
    assert by_size[5].outputs[0].difference.reason == "the value: expected 5 items, got 3"


def test_constants_are_told_only_when_they_differ() -> None:
    same = check(lambda x: (x, 7, None), lambda x: (x, 7, None), leaves=(["y"], 7, None))
    assert {o.name for c in same for o in c.outputs} == {"y"}
    checks = check(lambda x: (x, x.shape[0]), lambda x: (x, 3), leaves=(["y"], 3))
    by_size = {c.sizes["batch_size"]: c for c in checks}
    assert by_size[3].ok
    assert [(o.name, o.kind) for o in by_size[5].outputs] == [("y", "equal"), ("1", "differs")]


def test_empty_and_scalar_outputs_compare() -> None:
    assert verdicts(check(lambda x: x[:0], lambda x: x[:0])) == {"equal"}
    assert verdicts(check(lambda x: x.sum(), lambda x: x.sum() + 1)) == {"differs"}


def test_a_model_that_writes_to_its_input_does_not_spoil_the_others() -> None:
    checks = check(lambda x: x.mul_(2), lambda x: x * 2)
    assert all(c.ok for c in checks)
    assert len({c.sizes["batch_size"] for c in checks}) == 4


# What is random --------------------------------------------------------------------------------


def test_a_random_output_is_called_so_and_does_not_count_as_equal() -> None:
    checks = check(torch.rand_like, torch.rand_like)
    assert verdicts(checks) == {"random"}
    assert not any(c.ok or c.failed for c in checks)


def test_only_the_random_one_of_several_is_excused() -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.rand_like(x), x

    checks = check(model, lambda x: (torch.rand_like(x), x + 1), leaves=(["noise"], ["kept"]))
    assert {(o.name, o.kind) for c in checks for o in c.outputs} == {
        ("noise", "random"), ("kept", "differs"),
    }  # fmt: skip


def test_a_random_output_of_another_shape_differs() -> None:
    assert verdicts(check(torch.rand_like, lambda x: x[:, :1])) == {"differs"}


def test_dropout_in_training_mode_is_random() -> None:
    dropout = nn.Dropout(0.5)
    drops = nn.functional.dropout
    assert verdicts(check(dropout.train(), drops)) == {"random"}
    sets = [torch.ones(3, 40), torch.ones(5, 40)]
    checks = check(dropout.train(), lambda x: drops(x) * 3, sets=sets)
    assert verdicts(checks) == {"differs"}
    assert "not from the same distribution" in checks[0].outputs[0].verdict.evidence
    assert verdicts(check(dropout.eval(), lambda x: x)) == {"equal"}


@pytest.mark.parametrize("model", [torch.rand_like, nn.Dropout(0.5).train()])
def test_what_the_exported_model_does_not_draw_is_a_constant_in_it(
    model: Callable[[torch.Tensor], Any],
) -> None:
    checks = check(model, lambda x: x * 2)
    assert verdicts(checks) == {"differs"}
    assert {o.verdict.evidence[-21:] for c in checks for o in c.outputs} == {
        "the same in every run"
    }


# Who is to blame -------------------------------------------------------------------------------


def failing(program: Callable[[torch.Tensor], Any]) -> str:
    checks = check(lambda x: x * 2, lambda x: x, program=program)
    assert all(c.failed for c in checks)
    return {c.blame for c in checks}.pop() or ""


def test_a_program_that_is_right_puts_the_blame_on_the_conversion() -> None:
    assert "the conversion to ONNX is at fault" in failing(lambda x: x * 2)


def test_a_program_that_is_wrong_puts_the_blame_on_the_capture() -> None:
    assert "torch.export is at fault" in failing(lambda x: x * 3)


def test_a_program_that_refuses_says_what_it_assumes() -> None:
    def guarded(x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("Guard failed: x.size()[0] == 3")

    blame = failing(guarded)
    assert blame.startswith("the program that torch.export made does not hold there (AssertionE")


def test_nobody_is_blamed_when_all_is_well_or_nothing_is_known() -> None:
    checks = check(lambda x: x, lambda x: x, program=lambda x: x * 2)
    checks += check(lambda x: x, lambda x: x * 2)
    assert {c.blame for c in checks} == {None}


@pytest.mark.parametrize("kind", [RunError, UsageError])
def test_what_onnxruntime_says_is_a_finding(kind: type[Exception]) -> None:
    def exported(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] == 5:
            raise kind("onnxruntime failed on x (5, 4): bad Reshape\nand more")
        return x

    checks = check(lambda x: x, exported)
    failed = [c for c in checks if c.failed]
    assert [c.sizes["batch_size"] for c in failed] == [5]
    assert failed[0].error == "onnxruntime failed on x (5, 4): bad Reshape"
    assert failed[0].outputs == ()


def test_a_fault_of_our_own_is_not_taken_for_a_finding() -> None:
    def exported(x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check(lambda x: x, exported)


def test_a_check_without_outputs_is_neither_ok_nor_failed() -> None:
    nothing = Check({"n": 1}, made=False)
    assert not nothing.ok
    assert not nothing.failed
    one = Compared("y", Verdict("equal"))
    assert Check({"n": 1}, made=False, outputs=(one,)).ok


def steep(x):
    """Rounded to about 1e-3 on the way: 1024 of the last bits of float32 are lost."""
    return (x * 1.1 + 16000) - 16000


def test_rounding_of_pytorch_itself_is_told_from_a_fault():
    sets = [torch.linspace(0.9, 0.1, 12).reshape(3, 4), torch.linspace(0.9, 0.2, 20).reshape(5, 4)]
    checks = check(steep, lambda x: x * 1.1, sets=sets)
    compared = [output for c in checks for output in c.outputs]
    assert {output.kind for output in compared} <= {"equal", "rounding"}
    beyond = [o for o in compared if not F32.allows(o.difference)]
    assert beyond
    for output in beyond:
        assert output.verdict.rounding == pytest.approx(output.difference.abs, rel=1e-3)


@pytest.mark.parametrize("wrong", [lambda x: x * 1.1 + 3e-3, lambda x: x * 1.1 + 0.5])
def test_a_fault_beyond_the_rounding_of_pytorch_differs(wrong):
    checks = check(steep, wrong)
    assert all(c.failed for c in checks if c.refused is None)
    assert {o.verdict.rounding for c in checks for o in c.outputs} == {None}


def test_where_float64_agrees_with_pytorch_a_difference_is_a_fault():
    checks = check(lambda x: x * 1.1, lambda x: x * 1.1 + 4e-4)
    assert all(c.failed for c in checks if c.refused is None)


def test_a_model_that_float64_breaks_is_judged_without_it():
    def only_single(x):
        assert x.dtype == torch.float32
        return steep(x)

    sets = [torch.full((n, 4), 0.3) for n in (3, 5)]
    checks = check(only_single, lambda x: x * 1.1, sets=sets)
    said = {o.verdict.evidence for c in checks[:2] for o in c.outputs}
    assert all("when it rounds otherwise" in one for one in said)
    assert all(c.failed for c in check(only_single, lambda x: x * 1.1 + 5e-3))


class Router(nn.Module):
    """Adds 1 where a product in bfloat16 is not below a limit that it almost meets."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0], dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x * self.weight >= 0.5, x + 1, x)


def routed(exported: Callable[[torch.Tensor], Any]) -> list[Check]:
    rows = torch.linspace(0.1, 0.9, 9).repeat(2, 1).to(torch.bfloat16)
    rows[0, 0] = 0.5  # as it happens, the limit
    sets = [((rows,), {}), ((rows.repeat(2, 1),), {})]
    model = Router()
    session: Any = Session(exported, [["y"]])
    seen = Observation.from_inputs(model, sets)
    return verify(model, seen, session, tolerance=Tolerance.of(torch.bfloat16))


def test_a_choice_that_hangs_on_a_rounding_is_told_from_a_fault():
    checks = routed(lambda x: torch.where(x * 0.998 > 0.5, x + 1, x))
    found = [output for c in checks[:2] for output in c.outputs]
    assert [output.kind for output in found] == ["rounding", "rounding"]
    assert all(output.difference.abs == 1 for output in found)
    assert all(output.verdict.rounding == pytest.approx(1, abs=0.02) for output in found)


@pytest.mark.parametrize("wrong", [lambda x: x + 1, lambda x: x, lambda x: x.log()])
def test_a_choice_that_does_not_is_a_fault(wrong):
    assert all(one.failed for one in routed(wrong)[:2])


def test_rows_say_which_condition_their_sizes_break():
    halves = Condition("n0 % 2 == 1", ("batch_size",))
    module = Function(lambda x: x * 2)
    seen = Observation.from_inputs(module, [(torch.rand(n, 4),) for n in (3, 5)])
    session: Any = Session(lambda x: x * 2 + (len(x) % 2 == 0), [["y"]])
    checks = verify(module, seen, session, tolerance=F32, conditions=[halves])
    broken = [one for one in checks if one.breaks is not None]
    assert {one.breaks for one in broken} == {halves}
    assert all(one.failed for one in broken)
    assert all(one.ok and one.sizes["batch_size"] % 2 for one in checks if one not in broken)


def test_where_every_made_size_is_refused_others_near_the_recorded_ones_are_tried():
    checks = check(refusing(3, 5, 4), lambda x: x * 2)
    assert [c.sizes["batch_size"] for c in checks if c.ok] == [3, 5, 4]


def test_what_the_budget_does_not_allow_is_told_once_a_group():
    module = Function(torch.relu)
    seen = Observation.from_inputs(module, [(torch.rand(n, 4),) for n in (3, 5)])
    session: Any = Session(torch.relu, [["y"]])
    checks = verify(module, seen, session, tolerance=F32, budget=0)
    assert [c.untried for c in checks] == [None, None, *["beyond the budget of 0 s"] * 2]
    assert not any(c.failed or c.ok for c in checks[2:])
