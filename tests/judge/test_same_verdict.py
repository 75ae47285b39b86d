"""One verdict, whichever command is asked."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import torchferry
from families import in_turn
from torchferry.capturer import capture
from torchferry.capturer.trial.agreement import compare_calls
from torchferry.comparer import compare
from torchferry.diagnoser import trace_execution_piece_by_piece
from torchferry.errors import Mismatch
from torchferry.judge import Verdict, worst_verdict
from torchferry.observer import Observation, observe
from torchferry.values.kinds import attempt

sys.path.append(str(Path(__file__).parent))

from verdict_models import CASES, Case


def watched(model: torch.nn.Module, sets: list[Any]) -> Observation:
    with torch.no_grad(), observe(model) as seen:
        for args in sets:
            model(*args)
    return seen


def by_capture(case: Case) -> Verdict:
    model = case.model()
    seen = watched(model, case.sets())
    captured = capture(model, seen)
    checks = compare_calls(captured.program, seen, captured.joined, model=model)
    return worst_verdict(check.verdict for check in checks)


def by_export(case: Case) -> Verdict:
    model = case.model()
    report = torchferry.export(model, watched(model, case.sets())).report
    outputs = [output for check in report.data["checks"] for output in check["outputs"]]
    assert outputs, report.problems
    return worst_verdict(Verdict(one["verdict"], evidence=one["evidence"]) for one in outputs)


def by_compare(case: Case) -> Verdict:
    model = case.model()
    made = torchferry.export(model, watched(model, case.sets()))
    return compare(model, made, [(args, {}) for args in case.sets()]).verdict


def by_diagnose(case: Case) -> Verdict:
    tree = trace_execution_piece_by_piece(case.model(), case.sets())
    status = tree.try_export("to_onnx")
    assert status.verdict is not None, status
    return status.verdict


def by_compile(case: Case) -> Verdict:
    torch._dynamo.reset()
    storage: dict[str, Any] = {}
    compiled = torch.compile(
        case.model(), backend="torchferry", options={"verify": True, "storage": storage}
    )
    for args in case.sets():
        with torch.no_grad():
            _, error = attempt(compiled, *args)
        verdicts = [v for one in storage["verdicts"] for v in one["results"].values()]
        assert error is None or isinstance(error, Mismatch)
        assert (error is not None) == (storage["verdicts"][-1]["worst"].kind == "differs")
    return worst_verdict(verdicts)


WAYS = (by_capture, by_export, by_compare, by_diagnose, by_compile)


@pytest.mark.sample(9)
@pytest.mark.parametrize(
    ("case", "way"), in_turn(CASES, WAYS), ids=lambda one: getattr(one, "name", None)
)
def test_the_verdict_is_the_same_in_every_command(case: Case, way: Any) -> None:
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that trace
        verdict = way(case)
    assert verdict.kind == case.kind, verdict
    assert case.says in verdict.evidence
