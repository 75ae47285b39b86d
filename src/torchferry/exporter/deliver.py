"""From the name of a model to a folder with the verified model and its report."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

import torch

from torchferry.exporter.export import Exporter, export
from torchferry.exporter.folder import check_target, publish
from torchferry.exporter.source import Source, load_source
from torchferry.exporter.steps import Steps
from torchferry.observer import Observation, observe
from torchferry.optimizer import Target
from torchferry.report import html
from torchferry.report.model import Report
from torchferry.values.clone import clone

__all__ = ["deliver"]


def deliver(
    model: str,
    out: Path,
    *,
    inputs: str | None = None,
    target: Target = "onnx",
    opset: int | None = None,
    dtype: str | None = None,
    exporter: Exporter = "to_onnx",
    replace: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Export a model into a folder: ``model.onnx``, ``model.onnx_data`` and ``report.html``.

    The folder appears whole or not at all. When a check fails it is called ``OUT.failed``, so that
    an earlier good export is never replaced by a wrong one.

    Args:
        model: what `load_source` accepts.
        out: the folder to write.
        inputs: ``FILE.py:function`` that gives the input sets.
        target: see `export`.
        opset: see `export`.
        dtype: ``fp32``, ``fp16`` or ``bf16``; as the model is when ``None``.
        exporter: see `export`.
        replace: whether an earlier export in ``out`` may be replaced.
        progress: called with the name of each step as it begins.

    Raises:
        UsageError: the model, the inputs or the folder cannot be used.
        CaptureError, ConversionError, RunError: see `export`.
    """
    failed = out.with_name(f"{out.name}.failed")
    check_target(out, replace=replace)
    check_target(failed, replace=True)
    steps = Steps(progress)
    with steps.step("load model") as made:
        source = load_source(model, inputs=inputs, dtype=dtype)
        count = sum(p.numel() for p in source.model.parameters())
        made(f"{count / 1e6:.1f} M parameters")
    with steps.step("observe") as made:
        seen = _observed(source)
        made(f"{len(seen.calls)} calls")
    with publish(out, replace=replace) as staging:
        program = export(
            source.program or source.model,
            seen,
            target=target,
            opset=opset,
            exporter=exporter,
            title=source.title,
            steps=steps,
            file=staging.folder / "model.onnx",
        )
        report = program.report or Report("export", ok=False, verdict="no report")
        if not report.ok:
            staging.target = staging.target.with_name(failed.name)
        report = changed(report, next_steps=_next_steps(report, out if report.ok else failed))
        html.dump(report, staging.folder / "report.html")
    return report


def _observed(source: Source) -> Observation:
    """Run the model on every input set."""
    with observe(source.model) as seen, torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args, kwargs in source.input_sets:
            copied_args, copied_kwargs = clone((args, kwargs))
            source.model(*copied_args, **copied_kwargs)
    return seen


def _next_steps(report: Report, folder: Path) -> tuple[str, ...]:
    look = f"look at {folder / 'report.html'}"
    if report.ok:
        return (
            look,
            f'call it: torchferry.load("{folder}")(...) takes the model\'s own arguments',
        )
    return (look, f"the model that failed is kept in {folder}; nothing else was written")
