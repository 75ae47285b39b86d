"""What the steps of an export found; reports are made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from torchferry.capturer import Captured
from torchferry.exporter.steps import Steps
from torchferry.exporter.verify.in_a_row import InARow
from torchferry.exporter.verify.limits import Limits
from torchferry.exporter.verify.verify import Check
from torchferry.exporter.verify.verify_layers import LayerSession
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import Observation

__all__ = ["Findings"]


@dataclass(frozen=True)
class Findings:
    """Everything an export learned.

    Attributes:
        seen: the calls and what they say of the inputs.
        captured: the exported program and the strategies tried.
        model: the optimized model.
        checks: the comparisons with PyTorch.
        tolerance: what passes in them.
        steps: time and memory.
        target: ``onnx`` or ``onnxruntime``.
        exporter: ``to_onnx`` or ``onnx_dynamo``.
        bytes_written: size of the model's files.
        training: whether the model was in training mode.
        limits: where the exported model is right.
        strict: whether limits are faults.
        note: what else a reader of the comparison has to know.
        in_a_row: comparisons with PyTorch of several calls in a row.
        layers: the model, if it was verified by layers; says what was run.
    """

    seen: Observation
    captured: Captured
    model: ir.Model
    checks: tuple[Check, ...]
    tolerance: Tolerance
    steps: Steps
    target: str
    exporter: str
    bytes_written: int
    training: bool
    limits: Limits = field(default_factory=Limits)
    strict: bool = False
    note: str = ""
    in_a_row: tuple[InARow, ...] = ()
    layers: LayerSession | None = None
