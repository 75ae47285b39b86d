"""Two models on the same inputs, value by value: where they part first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchferry.comparer.comparison import Comparison, difference_of
from torchferry.comparer.eager import explain_eager
from torchferry.comparer.isolate import check_place, isolate
from torchferry.comparer.piece import Runner, ort_value, tensor_of_ort
from torchferry.comparer.setting import Setting, set_up
from torchferry.comparer.stages import bisect_stages
from torchferry.comparer.stored import keep_values
from torchferry.comparer.walk import Allows, Feed, Walk
from torchferry.errors import RunError, UsageError
from torchferry.values.difference import Discrepancy
from torchferry.values.tolerance import Tolerance

__all__ = ["compare"]


def compare(
    model: Any,
    onnx: Any,
    inputs: Any = None,
    *,
    feed: Feed = "own",
    against: str = "program",
    atol: float | None = None,
    rtol: float | None = None,
    level: str = "none",
    providers: Sequence[str] | None = None,
    keep: Path | str | None = None,
    cut: Path | str | None = None,
    bisect: bool = False,
    progress: Callable[[str], object] = str,
) -> Comparison:
    """Run an ONNX model beside what it was made from, and compare every value that both have.

    Args:
        model: the reference: a module, a program, what `capture` gave, an ONNX model, or a dump.
        onnx: a path, an ``ir.Model``, or what `export` and `to_onnx` gave.
        inputs: ``(args, kwargs)``, a tuple, a dictionary, or a list of such, of which the first
            counts. ``None``: a program's example inputs; for an ONNX reference, any.
        feed: with ``torch`` each node also gets the reference's values: its own error is seen.
        against: a module as captured, or in ``eager`` mode; of ONNX, the level or provider.
        atol: see `Tolerance`, as for ``rtol``; by each value's dtype when ``None``.
        rtol: as above.
        level: optimizations of onnxruntime: ``none``, ``basic``, ``extended`` or ``all``.
        providers: onnxruntime's execution providers; the CPU's when ``None``.
        keep: a dump to write the ONNX model's values to, for another version of onnxruntime.
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
    if keep is not None:
        keep_values(setting.onnx, setting.feeds, setting.runner, Path(keep))
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
    given = {"atol": atol, "rtol": rtol}
    chosen = {name: limit for name, limit in given.items() if limit is not None}
    return replace(Tolerance.inside(dtype, setting.coarsest), **chosen)


def _allowing(setting: Setting, atol: float | None, rtol: float | None) -> Allows:
    def allows(expected: torch.Tensor, difference: Discrepancy) -> bool:
        return _tolerance(setting, expected.dtype, atol, rtol).allows(difference, expected)

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
