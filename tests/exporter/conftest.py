"""One export for all tests of this room, and findings made by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import onnx_ir as ir
import pytest
import torch
from torch import nn

from torchferry.capturer import Attempt, Captured, Fixed
from torchferry.exporter.export import export
from torchferry.exporter.program import OnnxProgram
from torchferry.exporter.steps import Step, Steps
from torchferry.exporter.tell import outcome
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.verify.verify import Check
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import Observation, observe


class Branches(nn.Module):
    """Two outputs, nested; weights large enough to go to the data file."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 128)
        self.outer = nn.Linear(128, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> dict[str, Any]:
        hidden = torch.relu(self.inner(x))
        hidden = hidden if scale is None else hidden * scale
        return {"hidden": hidden, "scores": (self.outer(hidden),)}


@dataclass(frozen=True)
class Walked:
    """A finished export."""

    model: nn.Module
    seen: Observation
    program: OnnxProgram
    findings: Findings


@pytest.fixture(scope="session")
def walked() -> Walked:
    torch.manual_seed(0)
    model = Branches().eval()
    with observe(model) as seen:
        model(torch.rand(3, 4), scale=torch.tensor(2.0))
        model(torch.rand(5, 4), scale=torch.tensor(2.0))
    found = []
    with pytest.MonkeyPatch.context() as patch:
        made = outcome.report
        patch.setattr(outcome, "report", lambda f, title: found.append(f) or made(f, title))
        program = export(model, seen)
    return Walked(model, seen, program, found[0])


@pytest.fixture
def make_seen() -> Callable[..., Observation]:
    """An observation of calls with one tensor ``x``, of the shapes given."""

    def make(*shapes: tuple[int, ...]) -> Observation:
        sets = [((torch.rand(shape),), {}) for shape in shapes]
        return Observation.from_inputs(nn.ReLU(), [((), {"input": a[0]}) for a, _ in sets])

    return make


@pytest.fixture
def make_findings(make_seen: Callable[..., Observation]) -> Callable[..., Findings]:
    """What an export may have found; everything is fine unless said otherwise."""

    def make(
        *checks: Check,
        fixed: tuple[Fixed, ...] = (),
        attempts: tuple[Attempt, ...] = (Attempt("non-strict", None),),
        seen: Observation | None = None,
        training: bool = False,
    ) -> Findings:
        x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
        node = ir.Node("", "Relu", [x])
        fused = ir.Node("com.microsoft", "Gelu", list(node.outputs))
        graph = ir.Graph(
            [x], fused.outputs, nodes=[node, fused], opset_imports={"": 20, "com.microsoft": 1}
        )
        steps = Steps(done=[Step("capture", 1.25, 1.0, 300 * 2**20, "2 nodes")])
        return Findings(
            seen=seen or make_seen((3, 4), (5, 4)),
            captured=Captured(None, None, attempts, fixed),  # type: ignore[arg-type]  # no program
            model=ir.Model(graph, ir_version=10),
            checks=checks,
            tolerance=Tolerance(1e-4, 1e-5),
            steps=steps,
            target="onnx",
            exporter="to_onnx",
            bytes_written=9072,
            training=training,
        )

    return make
