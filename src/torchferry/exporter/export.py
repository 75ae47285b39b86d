"""The whole walk: capture, convert, optimize, run and compare."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir
import torch
from torch.export import Dim, ExportedProgram

from torchferry.capturer import Attempt, Captured, capture, export_arguments, find_fixed
from torchferry.converter import convert, convert_with_torch, name_dimensions
from torchferry.dims import Size
from torchferry.errors import UsageError
from torchferry.exporter import outcome
from torchferry.exporter.program import OnnxProgram
from torchferry.exporter.steps import Steps
from torchferry.exporter.verify import Check, Tolerance, verify
from torchferry.graph import io
from torchferry.observer import Observation
from torchferry.optimizer import TARGETS, Target, optimize
from torchferry.runner import Session
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.flatten import path_text

__all__ = ["EXPORTERS", "Exporter", "export"]

Exporter = Literal["to_onnx", "onnx_dynamo"]
EXPORTERS: tuple[Exporter, ...] = ("to_onnx", "onnx_dynamo")

InputSets = Sequence[tuple[tuple[Any, ...], dict[str, Any]]]


def export(
    model: torch.nn.Module | ExportedProgram,
    seen: Observation | InputSets,
    *,
    target: Target = "onnx",
    opset: int | None = None,
    exporter: Exporter = "to_onnx",
    tolerance: Tolerance | None = None,
    title: str = "",
    steps: Steps | None = None,
    file: Path | None = None,
) -> OnnxProgram:
    """Take a model to ONNX and verify it, at the sizes seen and at others.

    Args:
        model: the module that was observed, or a program that was exported before.
        seen: what `observe` recorded, or two or more sets of inputs ``(args, kwargs)``.
        target: ``onnx`` (standard operators) or ``onnxruntime`` (its fused ones too).
        opset: ONNX operator set; chosen for the target when ``None``.
        exporter: ``to_onnx`` converts our capture; ``onnx_dynamo`` is ``torch.onnx.export`` as it
            stands, to compare with.
        tolerance: what passes; chosen for the model's dtype when ``None``.
        title: what the report calls the model.
        steps: where the steps are recorded, for a walk that began earlier.
        file: where onnxruntime is to read the model from, ``.onnx``; a temporary file when
            ``None``.

    Returns:
        The program; ``.report.ok`` says whether every check passed. A failed check does not raise.

    Raises:
        UsageError: an unknown target or exporter, a bad opset, no or contradictory inputs.
        CaptureError: torch.export failed.
        ConversionError: a part of the program has no ONNX form.
        RunError: onnxruntime cannot load the model.
    """
    for value, known, what in ((target, TARGETS, "target"), (exporter, EXPORTERS, "exporter")):
        if value not in known:
            raise UsageError(f"unknown {what} {value!r}: choose one of {', '.join(known)}")
    observed = _observation(model, seen)
    walk = Walk(model, observed, target, opset, exporter, steps or Steps(), tolerance)
    with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
        result = walk.run(file or Path(folder) / "model.onnx")
    result.report = outcome.report(walk, title or walk.seen.title)
    return result


@dataclass
class Walk:
    """One export under way: what it was given and what each step found."""

    source: torch.nn.Module | ExportedProgram
    seen: Observation
    target: Target
    opset: int | None
    exporter: Exporter
    steps: Steps
    given_tolerance: Tolerance | None = None
    captured: Captured | None = None
    model: ir.Model | None = None
    checks: list[Check] = field(default_factory=list)
    nodes_before: int = 0
    bytes_written: int = 0

    @cached_property
    def tolerance(self) -> Tolerance:
        """What passes."""
        return self.given_tolerance or Tolerance.of(_dtype(self.module))

    @cached_property
    def module(self) -> torch.nn.Module:
        """What PyTorch runs."""
        if isinstance(self.source, ExportedProgram):
            return self.source.module()
        return self.source

    def run(self, file: Path) -> OnnxProgram:
        """Do every step; ``file`` is where onnxruntime reads the model from."""
        with self.steps.step("infer shapes") as made:
            names = self.seen.dynamic_names
            made(f"{len(self.seen.calls)} calls, {len(names)} dynamic dimensions")
        self._convert()
        with self.steps.step("optimize") as made:
            self.nodes_before = len(self.model.graph)
            self.model = optimize(self.model, target=self.target)
            made(f"{self.nodes_before} → {len(self.model.graph)} nodes")
        with self.steps.step("save") as made:
            io.save(self.model, file)
            self.bytes_written = sum(f.stat().st_size for f in file.parent.iterdir())
            made(f"{self.bytes_written / 2**20:.1f} MiB")
        with self.steps.step("load") as made:
            session = Session(file)
            made(f"{len(session.inputs)} inputs")
        with self.steps.step("verify") as made:
            fixed = {f.name: f.size for f in self.captured.fixed}
            self.checks = verify(
                self.module, self.seen, session, tolerance=self.tolerance, fixed=fixed
            )
            made(f"{len(self.checks)} sets of sizes")
        return OnnxProgram(self.model, self.captured.program)

    def _convert(self) -> None:
        if self.exporter == "onnx_dynamo":
            self._convert_with_torch()
            return
        with self.steps.step("capture") as made:
            self.captured = self._capture()
            made(f"{len(self.captured.program.graph.nodes)} FX nodes")
        with self.steps.step("convert") as made:
            self.model = convert(self.captured.program, opset=self.opset, dims=self._dims())
            made(f"{len(self.model.graph)} nodes")

    def _capture(self) -> Captured:
        if isinstance(self.source, ExportedProgram):
            attempts = (Attempt("exported before", None),)
            return Captured(self.source, None, attempts, find_fixed(self.source, self.seen))
        return capture(self.source, self.seen)

    def _convert_with_torch(self) -> None:
        if isinstance(self.source, ExportedProgram):
            raise UsageError("--exporter onnx_dynamo captures a module; a .pt2 file is captured")
        with self.steps.step("torch.onnx.export") as made:
            args, kwargs, shapes = export_arguments(self.source, self.seen, Dim.DYNAMIC)
            self.model, program = convert_with_torch(
                self.source, args, kwargs, dynamic_shapes=shapes, opset=self.opset
            )
            attempts = (Attempt("torch.onnx.export", None),)
            self.captured = Captured(program, shapes, attempts, find_fixed(program, self.seen))
            made(f"{len(self.model.graph)} nodes")

    def _dims(self) -> dict[tuple[ValuePath, int], Size]:
        """The user's names of the dimensions that are still dynamic."""
        fixed = {(f.argument, f.axis) for f in self.captured.fixed}
        return {
            (argument.path, axis.index): axis.size
            for argument in self.seen.arguments
            for axis in argument.axes
            if not isinstance(axis.size, int) and (argument.name, axis.index) not in fixed
        }


def _observation(
    model: torch.nn.Module | ExportedProgram, seen: Observation | InputSets
) -> Observation:
    if not isinstance(seen, Observation):
        module = model.module() if isinstance(model, ExportedProgram) else model
        seen = Observation.from_inputs(module, list(seen))
    if isinstance(model, ExportedProgram):
        names = name_dimensions(model)
        named = {(path_text(path), axis): size for (path, axis), size in names.items()}
        seen = replace(seen, named=named)
    elif len(seen.calls) == 1:
        raise UsageError(
            f"one call of {seen.title} cannot tell which dimensions are dynamic: "
            "run it at least twice, with inputs of different sizes"
        )
    return seen


def _dtype(module: torch.nn.Module) -> torch.dtype:
    """The dtype most of the floating weights have."""
    counts = Counter[torch.dtype]()
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            counts[tensor.dtype] += tensor.numel()
    return counts.most_common(1)[0][0] if counts else torch.float32
