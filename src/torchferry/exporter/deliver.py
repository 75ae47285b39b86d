"""From the name of a model to a folder with the verified model and its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

from torchferry.exporter.export import Exporter, check_options, export
from torchferry.exporter.folder import check_target, publish
from torchferry.exporter.steps import Steps
from torchferry.exporter.watch import run_source
from torchferry.optimizer import Target
from torchferry.report import html
from torchferry.report.model import Report

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
    check_options(target, exporter, opset)
    check_target(out, replace=replace)
    check_target(failed, replace=True)
    steps = Steps(progress)
    source, seen = run_source(model, inputs, dtype, steps)
    with publish(out, replace=replace) as staging:
        program = export(
            source.program or source.model, seen, target=target, opset=opset, exporter=exporter,
            title=source.title, steps=steps, file=staging.folder / "model.onnx",
        )  # fmt: skip
        report = _with_next_steps(program.report, out, failed)
        if not report.ok:
            staging.target = staging.target.with_name(failed.name)
        html.dump(report, staging.folder / "report.html")
    return report


def _with_next_steps(report: Report | None, out: Path, failed: Path) -> Report:
    report = report or Report("export", ok=False, verdict="no report")
    folder = out if report.ok else failed
    then = (
        f'call it: torchferry.load("{folder}")(...) takes the model\'s own arguments'
        if report.ok
        else f"the model that failed is kept in {folder}; {out} was not touched"
    )
    return changed(report, next_steps=(f"look at {folder / 'report.html'}", then))
