from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from torchferry import zoo
from torchferry.capturer.patches.sliding_window import sliding_layers
from torchferry.exporter.verify.sizes import Group
from torchferry.exporter.verify.trials import Budget, Trials, possible_inputs
from torchferry.exporter.verify.verify import Check
from torchferry.judge.apart import can_fork
from torchferry.observer import Observation

MODEL = nn.ReLU()
FORKS = pytest.mark.skipif(not can_fork(MODEL), reason="this system has no fork")
AMPLE = Budget(60.0)


class Session:
    """What stands for onnxruntime, in this process and in its copy."""

    signature = None

    def __init__(self, path: Path, threads: int = 0, *, conditions: bool = True) -> None:
        self.path = path

    def unload(self) -> None:
        """Nothing is loaded."""

    def alone(self) -> Session:
        return Session(self.path, threads=1, conditions=False)

    def __call__(self, **inputs: torch.Tensor) -> None:
        if len(inputs["input"]) == 7:
            os.kill(os.getpid(), signal.SIGABRT)


class Runner:
    """Runs a function of the number of rows in place of PyTorch, then the session."""

    def __init__(self, act: Callable[[int], str | None]) -> None:
        self.act = act
        self.session: Any = Session(Path("model.onnx"))

    def check(self, inputs: Any, sizes: dict[str, int], *, made: bool) -> Check:
        refused = self.act(sizes["batch_size"])
        if refused is None:
            self.session(**inputs[1])
        return Check(sizes, made, refused=refused, blame=f"process {os.getpid()}")


def tried(
    act: Callable[[int], str | None],
    *groups: tuple[int, ...],
    budget: Budget = AMPLE,
    forks: bool = True,
    session: Any = None,
) -> list[Check]:
    """The rows of groups of numbers of rows."""
    seen = Observation.from_inputs(MODEL, [(torch.rand(n, 4),) for n in (3, 5)])
    runner = Runner(act)
    runner.session = session or runner.session
    made = Trials(runner, seen, budget, row=Check, forks=forks)
    rows = made.run([Group([{"batch_size": n} for n in group]) for group in groups])
    return [row for _, row in rows]


def nothing(_: int) -> None:
    return None


@FORKS
def test_rows_come_from_one_copy_of_this_process() -> None:
    rows = tried(nothing, (6,), (1,))
    assert [row.sizes["batch_size"] for row in rows] == [6, 1]
    (process,) = {row.blame for row in rows}
    assert process not in (None, f"process {os.getpid()}")


@pytest.mark.parametrize("how", [{"forks": False}, {"session": lambda **_: None}])
def test_without_a_fork_or_a_file_this_process_runs_them(how: dict[str, Any]) -> None:
    assert tried(nothing, (6,), **how)[0].blame == f"process {os.getpid()}"


@FORKS
def test_a_crash_of_pytorch_is_a_row_and_the_next_alternative_is_tried() -> None:
    def act(rows: int) -> None:
        if rows > 5:
            os.kill(os.getpid(), signal.SIGSEGV)

    rows = tried(act, (6, 8), (9, 4), (1,))
    assert [row.sizes["batch_size"] for row in rows] == [6, 4, 1]
    assert rows[0].refused == (
        "PyTorch ended the process (signal 11, segmentation fault) with these inputs: "
        "((),dict(input:T1s6x4))"
    )
    assert [row.refused for row in rows[1:]] == [None, None]
    assert not any(row.failed for row in rows)


@FORKS
def test_a_crash_of_onnxruntime_is_a_fault_and_the_others_are_tried() -> None:
    rows = tried(nothing, (7, 8), (1,))
    assert [row.sizes["batch_size"] for row in rows] == [7, 1]
    assert rows[0].failed
    assert rows[0].error == (
        "onnxruntime ended the process (signal 6, aborted) with these inputs: "
        "((),dict(input:T1s7x4))"
    )
    assert rows[1].error is None


@FORKS
def test_what_takes_too_long_is_ended_and_what_is_left_is_told() -> None:
    def act(rows: int) -> None:
        if rows > 5:
            time.sleep(60)

    start = time.monotonic()
    rows = tried(act, (1,), (6, 7), (2,), budget=Budget(0.7))
    assert time.monotonic() - start < 10
    assert [row.untried for row in rows] == [None, *["beyond the budget of 0.7 s"] * 2]
    assert not any(row.failed or row.refused for row in rows)


def test_in_this_process_no_more_is_begun_when_the_time_is_over() -> None:
    rows = tried(lambda _: time.sleep(0.3), (1,), (6,), (2,), budget=Budget(0.4), forks=False)
    assert [row.untried for row in rows] == [None, None, "beyond the budget of 0.4 s"]


@FORKS
@pytest.mark.parametrize("way", ["raise", "killed"])
def test_what_needs_more_memory_than_there_is_counts_for_nothing(way: str) -> None:
    def act(rows: int) -> str | None:
        if rows > 5 and way == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            torch.ones(2**20 * rows * (1000 if rows > 5 else 1), dtype=torch.uint8)
        except RuntimeError as error:
            return f"RuntimeError: {error}"
        return None

    rows = tried(act, (6,), (2,), budget=Budget(60.0, 500 * 2**20))
    assert [row.untried for row in rows] == ["beyond the memory that is available", None]
    assert not any(row.refused for row in rows)


@FORKS
def test_an_exception_that_nobody_expects_is_raised_here() -> None:
    def act(_: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tried(act, (6,))


def test_where_pytorch_contradicts_itself_a_fault_counts_for_nothing() -> None:
    class Wrong(Runner):
        def check(self, inputs: Any, sizes: dict[str, int], *, made: bool) -> Check:
            return Check(sizes, made, error="wrong" if sizes["batch_size"] > 5 else None)

    seen = Observation.from_inputs(MODEL, [(torch.rand(n, 4),) for n in (3, 5)])
    asked = []

    def doubt(inputs: Any) -> str | None:
        asked.append(len(inputs[1]["input"]))
        return "PyTorch contradicts itself" if asked[-1] == 6 else None

    made = Trials(Wrong(nothing), seen, AMPLE, row=Check, forks=False, doubt=doubt)
    rows = [row for _, row in made.run([Group([{"batch_size": n}]) for n in (6, 7, 2)])]
    assert [row.refused for row in rows] == ["PyTorch contradicts itself", None, None]
    assert [row.failed for row in rows] == [False, True, False]
    assert asked == [6, 7]


def test_inputs_that_cannot_be_made_are_refused() -> None:
    seen: Any = SimpleNamespace(inputs_at=Observation.from_inputs(
        MODEL, [(torch.rand(n, 4),) for n in (3, 5)]).inputs_at)  # fmt: skip
    made = Trials(Runner(nothing), seen, AMPLE, row=Check, forks=False)
    ((_, row),) = made.run([Group([{"batch_size": -1}])])
    assert row.refused == "no input has shape [-1, 4], as batch_size=-1 asks"


def test_the_budget_follows_what_the_recorded_calls_took() -> None:
    assert Budget.of(None, 0.1).seconds == 60
    assert Budget.of(None, 10).seconds == 200
    assert Budget.of(2.5, 10).seconds == 2.5
    assert Budget.of(None, 0.1, 0.5).seconds == 300  # others had four fifths of the processor
    assert Budget.of(None, 0.1, 60).seconds == 600
    assert Budget.of(None, 8, 2).seconds == 160  # several threads
    assert Budget.of(2.5, 10, 50).seconds == 2.5


def test_a_window_that_is_not_full_is_tried_with_as_many_tokens_as_there_were():
    entry = zoo.build("mistral", state="decode-full-window")
    seen = Observation.from_inputs(entry.model, [((), one) for one in entry.input_sets])
    (mask,) = set(seen.dynamic_names) - {"batch_size", "sequence_length"}
    sizes = {"batch_size": 2, "sequence_length": 3, mask: 50}
    found, inputs = possible_inputs(seen, sizes)
    assert found == sizes
    (layer, _) = sliding_layers(inputs[1])
    assert layer.cumulative_length == 47  # as the mask has it, and not as it was recorded
    assert possible_inputs(seen, {**sizes, mask: 9})[1] is None  # its window is always full
