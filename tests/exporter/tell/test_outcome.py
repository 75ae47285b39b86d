from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from torchferry.capturer import Attempt, Fixed
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.tell.outcome import report
from torchferry.exporter.verify.verify import Check, Compared
from torchferry.judge import Kind, Verdict
from torchferry.observer import Observation
from torchferry.report.json import to_json
from torchferry.report.model import Facts, Report
from torchferry.values import Discrepancy

Make = Callable[..., Report]


@pytest.fixture
def make(make_findings: Callable[..., Findings]) -> Make:
    return lambda *checks, **found: report(make_findings(*checks, **found), "zoo:mlp")


def output(name: str, verdict: Kind, difference: float = 0.0, **others: Any) -> Compared:
    return Compared(name, Verdict(verdict, Discrepancy(abs=difference, **others)))


def at(size: int, *outputs: Compared, **others: Any) -> Check:
    return Check({"batch_size": size}, made=False, outputs=outputs, **others)


OK = [at(size, output("y", "equal", 1e-7 * size)) for size in (3, 5, 1)]


def test_all_is_well(make: Make) -> None:
    made = make(*OK)
    assert (made.ok, made.problems, made.title) == (True, (), "export zoo:mlp")
    assert made.verdict == ("zoo:mlp: 1 output equals PyTorch's at 3 sets of sizes, max abs 5e-07")


def test_the_verdict_says_it_when_nothing_is_dynamic(
    make: Make, make_seen: Callable[..., Observation]
) -> None:
    made = make(*OK[:1], seen=make_seen((3, 4), (3, 4)))
    assert made.ok
    assert made.verdict == (
        "zoo:mlp: 1 output equals PyTorch's at 1 set of sizes, max abs 3e-07; "
        "no dimension is dynamic: the model takes the sizes seen only"
    )


def test_several_outputs_and_random_ones_are_told_apart(make: Make) -> None:
    outputs = (output("a", "equal"), output("b", "equal"), output("noise", "random", 1.0))
    made = make(at(3, *outputs), at(5, *outputs))
    assert made.ok
    assert made.verdict == (
        "zoo:mlp: 2 outputs equal PyTorch's at 2 sets of sizes, max abs 0; "
        "not compared, being random: noise"
    )


def test_an_output_that_differs_is_named_with_the_sizes_and_who_is_to_blame(make: Make) -> None:
    bad = [at(n, output("logits", "differs", n * 0.1, rel=2.0), blame="X did it") for n in (6, 1)]
    made = make(*OK, *bad)
    assert not made.ok
    assert made.verdict == "1 problem with zoo:mlp"
    (problem,) = made.problems
    assert problem == (
        "output logits differs from PyTorch at batch_size=6; batch_size=1: "
        "max abs 0.6, max rel 2; X did it"
    )


def test_a_difference_without_numbers_gives_the_reason(make: Make) -> None:
    bad = at(6, output("structure", "differs", math.inf, reason="expected 6 items, got 3"))
    (problem,) = make(*OK, bad).problems
    assert problem == (
        "the structure of the outputs differs from PyTorch at batch_size=6: "
        "expected 6 items, got 3"
    )


def test_nan_on_one_side_is_counted(make: Make) -> None:
    (problem,) = make(*OK, at(6, output("y", "differs", math.inf, dnan=4))).problems
    assert problem.endswith("max abs inf, max rel 0, 4 NaN on one side only")


def test_one_fault_at_many_sizes_is_one_problem(make: Make) -> None:
    bad = [at(n, error="bad Reshape") for n in (6, 7, 8, 9, 10)]
    (problem,) = make(*OK, *bad).problems
    assert problem == (
        "onnxruntime failed at batch_size=6; batch_size=7; batch_size=8 and 2 more: bad Reshape"
    )


def test_a_fixed_dimension_is_one_problem_whatever_happens_at_other_sizes(make: Make) -> None:
    fixed = Fixed("x", 0, "batch_size", 3, "m.py:7: int(x.shape[0])")
    wrong = at(5, error="input x has shape 5x4, but the model takes 3x4")
    made = make(OK[0], wrong, fixed=(fixed,))
    (problem,) = made.problems
    assert problem.startswith(
        "dimension batch_size (x axis 0) was fixed to 3 by m.py:7: int(x.shape[0])"
    )
    assert made.data["dimensions"][0]["status"] == "fixed"


def test_a_dimension_seen_at_one_size_only(make: Make) -> None:
    refused = at(5, refused="ValueError: no")
    (problem,) = make(OK[0], refused).problems
    assert problem.startswith(
        "dimension batch_size was verified at size 3 only (PyTorch refuses 5): give input sets"
    )


@pytest.mark.parametrize(
    ("check", "why"),
    [
        (at(3, output("y", "random", 1.0)), "every output is random"),
        (at(3, refused="ValueError: no"), "PyTorch itself refuses all sizes, with ValueError: no"),
        (at(3), "the model returns no tensor"),
    ],
)
def test_nothing_compared_is_not_the_same_as_equal(make: Make, check: Check, why: str) -> None:
    made = make(check)
    assert not made.ok
    (problem,) = made.problems
    assert problem.startswith(f"nothing could be compared: {why}")


def test_training_mode_is_the_first_thing_to_say(make: Make) -> None:
    random = at(3, output("y", "random", 1.0))
    assert make(random, training=True).problems[0].startswith("the model is in training mode")
    assert make(*OK, training=True).ok


def test_capture_is_shown_when_it_took_several_attempts(make: Make) -> None:
    def shown(*attempts: Attempt) -> bool:
        sections = {section.title: section for section in make(*OK, attempts=attempts).sections}
        return sections["Capture"].brief

    assert not shown(Attempt("non-strict", None))
    assert shown(Attempt("non-strict", "no"), Attempt("strict", None))


def test_data_are_json_whatever_was_found(make: Make) -> None:
    made = make(
        *OK,
        at(6, output("y", "differs", math.inf, dnan=1, reason="expected 1 item, got 2")),
        at(7, error="bad Reshape"),
        at(8, refused="ValueError: no"),
        fixed=(Fixed("x", 0, "batch_size", 3, None),),
    )
    data = json.loads(json.dumps(to_json(made), allow_nan=False))["data"]
    assert [check["sizes"]["batch_size"] for check in data["checks"]] == [3, 5, 1, 6, 7, 8]
    assert data["checks"][3]["outputs"][0]["abs"] == "Infinity"
    assert data["checks"][4]["error"] == "bad Reshape"
    assert data["inputs"][0]["shape"] == ["batch_size", "4"]
    assert data["model"] == {
        "nodes": 2, "bytes": 9072, "opset": 20, "ir_version": 10, "target": "onnx",
        "exporter": "to_onnx",
    }  # fmt: skip
    assert data["tolerance"] == {"atol": 1e-4, "rtol": 1e-5}
    assert data["steps"][0]["seconds"] == 1.25


def test_weights_of_few_bits_are_counted(make_findings: Callable[..., Findings]) -> None:
    found = make_findings(*OK)
    codes = ir.tensor(np.ones((32, 64), np.int8), name="codes")
    value = ir.val("codes", codes.dtype, codes.shape, const_value=codes)
    found.model.graph.register_initializer(value)
    found.model.graph.append(ir.node("Cast", [value], {"to": ir.DataType.FLOAT}))
    made = report(found, "zoo:mlp")
    assert made.data["packed"] == [{"kind": "int8", "count": 1, "size": 2048, "plain": 8192}]
    facts = [block for s in made.sections for block in s.blocks if isinstance(block, Facts)]
    said = {name: str(text) for block in facts for name, text in block.pairs}
    assert said["packed"] == "1 weight kept in int8: 2.0 KiB instead of 8.0 KiB"
