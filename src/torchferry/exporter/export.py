"""The whole walk: capture, convert, optimize, run and compare."""

from __future__ import annotations

import inspect
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import onnx_ir as ir
import torch
from torch.export import Dim, ExportedProgram

from torchferry.capturer import Attempt, Captured, capture, export_arguments, find_fixed
from torchferry.capturer.registering import register_arguments
from torchferry.converter import convert, convert_with_torch, name_dimensions
from torchferry.converter.convert import OPSETS, TORCH_OPSETS, check_opset
from torchferry.dims import Condition, Size
from torchferry.errors import RunError, UsageError
from torchferry.exporter import outcome
from torchferry.exporter.findings import Findings
from torchferry.exporter.program import OnnxProgram
from torchferry.exporter.steps import Steps, bytes_text, counted
from torchferry.exporter.unverified import unverified
from torchferry.exporter.verify import verify
from torchferry.exporter.weights import with_weights
from torchferry.graph import io
from torchferry.graph.reference import Region, withheld
from torchferry.observer import Observation
from torchferry.optimizer import TARGETS, Target, optimize, widen
from torchferry.progress import Progress
from torchferry.report.model import Report
from torchferry.runner import Session, nodes_without_kernel
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.signature import SIGNATURE_KEY, Signature
from torchferry.values.tolerance import Tolerance

__all__ = ["EXPORTERS", "Exporter", "check_options", "export"]

Exporter = Literal["to_onnx", "onnx_dynamo"]
EXPORTERS: tuple[Exporter, ...] = ("to_onnx", "onnx_dynamo")

_AS_GIVEN = inspect.Signature(
    [
        inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
        inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD),
    ]
)

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
    regions: Sequence[Region] = (),
    check: bool = True,
    rewrite: bool = False,
    progress: Progress = None,
) -> OnnxProgram:
    """Take a model to ONNX and verify it, at the sizes seen and at others.

    Args:
        model: the module that was observed, or a program that was exported before.
        seen: what `observe` recorded, or two or more sets of inputs ``(args, kwargs)``.
        target: ``onnx`` (standard operators) or ``onnxruntime`` (its fused ones too).
        opset: ONNX operator set; chosen for the target when ``None``.
        exporter: ``to_onnx``, ours, or ``onnx_dynamo``: ``torch.onnx.export`` as it stands.
        tolerance: what passes; chosen for the model's dtype when ``None``.
        title: what the report calls the model.
        steps: where the steps are recorded, for a walk that began earlier.
        file: ``.onnx``, where onnxruntime reads the model; a temporary file when ``None``.
        regions: files with weights of the model, to refer to: see `torchferry.graph.io.save`.
        check: whether to run and compare; without it the report says that nothing is verified.
        rewrite: see `capture`; the report shows the diff.
        progress: ``False`` shows no line on a terminal; or a function to call with each step.

    Returns:
        The program; ``.report.ok`` says whether every check passed. A failed check does not raise.

    Raises:
        UsageError: an unknown target or exporter, a bad opset, no or contradictory inputs.
        CaptureError: torch.export failed.
        ConversionError: a part of the program has no ONNX form.
        RunError: onnxruntime cannot load the model.
    """
    check_options(target, exporter, opset, rewrite=rewrite)
    recorded = steps or Steps(progress)
    plan = _Plan(target, opset, exporter, tolerance, recorded, tuple(regions), check, rewrite)
    with tempfile.TemporaryDirectory(prefix="torchferry-") as folder:
        path = file or Path(folder) / "model.onnx"
        found = _walk(model, _observation(model, seen), plan, path)
        report = _report(found, title or found.seen.title, plan, path)
    return OnnxProgram(found.model, found.captured.program, report)


def _report(found: Findings, title: str, plan: _Plan, path: Path) -> Report:
    report = outcome.report(found, title)
    if not plan.check:
        report = unverified(report, title)
    return with_weights(report, path) if plan.regions else report


def check_options(target: str, exporter: str, opset: int | None, *, rewrite: bool = False) -> None:
    """Check, before any work is done, what is chosen by name or number.

    Raises:
        UsageError: an unknown target or exporter, an opset that cannot be written, or a rewrite
            for an exporter that captures the model itself.
    """
    for value, known, what in ((target, TARGETS, "target"), (exporter, EXPORTERS, "exporter")):
        if value not in known:
            raise UsageError(f"unknown {what} {value!r}: choose one of {', '.join(known)}")
    if rewrite and exporter != "to_onnx":
        raise UsageError(f"rewrite needs exporter to_onnx: {exporter} captures the model itself")
    check_opset(opset, TORCH_OPSETS if exporter == "onnx_dynamo" else OPSETS)


@dataclass(frozen=True)
class _Plan:
    """What the caller chose."""

    target: Target
    opset: int | None
    exporter: Exporter
    tolerance: Tolerance | None
    steps: Steps
    regions: tuple[Region, ...]
    check: bool
    rewrite: bool


def _walk(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: _Plan, path: Path
) -> Findings:
    steps = plan.steps
    module = model.module() if isinstance(model, ExportedProgram) else model
    tolerance = plan.tolerance or Tolerance.of(_dtype(module, seen))
    with steps.step("infer shapes") as made:
        made(counted(len(seen.dynamic_names), "dynamic dimension"))
    convert_by = _with_torch if plan.exporter == "onnx_dynamo" else _converted
    captured, translated = convert_by(model, seen, plan)
    granted = _granted(translated) if plan.check else []
    try:
        optimized, session, size = _built(translated, plan, path)
    except RunError:
        if plan.target == "onnx":
            raise
        # onnxscript's fusions can write what onnxruntime refuses (GPT-2): go without them.
        captured, translated = convert_by(model, seen, plan)
        granted = _granted(translated)
        optimized, session, size = _built(translated, replace(plan, target="onnx"), path)
        with steps.step("unfuse") as made:
            made("onnxruntime refuses the fused model: the standard one is written")
    checks = []
    if session is not None:
        with steps.step("verify") as made:
            checks = verify(
                module,
                seen,
                session,
                tolerance=tolerance,
                program=captured.program,
                fixed=captured.sizes,
                bounds=captured.bounds(seen),
                conditions=granted,
                joined=captured.joined,
            )
            made(f"{counted(len(checks), 'set')} of sizes")
    # A program's module says that it trains whatever the model did.
    training = module.training and not isinstance(model, ExportedProgram)
    return Findings(
        seen, captured, optimized, tuple(checks), tolerance, steps, plan.target, plan.exporter,
        size, training,
    )  # fmt: skip


def _granted(model: ir.Model) -> list[Condition]:
    """What the program takes for granted of sizes, taken from the signature.

    Sizes that break it are compared with PyTorch, so that calls need not refuse them.
    """
    signature = Signature.from_json(model.metadata_props[SIGNATURE_KEY])
    model.metadata_props[SIGNATURE_KEY] = replace(signature, conditions=()).to_json()
    return [Condition(*condition) for condition in signature.conditions]


def _built(translated: ir.Model, plan: _Plan, path: Path) -> tuple[ir.Model, Session | None, int]:
    """The optimized model, its session if one is needed, and the size of its files in bytes."""
    steps = plan.steps
    with steps.step("optimize") as made:
        before = len(translated.graph)
        # The fused operators of onnxruntime's CPU provider know no bfloat16.
        unfused = plan.target != "onnx" and _holds(translated, ir.DataType.BFLOAT16)
        with withheld(translated, plan.regions):
            fused = plan.target != "onnx" and not unfused
            # An opset that was asked for stays, though newer ones have operators that fuse more.
            patterns = f"default{'+onnxruntime' * fused}{'-RaiseOpset' * bool(plan.opset)}"
            optimized = optimize(translated, patterns)
        said = ", none fused: onnxruntime's fused operators know no bfloat16" * unfused
        made(f"{before} → {counted(len(optimized.graph), 'node')}{said}")
    if missing := nodes_without_kernel(optimized, ir.DataType.BFLOAT16):
        with steps.step("widen") as made:
            counts = ", ".join(f"{count} {name}" for name, count in widen(missing).items())
            made(f"onnxruntime has no bfloat16 kernel for {counts}: cast to float32 around them")
    with steps.step("save") as made:
        io.save(optimized, path, regions=plan.regions)
        size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
        made(bytes_text(size))
    if not plan.check:
        return optimized, None, size
    with steps.step("load") as made:
        session = Session(path)
        made(counted(len(session.inputs), "input"))
    return optimized, session, size


def _converted(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: _Plan
) -> tuple[Captured, ir.Model]:
    """Our capture and conversion."""
    steps = plan.steps
    with steps.step("capture") as made:
        if isinstance(model, ExportedProgram):
            if plan.rewrite:
                raise UsageError(
                    "rewrite needs the model's code: a program that is captured already has none"
                )
            attempts = (Attempt("exported before", None),)
            captured = Captured(model, None, attempts, find_fixed(model, seen))
        else:
            captured = capture(model, seen, rewrite=plan.rewrite)
        made(counted(len(captured.program.graph.nodes), "FX node"))
    with steps.step("convert") as made:
        translated = convert(
            captured.program,
            opset=plan.opset,
            dims=_dims(seen, captured),
            defaults=_defaults(seen),
            as_stored=bool(plan.regions),
        )
        made(counted(len(translated.graph), "node"))
    return captured, translated


def _with_torch(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: _Plan
) -> tuple[Captured, ir.Model]:
    """``torch.onnx.export`` as it stands."""
    if isinstance(model, ExportedProgram):
        raise UsageError(
            "exporter onnx_dynamo captures the model itself, and this one is captured already: "
            "use to_onnx"
        )
    with plan.steps.step("torch.onnx.export") as made:
        args, kwargs, shapes = export_arguments(model, seen, Dim.DYNAMIC)
        translated, program = convert_with_torch(
            model,
            args,
            kwargs,
            dynamic_shapes=shapes,
            opset=plan.opset,
            dims=_dims(seen, None),
            defaults=_defaults(seen),
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
        for axis in argument.sizes
        if not isinstance(axis.size, int) and (argument.name, axis.index) not in fixed
    }


def _defaults(seen: Observation) -> dict[str, Any]:
    """Forward's defaults, so that a constant which differs must be given to the ONNX model."""
    parameters = seen.signature.parameters.items()
    return {name: p.default for name, p in parameters if p.default is not p.empty}


def _observation(
    model: torch.nn.Module | ExportedProgram, seen: Observation | InputSets
) -> Observation:
    if not isinstance(seen, Observation):
        module = model.module() if isinstance(model, ExportedProgram) else model
        seen = Observation.from_inputs(module, seen)
    register_arguments(seen)
    if isinstance(model, ExportedProgram):
        # A program takes its arguments as they were exported, by position or by name; how its
        # dimensions hang together is known from several calls, or guessed from one.
        positional = tuple(inspect.signature(model.module().forward).parameters)
        seen = replace(seen, signature=_AS_GIVEN, positional=positional)
        if len(seen.calls) == 1:
            seen = replace(seen, named=name_dimensions(model))
    elif len(seen.calls) == 1:
        raise UsageError(
            f"one call of {seen.title} cannot tell which dimensions are dynamic: "
            "run it at least twice, with inputs of different sizes"
        )
    return seen


def _holds(model: ir.Model, dtype: ir.DataType) -> bool:
    return any(value.dtype == dtype for value in model.graph.initializers.values())


def _dtype(module: torch.nn.Module, seen: Observation) -> torch.dtype:
    """The dtype most of the floating weights have, or else the inputs."""
    counts = Counter[torch.dtype]()
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            counts[tensor.dtype] += tensor.numel()
    given = [a.dtype for a in seen.arguments if a.dtype is not None and a.dtype.is_floating_point]
    found = counts.most_common(1) or Counter(given).most_common(1)
    return found[0][0] if found else torch.float32
