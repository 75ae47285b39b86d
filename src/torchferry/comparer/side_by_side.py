"""Two models on the same inputs, value by value: where they part first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from torchferry.comparer.comparison import Comparison, Tolerance, difference_of
from torchferry.comparer.eager import explain_eager
from torchferry.comparer.isolate import check_place, isolate
from torchferry.comparer.piece import Runner, ort_value, tensor_of_ort
from torchferry.comparer.setting import Setting, set_up
from torchferry.comparer.stages import bisect_stages
from torchferry.comparer.walk import Allows, Feed, Walk
from torchferry.errors import RunError, UsageError
from torchferry.values.difference import Discrepancy

__all__ = ["compare"]


def compare(
    model: Any,
    onnx: Any,
    inputs: Any = None,
    *,
    feed: Feed = "own",
    against: Literal["program", "eager"] = "program",
    atol: float | None = None,
    rtol: float | None = None,
    level: str = "none",
    providers: Sequence[str] | None = None,
    cut: Path | str | None = None,
    bisect: bool = False,
    progress: Callable[[str], object] = str,
) -> Comparison:
    """Run an ONNX model beside what it was made from, and compare every value that both have.

    Args:
        model: the reference: a module, a program, what `capture` gave, or another ONNX model.
        onnx: a path, an ``ir.Model``, or what `export` and `to_onnx` gave.
        inputs: ``(args, kwargs)``, a tuple or a dictionary; or a list of such, of which the first
            is compared. ``None``: a program's example inputs; for an ONNX reference, any.
        feed: with ``torch`` each ONNX node is also given the reference's values, so that its own
            error is seen and not what it inherited.
        against: a module's values as captured, or its submodules' outputs in ``eager`` mode.
        atol: see `Tolerance`; by each value's dtype when ``None``.
        rtol: see `Tolerance`.
        level: optimizations of onnxruntime: ``none``, ``basic``, ``extended`` or ``all``.
        providers: onnxruntime's execution providers; the CPU's when ``None``.
        cut: ``NAME.onnx`` for the first divergence; its inputs go to ``NAME.inputs.safetensors``.
        bisect: tell which step of the way brought a difference in.
        progress: called with a few words as each step begins.

    Raises:
        UsageError: the models or inputs do not fit, or nothing could be aligned.
        CaptureError: the module cannot be captured; ``against="eager"`` needs no capture.
        RunError: onnxruntime cannot run the reference model.
    """
    if cut is not None:
        check_place(Path(cut))
    progress("prepare")
    setting = set_up(model, onnx, inputs, against=against, runner=Runner(level, providers))
    walk = Walk(setting, feed, _allowing(setting, atol, rtol))
    progress("run side by side")
    walk.run()
    progress("explain")
    return _explained(walk, setting, cut, bisect, _tolerance(setting, None, atol, rtol))


def _explained(
    walk: Walk, setting: Setting, cut: Path | str | None, bisect: bool, tolerance: Tolerance
) -> Comparison:
    """The rows, and all that one may want to know about the first divergence."""
    found = walk.comparison()
    outputs, failure = _outputs(setting, walk)
    explained, captured = explain_eager(setting, walk.allows)
    found = replace(
        found,
        outputs=outputs,
        differing=walk.differing(outputs),
        notes=(*found.notes, *failure, *explained),
        captured=captured,
        tolerance=tolerance,
    )
    if found.first is not None:
        found = isolate(found, setting, walk.allows, None if cut is None else Path(cut))
    if bisect:
        found = replace(found, stages=tuple(bisect_stages(setting, walk.kept, walk.allows)))
    return found


def _tolerance(
    setting: Setting, dtype: torch.dtype | None, atol: float | None, rtol: float | None
) -> Tolerance:
    if any(limit is not None and not limit >= 0 for limit in (atol, rtol)):
        raise UsageError(f"tolerances are 0 or more, not atol={atol}, rtol={rtol}")
    default = Tolerance.of(dtype, setting.coarsest)
    return Tolerance(
        default.atol if atol is None else atol, default.rtol if rtol is None else rtol
    )


def _allowing(setting: Setting, atol: float | None, rtol: float | None) -> Allows:
    def allows(expected: torch.Tensor, difference: Discrepancy) -> bool:
        tolerance = _tolerance(setting, expected.dtype, atol, rtol)
        exact = not (expected.is_floating_point() or expected.is_complex())
        return tolerance.allows(difference, exact=exact)

    return allows


def _outputs(setting: Setting, walk: Walk) -> tuple[dict[str, Discrepancy], list[str]]:
    """The outputs with all of onnxruntime's optimizations, and what it says if it fails."""
    feeds = {name: ort_value(tensor) for name, tensor in setting.feeds.items()}
    try:
        found = Runner("all", setting.runner.providers)(setting.onnx, feeds)
    except RunError as error:
        failed = {name: difference_of(value, None) for name, value in walk.kept.items()}
        return failed, [f"the model as a whole: {error}"]
    names = [str(v.name) for v in setting.onnx.graph.outputs if v.name in walk.kept]
    return {n: difference_of(walk.kept[n], tensor_of_ort(found[n])) for n in names}, []
