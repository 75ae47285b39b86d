"""From the name of a model to a folder with the verified model and its report."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

from torchferry.capturer.state.places import state_kept
from torchferry.errors import UsageError
from torchferry.exporter.components import deliver_components
from torchferry.exporter.export import Options, check_options, export
from torchferry.exporter.folder import Staging, check_target, publish
from torchferry.exporter.memory import Verify, can_run, can_take_layers, way_to_verify
from torchferry.exporter.steps import Steps, counted
from torchferry.exporter.watch import describe_size, run_sets
from torchferry.graph.reference import check_linkable
from torchferry.observer import Observation, observe
from torchferry.observer.given import Stated
from torchferry.progress import Progress
from torchferry.report import html
from torchferry.report.model import Report
from torchferry.sources.diffusion import component_names
from torchferry.sources.mapped import checkpoint_files, paged_out
from torchferry.sources.source import Source, load_source

__all__ = ["Weights", "deliver"]

Weights = Literal["copy", "reference"]


def deliver(
    model: str,
    out: Path,
    *,
    inputs: str | None = None,
    sizes: Stated = None,
    dtype: str | None = None,
    weights: Weights = "copy",
    replace: bool = False,
    progress: Progress = None,
    **options: Unpack[Options],
) -> Report:
    """Export a model into a folder, which appears whole or not at all; a failed one beside it.

    Args:
        model: what `load_source` accepts, or a pipeline: each model gets a folder in ``out``.
        out: the folder to write.
        inputs: ``FILE.py:NAME`` that gives the input sets: see `load_source`.
        sizes: the legal sizes, as `torchferry.dims.Legal.of` takes them.
        dtype: ``fp32``, ``fp16`` or ``bf16``; as the model is when ``None``.
        weights: ``reference`` links the files of a Hugging Face folder into ``out``.
        replace: an earlier export in ``out``.
        progress: what to do with the name of each step as it begins.
        options: of `export`.

    Raises:
        FerryError: what is given cannot be used, or see `export`.
    """
    if (names := component_names(model)) and inputs is not None:
        raise UsageError(f"--inputs is for one model: export {model}:{names[0]}, for instance")
    if names:
        same: Any = dict(options, weights=weights, replace=replace, progress=progress)
        each = partial(deliver, sizes=sizes, dtype=dtype, **same)
        return deliver_components(model, out, names, each)
    _check(options, out, replace)
    linked = weights == "reference" and _is_linkable(Path(model), out, dtype, options)
    options["verify"], mapped, run = _way(Path(model), options)
    load = partial(load_source, model, inputs=inputs, sizes=sizes, dtype=dtype)
    load = partial(load, mapped=linked or (mapped and dtype is None))
    steps, lift = Steps(progress), options.get("state") == "lift"
    with ExitStack() as stack:
        source, seen = _observed(load, steps, stack, run=run, lift=lift)
        staging = stack.enter_context(publish(out, replace=replace))
        done = export(
            source.program or source.model, seen, title=source.title, steps=steps,
            file=staging.folder / "model.onnx", regions=source.regions if linked else (),
            **options,
        )  # fmt: skip
        return _finished(done.report, staging, out)


def _way(folder: Path, options: Options) -> tuple[Verify, bool, bool]:
    """How to verify, whether weights stay in their files, and whether the model is run whole."""
    check, verify = options.get("check", True), options.get("verify", "auto")
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if can_take_layers(options.get("exporter", "to_onnx"), options.get("state", "refuse")):
        verify = way_to_verify(verify, size)
    layers = check and size > 0 and verify == "layers"
    return verify, layers, check and (not layers or can_run(size))


def _check(options: Options, out: Path, replace: bool) -> None:
    """Refuse options of `export`, and folders, that cannot be used, before any work is done."""
    check_options(
        options.get("target", "onnx"), options.get("exporter", "to_onnx"), options.get("opset"),
        rewrite=options.get("rewrite", "auto"), onnxruntime=options.get("onnxruntime"),
        state=options.get("state", "refuse"), verify=options.get("verify", "auto"),
    )  # fmt: skip
    check_target(out, replace=replace)
    check_target(_failed(out), replace=True)


def _is_linkable(folder: Path, out: Path, dtype: str | None, options: Options) -> bool:
    """True; refuse, before any work is done, what needs other bytes than the folder's files."""
    if dtype is not None:
        raise UsageError(
            f"--weights reference keeps the dtype that {folder} has: leave out --dtype {dtype}, "
            "or use --weights copy"
        )
    if (exporter := options.get("exporter", "to_onnx")) != "to_onnx":
        raise UsageError(
            f"--weights reference needs exporter to_onnx: {exporter} stores weights transposed"
        )
    if folder.is_dir():  # anything else is told when it is loaded
        parent = next(parent for parent in out.resolve().parents if parent.exists())
        for path in checkpoint_files(folder):
            check_linkable(path, parent)
    return True


def _observed(
    load: Callable[..., Source],
    steps: Steps,
    stack: ExitStack,
    *,
    run: bool,
    lift: bool,
) -> tuple[Source, Observation]:
    """The model, and calls of it: run, or only given if it is not or cannot be run as a whole."""
    stack.enter_context(paged_out())
    with steps.step("load model") as made:
        source = load(run=run)
        made(describe_size(source))
    if not run:
        seen = Observation.from_inputs(source.model, source.input_sets)
        return source, source.observed(seen)
    kept = state_kept(source.model) if lift else nullcontext()
    with steps.step("observe") as made, kept, observe(source.model) as seen:
        run_sets(source)
        made(counted(len(seen.calls), "call"))
    return source, source.observed(seen)


def _finished(report: Report | None, staging: Staging, out: Path) -> Report:
    """Write the page; a failed export gets another name. The report with its next steps."""
    report = report or Report("export", ok=False, verdict="no report")
    folder = out if report.ok else _failed(out)
    then = (
        f'call it: torchferry.load("{folder}")(...) takes the model\'s own arguments'
        if report.ok
        else f"the model that failed is kept in {folder}; {out} was not touched"
    )
    report = changed(report, next_steps=(f"look at {folder / 'report.html'}", then))
    if not report.ok:
        staging.target = staging.target.with_name(folder.name)
    html.dump(report, staging.folder / "report.html")
    return report


def _failed(out: Path) -> Path:
    return out.with_name(f"{out.name}.failed")
