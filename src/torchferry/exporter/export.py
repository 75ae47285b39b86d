"""The whole walk: capture, convert, optimize, run and compare."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir
import torch
from torch.export import Dim, ExportedProgram

from torchferry.capturer import Attempt, Captured, capture, export_arguments, find_fixed
from torchferry.converter import convert, convert_with_torch, name_dimensions
from torchferry.converter.convert import OPSETS
from torchferry.dims import Size
from torchferry.errors import UsageError
from torchferry.exporter import outcome
from torchferry.exporter.findings import Findings
from torchferry.exporter.program import OnnxProgram
from torchferry.exporter.steps import Steps, bytes_text, counted
from torchferry.exporter.verify import Check, Tolerance, verify
from torchferry.graph import io
from torchferry.observer import Observation
from torchferry.observer.naming import input_name
from torchferry.optimizer import TARGETS, Target, optimize
from torchferry.runner import Session
from torchferry.values.flatten import Path as ValuePath

__all__ = ["EXPORTERS", "Exporter", "check_options", "export"]

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
    check_options(target, exporter, opset)
    seen = _observation(model, seen)
    steps = steps or Steps()
    with steps.step("infer shapes") as made:
        made(counted(len(seen.dynamic_names), "dynamic dimension"))
    convert_by = _with_torch if exporter == "onnx_dynamo" else _converted
    captured, translated = convert_by(model, seen, opset, steps)
    with steps.step("optimize") as made:
        before = len(translated.graph)
        optimized = optimize(translated, target=target)
        made(f"{before} → {counted(len(optimized.graph), 'node')}")
    module = model.module() if isinstance(model, ExportedProgram) else model
    tolerance = tolerance or Tolerance.of(_dtype(module))
    with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
        size, checks = _verified(
            module, seen, captured, optimized, file or Path(folder) / "model.onnx", tolerance, steps
        )
    # A program's module says that it trains whatever the model did.
    training = module.training and not isinstance(model, ExportedProgram)
    findings = Findings(
        seen, captured, optimized, checks, tolerance, steps, target, exporter, size, training
    )
    return OnnxProgram(optimized, captured.program, outcome.report(findings, title or seen.title))


def check_options(target: str, exporter: str, opset: int | None) -> None:
    """Check, before any work is done, what is chosen by name or number.

    Raises:
        UsageError: an unknown target or exporter, or an opset that cannot be written.
    """
    for value, known, what in ((target, TARGETS, "target"), (exporter, EXPORTERS, "exporter")):
        if value not in known:
            raise UsageError(f"unknown {what} {value!r}: choose one of {', '.join(known)}")
    if opset is not None and opset not in OPSETS:
        raise UsageError(
            f"cannot write opset {opset}: choose one from {OPSETS.start} to {OPSETS.stop - 1}"
        )


def _verified(
    module: torch.nn.Module,
    seen: Observation,
    captured: Captured,
    model: ir.Model,
    path: Path,
    tolerance: Tolerance,
    steps: Steps,
) -> tuple[int, tuple[Check, ...]]:
    """Save the model, load it and compare it: bytes written, and one check a set of sizes."""
    with steps.step("save") as made:
        io.save(model, path)
        size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
        made(bytes_text(size))
    with steps.step("load") as made:
        session = Session(path)
        made(counted(len(session.inputs), "input"))
    with steps.step("verify") as made:
        checks = verify(
            module,
            seen,
            session,
            tolerance=tolerance,
            program=captured.program,
            fixed=captured.sizes,
        )
        made(f"{counted(len(checks), 'set')} of sizes")
    return size, tuple(checks)


def _converted(
    model: torch.nn.Module | ExportedProgram, seen: Observation, opset: int | None, steps: Steps
) -> tuple[Captured, ir.Model]:
    """Our capture and conversion."""
    with steps.step("capture") as made:
        if isinstance(model, ExportedProgram):
            attempts = (Attempt("exported before", None),)
            captured = Captured(model, None, attempts, find_fixed(model, seen))
        else:
            captured = capture(model, seen)
        made(counted(len(captured.program.graph.nodes), "FX node"))
    with steps.step("convert") as made:
        translated = convert(captured.program, opset=opset, dims=_dims(seen, captured))
        made(counted(len(translated.graph), "node"))
    return captured, translated


def _with_torch(
    model: torch.nn.Module | ExportedProgram, seen: Observation, opset: int | None, steps: Steps
) -> tuple[Captured, ir.Model]:
    """``torch.onnx.export`` as it stands."""
    if isinstance(model, ExportedProgram):
        raise UsageError(
            "exporter onnx_dynamo captures the model itself, and this one is captured already: "
            "use to_onnx"
        )
    with steps.step("torch.onnx.export") as made:
        args, kwargs, shapes = export_arguments(model, seen, Dim.DYNAMIC)
        translated, program = convert_with_torch(
            model, args, kwargs, dynamic_shapes=shapes, opset=opset, dims=_dims(seen, None)
        )
        attempts = (Attempt("torch.onnx.export", None),)
        made(counted(len(translated.graph), "node"))
    return Captured(program, shapes, attempts, find_fixed(program, seen)), translated


def _dims(seen: Observation, captured: Captured | None) -> dict[tuple[ValuePath, int], Size]:
    """The user's names of the dimensions that are still dynamic."""
    fixed = {(f.argument, f.axis) for f in captured.fixed} if captured else set()
    return {
        (argument.path, axis.index): axis.size
        for argument in seen.arguments
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
        named = {(input_name(path), axis): size for (path, axis), size in names.items()}
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
