"""The whole walk: capture, convert, optimize, run and compare."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch.export import Dim, ExportedProgram

from torchferry.capturer import Attempt, Captured, capture, export_arguments, find_fixed
from torchferry.capturer.patching.registering import register_arguments
from torchferry.capturer.rewrite.rewriting import Rewrite
from torchferry.capturer.state.lift import State, lift_state
from torchferry.capturer.state.outside import trace_kept
from torchferry.capturer.state.places import state_kept
from torchferry.capturer.trial.instructions import model_instructions
from torchferry.capturer.trial.reliance import Reliances, find_reliances
from torchferry.capturer.trial.trial import Trial
from torchferry.converter import convert, convert_with_torch, name_dimensions
from torchferry.converter.rename import Names, rename_ends
from torchferry.dims import Size
from torchferry.errors import CaptureError, RunError, UsageError
from torchferry.exporter.memory import Verify, can_run, weight_bytes
from torchferry.exporter.plan import EXPORTERS, Exporter, Options, Plan, check_options
from torchferry.exporter.program import OnnxProgram
from torchferry.exporter.steps import Steps, bytes_text, counted
from torchferry.exporter.tell import outcome
from torchferry.exporter.tell.findings import Findings
from torchferry.exporter.tell.weights import with_weights
from torchferry.exporter.verify.fast_path import fast_path_note
from torchferry.exporter.verify.in_a_row import InARow, verify_in_a_row
from torchferry.exporter.verify.limits import Limits, find_limits
from torchferry.exporter.verify.unverified import unverified
from torchferry.exporter.verify.verify import ForeignSides, Sides
from torchferry.exporter.verify.verify import verify as verify_sizes
from torchferry.exporter.verify.verify_layers import LayerSession, LayerSides
from torchferry.graph import io
from torchferry.graph.reference import Region, withheld
from torchferry.judge.tolerance import Tolerance
from torchferry.observer import Observation
from torchferry.observer.conditions import store_signature
from torchferry.observer.given import Stated, to_observation
from torchferry.observer.keywords import defaults_of
from torchferry.observer.module import check_module
from torchferry.optimizer import Target, optimize, widen
from torchferry.progress import Progress
from torchferry.runner import Session, nodes_without_kernel
from torchferry.runner.conditions import conditions_in
from torchferry.sources.arguments import AS_GIVEN
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = ["EXPORTERS", "Exporter", "Options", "check_options", "export"]

InputSets = Sequence[tuple[tuple[Any, ...], dict[str, Any]]]


def export(
    model: torch.nn.Module | ExportedProgram,
    seen: Observation | InputSets | Callable[..., Any],
    *,
    target: Target = "onnx", opset: int | None = None, exporter: Exporter = "to_onnx",
    tolerance: Tolerance | None = None, title: str = "", steps: Steps | None = None,
    file: Path | None = None, regions: Sequence[Region] = (), check: bool = True,
    rewrite: Rewrite = "auto", strict: bool = False, sizes: Stated = None,
    budget: float | None = None, progress: Progress = None, onnxruntime: str | None = None,
    state: State = "refuse", input_names: Names = (), output_names: Names = (),
    repeat: bool = True, verify: Verify = "auto",
) -> OnnxProgram:  # fmt: skip
    """Take a model to ONNX and verify it, at the sizes seen and at others.

    Args:
        model: a module, or a program that was exported before.
        seen: an observation, sets of inputs ``(args, kwargs)``, or a function of sizes.
        target: ``onnx`` (standard operators) or ``onnxruntime`` (its fused ones too).
        opset: ONNX operator set; chosen for the target when ``None``.
        exporter: ``to_onnx``, or ``onnx_dynamo``: ``torch.onnx.export``.
        tolerance: what passes; by the model's dtype when ``None``.
        title: what the report calls the model.
        steps: of a walk that began earlier.
        file: where onnxruntime reads the model from; a temporary file when ``None``.
        regions: files with weights, to refer to: see `torchferry.graph.io.save`.
        check: whether to run and compare; without it the report says that nothing is verified.
        rewrite: see `capture`.
        strict: whether it is a fault if the result is right only where a condition holds.
        sizes: the legal sizes, ``"height=64..512:8, batch_size=1..4"``; no others are tried.
        budget: seconds for sizes beside those recorded; see `trials.Budget`.
        progress: ``False`` shows no line on a terminal; or a function to call with each step.
        onnxruntime: the version that will run it, as ``"1.28"``; the installed one when ``None``.
        state: ``lift`` makes what ``forward`` keeps for later calls inputs and outputs.
        input_names: new names, in order or by the old ones: see `rename_ends`.
        output_names: the same.
        repeat: see `capture`.
        verify: ``whole``, ``layers`` (see `LayerSides`), or as the memory allows (``auto``).

    Returns: the program; ``.report.ok`` says whether all checks passed, as none of them raises.

    Raises:
        FerryError: an option or the inputs cannot be used, or a step failed; see the classes.
    """
    chosen = (target, opset, exporter, tolerance, steps or Steps(progress), tuple(regions), check)
    named = (rewrite, strict, budget, onnxruntime, state, (input_names, output_names), repeat)
    plan = Plan(*chosen, *named, verify=verify).for_size(weight_bytes(model))
    with tempfile.TemporaryDirectory(prefix="torchferry-") as folder, disable_fast_paths():
        path = file or Path(folder) / "model.onnx"
        model, seen, plan = _prepared(model, seen, sizes, plan)
        return _reported(_walk(model, seen, plan, path), title, plan, path)


def _prepared(
    model: torch.nn.Module | ExportedProgram, seen: Any, sizes: Stated, plan: Plan
) -> tuple[torch.nn.Module | ExportedProgram, Observation, Plan]:
    if not isinstance(model, ExportedProgram):
        check_module(model, "export")
    if plan.state == "refuse":
        return model, _observation(model, seen, sizes, run=plan.check), plan
    if isinstance(model, ExportedProgram):
        raise UsageError("state lift needs the model's code: a captured program has none")
    with state_kept(model):
        seen = _observation(model, seen, sizes, run=plan.check)
    if lifted := lift_state(model, seen):
        model, seen = lifted.model, lifted.seen
    return model, seen, replace(plan, lifted=lifted)


def _reported(found: Findings, title: str, plan: Plan, path: Path) -> OnnxProgram:
    title = title or found.seen.title
    report = outcome.report(found, title)
    if not plan.check:
        report = unverified(report, title)
    if plan.regions:
        report = with_weights(report, path)
    return OnnxProgram(found.model, found.captured.program, report)


def _walk(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: Plan, path: Path
) -> Findings:
    steps = plan.steps
    module = model.module() if isinstance(model, ExportedProgram) else model
    tolerance = plan.tolerance or Tolerance.usual(
        module, [(call.args, call.kwargs) for call in seen.calls[:1]]
    )
    with steps.step("infer shapes") as made:
        made(counted(len(seen.dynamic_names), "dynamic dimension"))
    captured, translated, (optimized, loaded, size) = _converted_and_built(model, seen, plan, path)
    session: Session | LayerSession | None = loaded
    checks, note = [], ""
    conditions = conditions_in(_signature(translated))
    limits = Limits(tuple(conditions), unproven=captured.unproven)
    if session is None and plan.regions:  # too large to be run: what torch itself excludes
        limits = Limits(tuple(condition for condition in conditions if condition.matters))
    if plan.layers:
        session = _layers(captured.program, plan, path)
    by_layers = isinstance(session, LayerSession)
    if session is not None:
        with steps.step("verify") as made:
            checks = verify_sizes(
                module, seen, session, tolerance=tolerance, program=captured.program,
                fixed=captured.sizes, bounds=captured.bounds(seen), conditions=conditions,
                joined=captured.joined, decided=captured.decided, budget=plan.budget,
                sides=LayerSides if by_layers else _sides(plan),
            )  # fmt: skip
            made(f"{counted(len(checks), 'set')} of sizes{', by layers' * by_layers}")
            note = "" if by_layers else fast_path_note(module, seen, tolerance)
        if captured.repeated.like and any(check.failed and not check.made for check in checks):
            # A whole trace takes no layer for another: it tells whether that was the fault.
            return _walk(model, seen, replace(plan, repeat=False), path)
        limits = find_limits(conditions, checks, captured.sizes)
        limits = replace(limits, unproven=limits.unproven or captured.unproven)
    if store_signature(limits.applied(_signature(optimized)), optimized.metadata_props):
        io.store_metadata(path, optimized.metadata_props)
        size = _bytes_of(path)
    rows: tuple[InARow, ...] = ()
    if plan.lifted and session is not None:
        with steps.step("verify calls in a row"):
            rows = verify_in_a_row(plan.lifted, Session(path), tolerance, checks, limits)
    # A program's module says that it trains whatever the model did.
    training = module.training and not isinstance(model, ExportedProgram)
    return Findings(
        seen, captured, optimized, tuple(checks), tolerance, steps, plan.target, plan.exporter,
        size, training, limits, plan.strict, note, rows,
        session if isinstance(session, LayerSession) else None,
    )  # fmt: skip


def _layers(program: ExportedProgram, plan: Plan, path: Path) -> LayerSession | Session:
    """The saved model by layers, or whole if that cannot be and the user did not ask for it."""
    try:
        return LayerSession(path, program, plan.regions)
    except UsageError:
        if not plan.automatic:
            raise
        return Session(path, conditions=False)


def _sides(plan: Plan) -> type[Sides]:
    """How PyTorch and the exported model are run beside each other as a whole."""
    return ForeignSides if plan.exporter == "onnx_dynamo" else Sides


def _converted_and_built(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: Plan, path: Path
) -> tuple[Captured, ir.Model, tuple[ir.Model, Session | None, int]]:
    convert_by = _with_torch if plan.exporter == "onnx_dynamo" else _converted
    captured, translated = convert_by(model, seen, plan)
    try:
        return captured, translated, _built(translated, plan, path)
    except RunError:
        if plan.target == "onnx":
            raise
        # onnxscript's fusions can write what onnxruntime refuses (GPT-2): go without them.
        captured, translated = convert_by(model, seen, plan)
        built = _built(translated, replace(plan, target="onnx"), path)
        with plan.steps.step("unfuse") as made:
            made("onnxruntime refuses the fused model: the standard one is written")
        return captured, translated, built


def _bytes_of(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))


def _signature(model: ir.Model) -> Signature:
    return Signature.from_json(model.metadata_props[SIGNATURE_KEY])


def _built(translated: ir.Model, plan: Plan, path: Path) -> tuple[ir.Model, Session | None, int]:
    """The optimized model, its session if one is needed, and the size of its files in bytes."""
    steps = plan.steps
    with steps.step("optimize") as made:
        before = len(translated.graph)
        # The fused operators of onnxruntime's CPU provider know no bfloat16.
        unfused = plan.target != "onnx" and any(
            value.dtype == ir.DataType.BFLOAT16 for value in translated.graph.initializers.values()
        )
        with withheld(translated, plan.regions):
            fused = plan.target != "onnx" and not unfused
            # An opset that was asked for stays, though newer ones have operators that fuse more.
            patterns = f"default{'+onnxruntime' * fused}{'-RaiseOpset' * bool(plan.opset)}"
            optimized = optimize(translated, patterns, onnxruntime=plan.onnxruntime)
        said = ", none fused: onnxruntime's fused operators know no bfloat16" * unfused
        made(f"{before} → {counted(len(optimized.graph), 'node')}{said}")
    if missing := nodes_without_kernel(optimized, ir.DataType.BFLOAT16):
        with steps.step("widen") as made:
            counts = ", ".join(f"{count} {name}" for name, count in widen(missing).items())
            made(f"onnxruntime has no bfloat16 kernel for {counts}: cast to float32 around them")
    with steps.step("save") as made:
        io.save(optimized, path, regions=plan.regions)
        size = _bytes_of(path)
        made(bytes_text(size))
    if not plan.check or plan.layers:
        return optimized, None, size
    with steps.step("load") as made:
        session = Session(path, conditions=False)  # verification tells which are needed
        made(counted(len(session.inputs), "input"))
    return optimized, session, size


def _converted(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: Plan
) -> tuple[Captured, ir.Model]:
    """Our capture and conversion."""
    steps = plan.steps
    with steps.step("capture") as made:
        if isinstance(model, ExportedProgram):
            if plan.rewrite is True:
                raise UsageError(
                    "rewrite needs the model's code: a program that is captured already has none"
                )
            attempts = (Attempt("exported before", None),)
            captured = Captured(model, None, attempts, find_fixed(model, seen))
        else:
            # Verification tries what guards exclude; weights in files may be too large to run.
            settle = not plan.check and not plan.regions
            captured = capture(
                model, seen, rewrite=plan.rewrite, settle=settle, repeat=plan.repeat
            )
            if plan.check and not plan.regions and can_run(weight_bytes(model)):
                found = _reliances(model, seen, captured)
                captured = replace(captured, relies=found.asked, unproven=found.unmet)
            captured = plan.lifted.complete(captured) if plan.lifted else captured
        made(counted(len(captured.program.graph.nodes), "FX node") + captured.repeated.note)
    with steps.step("convert") as made:
        translated = convert(
            captured,
            opset=plan.opset,
            dims=_dims(seen, captured),
            defaults=defaults_of(seen.signature),
            as_stored=bool(plan.regions),
        )
        rename_ends(translated, *plan.names)
        made(counted(len(translated.graph), "node"))
    return captured, translated


def _with_torch(
    model: torch.nn.Module | ExportedProgram, seen: Observation, plan: Plan
) -> tuple[Captured, ir.Model]:
    """``torch.onnx.export`` as it stands."""
    if isinstance(model, ExportedProgram):
        raise UsageError(
            "exporter onnx_dynamo captures the model itself, and this one is captured already: "
            "use to_onnx"
        )
    with plan.steps.step("torch.onnx.export") as made:
        args, kwargs, shapes = export_arguments(model, seen, Dim.DYNAMIC)
        with trace_kept(model), model_instructions(model) as ran:
            translated, program = convert_with_torch(
                model,
                args,
                kwargs,
                dynamic_shapes=shapes,
                opset=plan.opset,
                dims=_dims(seen, None),
                defaults=defaults_of(seen.signature),
            )
        rename_ends(translated, *plan.names)
        attempts = (Attempt("torch.onnx.export", None),)
        made(counted(len(translated.graph), "node"))
    captured = Captured(
        program, shapes, attempts, find_fixed(program, seen), traced=frozenset(ran)
    )
    if can_run(weight_bytes(model)) and (why := _reliances(model, seen, captured).unmet):
        raise CaptureError(f"torch.onnx.export is wrong: {why}")
    return captured, translated


def _reliances(model: torch.nn.Module, seen: Observation, captured: Captured) -> Reliances:
    trial = Trial(model, seen, captured.program, (), joined=captured.joined)
    return find_reliances(model, seen, captured.traced, trial)


def _dims(seen: Observation, captured: Captured | None) -> dict[tuple[ValuePath, int], Size]:
    """The user's names of the dimensions that are still dynamic."""
    fixed = {(f.argument, f.axis) for f in captured.fixed} if captured else set()
    return {
        (argument.path, axis.index): axis.size
        for argument in seen.arguments
        for axis in argument.sizes
        if not isinstance(axis.size, int) and (argument.name, axis.index) not in fixed
    }


def _observation(
    model: torch.nn.Module | ExportedProgram, given: Any, sizes: Stated, *, run: bool
) -> Observation:
    module = model.module() if isinstance(model, ExportedProgram) else model
    seen = to_observation(module, given, sizes, run=run)
    register_arguments(seen)
    if isinstance(model, ExportedProgram):
        # A program takes its arguments as they were exported, by position or by name; how its
        # dimensions hang together is known from several calls, or guessed from one.
        positional = tuple(inspect.signature(model.module().forward).parameters)
        seen = replace(seen, signature=AS_GIVEN, positional=positional)
        if len(seen.calls) == 1:
            seen = replace(seen, named=name_dimensions(model))
    elif len(seen.calls) == 1:
        raise UsageError(
            f"one call of {seen.title} cannot tell which dimensions are dynamic: "
            "run it at least twice, with inputs of different sizes"
        )
    return seen
