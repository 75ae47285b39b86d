from __future__ import annotations

import inspect
import operator
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from families import in_turn
from torchferry.errors import CaptureError, ConversionError, RunError, UsageError
from torchferry.exporter.export import check_options, export
from torchferry.exporter.steps import Steps
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import Observation, observe
from torchferry.report.model import Report

SETS = [((torch.rand(3, 4),), {}), ((torch.rand(5, 4),), {})]


def is_listed(report: Report, step: str) -> bool:
    return step in [done["name"] for done in report.data["steps"]]


def test_an_export_is_verified_at_sizes_seen_and_others(walked: Any) -> None:
    report = walked.program.report
    assert report.ok, report.problems
    assert report.title == "export Branches"
    (dimension,) = report.data["dimensions"]
    assert dimension["status"] == "verified"
    assert {1, 3, 5} < set(dimension["agreed"])
    outputs = {o["name"] for check in report.data["checks"] for o in check["outputs"]}
    assert outputs == {value.name for value in walked.program.model.graph.outputs}


def test_the_program_has_all_that_was_made(walked: Any) -> None:
    assert isinstance(walked.program.model, ir.Model)
    assert isinstance(walked.program.program, torch.export.ExportedProgram)
    x, scale = walked.program.model.graph.inputs
    assert (x.name, scale.name) == ("x", "scale")
    assert str(x.shape[0]) == "batch_size"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "tpu"}, "unknown target 'tpu': choose one of onnx, onnxruntime"),
        ({"exporter": "x"}, "unknown exporter 'x': choose one of to_onnx, onnx_dynamo"),
        ({"opset": 7}, "cannot write opset 7: choose one from 18 to "),
        ({"opset": 24, "exporter": "onnx_dynamo"}, "cannot write opset 24"),
    ],
)
def test_options_are_checked_before_any_work(options: dict[str, Any], message: str) -> None:
    steps = Steps(pytest.fail)
    with pytest.raises(UsageError, match=message):
        export(nn.ReLU(), SETS, steps=steps, **options)


def test_options_that_can_be_used() -> None:
    for opset in (None, 18, 20, 23):
        check_options("onnxruntime", "onnx_dynamo", opset)


def test_one_call_is_too_few_and_none_too() -> None:
    with pytest.raises(UsageError, match=r"one call of ReLU cannot tell .* run it at least twice"):
        export(nn.ReLU(), SETS[:1])
    with pytest.raises(UsageError, match="no call of ReLU was recorded"):
        export(nn.ReLU(), [])
    with observe(nn.ReLU()) as seen:
        pass
    with pytest.raises(UsageError, match="no call of ReLU was recorded"):
        export(nn.ReLU(), seen)


def test_sets_of_inputs_do_for_an_observation() -> None:
    steps, told = Steps(), []
    steps.progress = told.append
    with steps.step("load model"):
        pass
    program = export(nn.ReLU(), SETS, opset=18, title="mine", steps=steps)
    assert program.report is not None
    assert program.report.ok
    assert program.report.verdict.startswith("mine: 1 output equals")
    assert program.model.opset_imports[""] == 18
    assert is_listed(program.report, "load model")
    assert told[:3] == ["load model", "infer shapes", "capture"]


def test_the_file_onnxruntime_reads_may_be_kept(tmp_path: Path) -> None:
    program = export(nn.ReLU(), SETS, file=tmp_path / "kept.onnx")
    assert [file.name for file in tmp_path.iterdir()] == ["kept.onnx"]
    assert program.path is None
    assert ir.load(tmp_path / "kept.onnx").graph.outputs[0].name == "output"


def test_otherwise_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    export(nn.ReLU(), SETS)
    assert list(tmp_path.iterdir()) == []


def test_onnxruntime_as_target_may_use_its_own_operators() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU()).eval()
    program = export(model, SETS, target="onnxruntime")
    assert program.report is not None
    assert program.report.ok, program.report.problems
    assert program.report.data["model"]["target"] == "onnxruntime"


def test_torch_onnx_as_it_stands(walked: Any) -> None:
    program = export(walked.model, walked.seen, exporter="onnx_dynamo")
    assert program.report is not None
    assert program.report.ok, program.report.problems
    assert is_listed(program.report, "torch.onnx.export")
    assert [str(size) for size in program.model.graph.inputs[0].shape] == ["batch_size", "4"]
    with pytest.raises(UsageError, match="captured already: use to_onnx"):
        export(program.program, SETS, exporter="onnx_dynamo")


def test_a_program_is_exported_as_it_was_captured(walked: Any) -> None:
    x = torch.rand(6, 4)
    calls = [((x,), {"scale": torch.tensor(3.0)})]
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}, "scale": None}
    captured = torch.export.export(walked.model, *calls[0], dynamic_shapes=shapes)
    program = export(captured, calls)
    assert program.program is captured
    assert program.report is not None
    assert program.report.ok, program.report.problems
    (dimension,) = program.report.data["dimensions"]
    assert dimension["name"] == "batch_size"
    assert len(dimension["agreed"]) >= 3
    got = program(torch.rand(2, 4), scale=torch.tensor(3.0))
    assert got["hidden"].shape == (2, 128)


def test_a_tolerance_decides(walked: Any) -> None:
    program = export(walked.model, walked.seen, tolerance=Tolerance(0.0, 0.0))
    assert program.report is not None
    assert program.report.data["tolerance"] == {"atol": 0.0, "rtol": 0.0}
    assert not program.report.ok
    assert any("differs from PyTorch" in problem for problem in program.report.problems)


def test_half_precision_gets_a_tolerance_of_its_own() -> None:
    model = nn.Linear(4, 2).half().eval()
    program = export(model, [((a[0].half(),), {}) for a, _ in SETS])
    assert program.report is not None
    assert program.report.ok, program.report.problems
    assert program.report.data["tolerance"]["atol"] == 1e-2


def test_training_mode_with_dropout_is_a_problem() -> None:
    model = nn.Dropout(0.5).train()
    with pytest.raises(ConversionError, match=r"is random, call model.eval\(\)"):
        export(model, SETS)
    report = export(model, SETS, exporter="onnx_dynamo").report
    assert report is not None
    assert not report.ok
    assert "call model.eval() first" in report.problems[0]


class Fixes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(operator.index(x.shape[0]))[:, None]


class Notes(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            self.seen = True
        return x * 2


class Decides(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x


def test_a_dimension_that_the_code_fixes_does_not_pass() -> None:
    report = export(Fixes(), SETS).report
    assert report is not None
    assert not report.ok
    line = inspect.getsourcelines(Fixes)[1] + 2
    assert f"{Path(__file__).name}:{line}: return x + torch.arange" in report.problems[0]
    assert report.data["dimensions"][0]["status"] == "fixed"


def test_what_cannot_be_captured_raises() -> None:
    with pytest.raises(CaptureError, match="the values of a tensor decide"):
        export(Notes(), SETS)


def test_what_can_be_rewritten_is_captured_all_the_same() -> None:
    sets = [((value * torch.ones(n, 2),), {}) for n, value in ((3, 1.0), (4, -1.0))]
    report = export(Decides(), sets).report
    assert report is not None
    assert report.ok, report.problems
    assert "torch.cond" not in report.data["rewritten"]
    assert "+" in report.data["rewritten"]


def test_a_program_cannot_be_rewritten() -> None:
    program = torch.export.export(nn.ReLU(), (torch.ones(2),))
    with pytest.raises(UsageError, match="a program that is captured already has none"):
        export(program, SETS, rewrite=True)


class _AddsInPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        h = x * 1
        y = h
        if x.sum() > 0:
            y += 1
        return h, y


def test_a_side_that_writes_to_what_is_outside_is_seen_outside() -> None:
    report = export(_AddsInPlace(), SETS, rewrite=True).report
    assert report is not None
    assert report.ok, report.problems


@dataclass
class _Pair:
    left: torch.Tensor
    right: torch.Tensor


class _Sums(nn.Module):
    def forward(self, pair: _Pair) -> torch.Tensor:
        return pair.left + pair.right


def test_a_dataclass_may_be_an_argument() -> None:
    sets = [((_Pair(torch.rand(n, 2), torch.rand(n, 2)),), {}) for n in (2, 3)]
    report = export(_Sums(), sets).report
    assert report is not None
    assert report.ok, report.problems


def test_a_model_that_onnxruntime_cannot_load_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def spoil(model: ir.Model, patterns: str, **_: Any) -> ir.Model:
        model.graph.node(0).op_type = "NoSuchOperator"
        return model

    # By its name in the package stands the function of that name.
    monkeypatch.setattr(sys.modules[export.__module__], "optimize", spoil)
    with pytest.raises(RunError, match="NoSuchOperator"):
        export(nn.ReLU(), SETS)


def test_an_observation_is_left_as_it_is(walked: Any) -> None:
    assert isinstance(walked.seen, Observation)
    assert [call.kwargs["scale"].item() for call in walked.seen.calls] == [2.0, 2.0]
    assert [tuple(call.args[0].shape) for call in walked.seen.calls] == [(3, 4), (5, 4)]


def test_fusions_that_onnxruntime_refuses_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard model is written, and the report says so."""
    module = sys.modules[export.__module__]
    standard = module.optimize

    def broken(model: ir.Model, patterns: str, **_: Any) -> ir.Model:
        standard(model, "default")
        if "onnxruntime" in patterns:
            first = model.graph[0]
            first.op_type, first.domain = "NoSuchOperator", "com.microsoft"
        return model

    monkeypatch.setattr(module, "optimize", broken)
    sets = [((torch.rand(rows, 4),), {}) for rows in (2, 3)]
    report = export(nn.Linear(4, 2), sets, target="onnxruntime").report
    assert report.ok
    made = {step["name"]: step["made"] for step in report.data["steps"]}
    assert made["unfuse"] == "onnxruntime refuses the fused model: the standard one is written"


def test_an_opset_that_was_asked_for_stays() -> None:
    sets = [((torch.rand(rows, 4),), {}) for rows in (2, 3)]
    exported = [export(nn.RMSNorm(4), sets, target="onnxruntime", opset=o) for o in (20, None)]
    assert [program.model.opset_imports[""] for program in exported] == [20, 23]
    assert all(program.report.ok for program in exported)


class Tags(nn.Module):
    def __init__(self, both: bool) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True, bidirectional=both)
        self.head = nn.Linear(6 if both else 3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.lstm(x)[0])
        return found


@pytest.mark.parametrize(
    ("both", "dtype"), in_turn([True, False], [torch.float16, torch.bfloat16])
)
def test_a_product_after_an_lstm_in_half_precision_loads(
    dtype: torch.dtype, both: bool, tmp_path: Path
) -> None:
    file = tmp_path / "model.onnx"
    sets = [((torch.randn(*size, 4, dtype=dtype),), {}) for size in ((2, 5), (3, 7))]
    export(Tags(both).to(dtype).eval(), sets, file=file, check=False)
    # onnxruntime 1.32 ends the process where the first two of three axes change places before it.
    load = "import onnxruntime as o; o.InferenceSession({!r}, providers=['CPUExecutionProvider'])"
    code = load.format(str(file))
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
