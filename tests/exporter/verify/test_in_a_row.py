import pytest
import torch
from torch import nn

from stateful import MODELS, Counts, Grows, RingBuffer, calls
from torchferry.capturer.state.lift import lift_state
from torchferry.exporter.export import export
from torchferry.exporter.verify.in_a_row import (
    InARow,
    problems_in_a_row,
    row_table,
    verify_in_a_row,
)
from torchferry.exporter.verify.limits import Limits
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import Observation
from torchferry.values.step import Step

TOLERANCE = Tolerance.usual(nn.Linear(1, 1), [])


class Pretends:
    """A session that runs the lifted model, and forgets a piece of the state."""

    def __init__(self, lifted, forgets=(), fails=""):
        self.lifted, self.forgets, self.fails = lifted, forgets, fails

    def __call__(self, *args, lifted_state, **kwargs):
        if self.fails:
            from torchferry.errors import RunError

            raise RunError(self.fails)
        with torch.no_grad():
            step = self.lifted.model(*args, **kwargs, lifted_state=lifted_state)
        kept = {name: lifted_state[name] for name in self.forgets}
        return Step(step.outputs, {**step.state_next, **kept})


def lifted_ring():
    model = RingBuffer()
    return lift_state(model, Observation.from_inputs(model, calls(3, 3)))


def test_a_model_agrees_with_itself():
    lifted = lifted_ring()
    rows = verify_in_a_row(lifted, Pretends(lifted), TOLERANCE, [], Limits())
    assert [row.title for row in rows] == ["as recorded", "one size, other values"]
    assert all(row.ok and row.count >= 3 for row in rows)
    names = [one.name for one in rows[1].outputs]
    assert names == [
        "call 1: the output", "call 2: the output", "call 3: the output",
        "state_next.ring", "state_next.at",
    ]  # fmt: skip
    assert [*problems_in_a_row(rows)] == []


def test_state_that_is_lost_shows_in_a_later_call_only():
    lifted = lifted_ring()
    rows = verify_in_a_row(lifted, Pretends(lifted, ["ring"]), TOLERANCE, [], Limits())
    assert not any(row.ok for row in rows)
    assert "call 1: the output" not in [one.name for one in rows[0].wrong]
    (problem,) = problems_in_a_row(rows)
    assert problem.startswith("4 calls in a row (as recorded) differ from PyTorch in call 2")
    assert "so do 1 more of 2 such rows" in problem


def test_a_session_that_fails():
    lifted = lifted_ring()
    rows = verify_in_a_row(lifted, Pretends(lifted, fails="out of order"), TOLERANCE, [], Limits())
    assert rows[0].error == "out of order"
    assert "fail in the exported model" in next(problems_in_a_row(rows))


def test_calls_that_pytorch_refuses():
    row = InARow("as recorded", 3, refused="IndexError: full")
    (problem,) = problems_in_a_row([row])
    assert "as PyTorch refuses them (IndexError: full)" in problem
    assert "PyTorch refuses them" in str(row_table([row]).rows[0][-1])
    assert not row.ok


@pytest.mark.parametrize("name", ["running statistics", "ring buffer", "growing", "nested"])
def test_an_export_is_proven_in_a_row(name):
    model, sets = MODELS[name]()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    program = export(model, sets, state="lift", progress=False)
    report = program.report
    assert report.ok, report.problems
    assert "of state lifted, right in up to 4 calls in a row" in report.verdict
    rows = report.data["in_a_row"]
    assert len(rows) >= 3
    assert all(row["ok"] for row in rows)
    assert {*report.data["state"]} == {*program.state}
    first = next(iter(program.state))
    assert f"{first} (" in str(report)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_length_that_grows_has_a_name():
    program = export(Grows(), calls(2, 3, 4, axis=1), state="lift", progress=False)
    (shape,) = [i.shape for i in program.model.graph.inputs if i.name == "state.keys"]
    assert str(shape[1]) == "state_keys_dim_1"
    assert program.report.ok


def test_a_branch_on_an_integer_is_a_problem_with_its_line():
    class Warms(Counts):
        def forward(self, x):
            self.step += 1
            return x * 2 if self.step > 2 else x

    report = export(Warms(), calls(3, 3), state="lift", progress=False).report
    assert not report.ok
    assert any("state_step > 2" in problem for problem in report.problems)


def test_unverified_and_other_exporters():
    model, sets = MODELS["counts"]()
    program = export(model, sets, state="lift", check=False, progress=False)
    assert program.report.data["in_a_row"] == []
    assert program(torch.ones(1, 3)).tolist() == [[1, 1, 1]]
    from torchferry.errors import UsageError

    with pytest.raises(UsageError, match="state lift needs exporter to_onnx"):
        export(model, sets, state="lift", exporter="onnx_dynamo", progress=False)
    with pytest.raises(UsageError, match="a captured program has none"):
        export(torch.export.export(nn.ReLU(), sets[0]), sets, state="lift", progress=False)
