"""Two models on the same inputs, value by value: where they part first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from torchferry.comparer.comparison import Comparison
from torchferry.comparer.explain.isolate import check_places, isolate
from torchferry.comparer.explain.judge import Allows, Judge
from torchferry.comparer.explain.stages import bisect_stages
from torchferry.comparer.reference.chance import chance_of_model
from torchferry.comparer.reference.eager import explain_eager
from torchferry.comparer.reference.stored import keep_values
from torchferry.comparer.run.piece import Runner, ort_value, tensor_of_ort
from torchferry.comparer.run.piece import cut as cut_out
from torchferry.comparer.setting import Setting, set_up
from torchferry.comparer.walk import Feed, Walk
from torchferry.comparer.weigh.weights import Weights
from torchferry.comparer.whole import judge_outputs, whole_verdict
from torchferry.errors import RunError, UsageError
from torchferry.judge import Kind, Tolerance, worst_verdict
from torchferry.judge.value import difference_of
from torchferry.progress import Progress, show_steps
from torchferry.values.buffers import buffers_kept
from torchferry.values.difference import Discrepancy
from torchferry.values.randomness import random_kept

__all__ = ["compare"]

_CHOICE = (
    "equal numbers may be found in another order before it, which modules do not tell: compare "
    "with the captured program"
)


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
    progress: Progress = None,
) -> Comparison:
    """Run an ONNX model beside what it was made from, and compare every value that both have.

    Args:
        model: the reference: a module, a program, what `capture` gave, an ONNX model, or a dump.
        onnx: a path, an ``ir.Model``, or what `export` and `to_onnx` gave.
        inputs: ``(args, kwargs)``, a tuple, a dictionary, or a list of such: each is compared, and
            the worst is told; a function of sizes. ``None``: a program's examples; of ONNX, any.
        feed: with ``torch`` each node also gets the reference's values: its own error is seen.
        against: a module as captured, or in ``eager`` mode; of ONNX, the level or provider.
        atol: see `Tolerance`, as for ``rtol``; by each value's dtype when ``None``.
        rtol: as above.
        level: optimizations of onnxruntime: ``none``, ``basic``, ``extended`` or ``all``.
        providers: onnxruntime's execution providers; the CPU's when ``None``.
        keep: a dump to write the ONNX model's values to, for another version of onnxruntime.
        cut: ``NAME.onnx`` for the first divergence; its inputs go to ``NAME.inputs.safetensors``.
        bisect: tell which step of the way brought a difference in.
        progress: ``False`` shows no line on a terminal; or a function to call with each step.

    Raises:
        UsageError: the models or inputs do not fit, or nothing could be aligned.
        CaptureError: the module cannot be captured; ``against="eager"`` needs no capture.
        RunError: onnxruntime cannot run the reference model.
    """
    check_places(keep, cut)
    with show_steps(progress) as begin, random_kept(), buffers_kept(_module(model)):
        begin("prepare")
        runner = Runner(level, providers)
        settings, left_out = set_up(model, onnx, inputs, against=against, runner=runner)
        if keep is not None:
            keep_values(settings[0].onnx, settings[0].feeds, runner, Path(keep))
        look = partial(_looked_at, feed=feed, atol=atol, rtol=rtol, begin=begin)
        found, walk = _worst_of(settings, left_out, Weights(settings[0], atol, rtol), look)
        begin("explain")
        return _explained(found, walk, cut, bisect)


def _module(model: Any) -> torch.nn.Module:
    """The model, or a module without buffers in its place."""
    return model if isinstance(model, torch.nn.Module) else torch.nn.Module()


_Look = Callable[[Setting, Callable[[Sequence[ir.Node]], None] | None], tuple[Comparison, Walk]]


def _worst_of(
    settings: Sequence[Setting], left_out: Sequence[str], weights: Weights, look: _Look
) -> tuple[Comparison, Walk]:
    """Compare every set of inputs, and the weights with the first; give the worst."""
    looks = chain([weights.look_at], repeat(None))
    found = [look(setting, next(looks)) for setting in settings]
    worst, walk = _worst(found, left_out)
    confirmed = weights.confirmed(found[0][0].rows)
    return replace(worst, weights=confirmed, left_out=len(left_out)), walk


def _worst(
    found: Sequence[tuple[Comparison, Walk]], left_out: Sequence[str]
) -> tuple[Comparison, Walk]:
    """The worst of several sets of inputs, with what became of the others."""
    worst, walk = max(found, key=lambda pair: _weight(pair[0]))
    notes = list(left_out)
    if len(found) > 1:
        told = _told(found)
        notes = [f"{told}; this is about set {worst.place} of the inputs", *notes]
    verdict = worst_verdict(one.verdict for one, _ in found)
    return replace(worst, notes=(*worst.notes, *notes), verdict=verdict), walk


def _told(found: Sequence[tuple[Comparison, Walk]]) -> str:
    """What became of the sets of inputs, in words."""
    unlike = [one.place for one, _ in found if not replace(one, open=()).ok]
    unknown = [one.place for one, _ in found if one.open and one.place not in unlike]
    told = (unlike, "differs", "differ"), (unknown, *["cannot be compared in full"] * 2)
    parts = [
        f"set{'s' * (len(places) > 1)} {', '.join(map(str, places))} of {len(found)} "
        f"{many if len(places) > 1 else single}"
        for places, single, many in told
        if places
    ]
    return ", ".join(parts) or f"all {len(found)} sets agree"


def _weight(found: Comparison) -> tuple[bool, bool, float]:
    """What makes one comparison worse than another."""
    worst = max((d.abs for d in found.outputs.values()), default=0.0)
    return not found.ok, bool(found.first or found.differing), worst


def _looked_at(
    setting: Setting,
    look: Callable[[Sequence[ir.Node]], None] | None,
    *,
    feed: Feed,
    atol: float | None,
    rtol: float | None,
    begin: Callable[[str], object],
) -> tuple[Comparison, Walk]:
    """The rows, the outputs, and what eager mode has to do with it."""
    begin("run side by side" + (f", set {setting.place}" if setting.place > 1 else ""))
    tolerance = _tolerance(setting, None, atol, rtol)
    walk = Walk(setting, feed, _allowing(setting, atol, rtol))
    walk.run(look)
    found = walk.comparison()
    outputs, said, failure = _outputs(setting, walk)
    limits = tolerance if (atol, rtol) != (None, None) else None
    verdicts = judge_outputs(setting, walk, said, limits)
    excused = {n: v for n, v in verdicts.items() if said[n][0] == "differs" and v.ok}
    explained, captured = explain_eager(setting, walk.judge.allows)
    missing = [str(v.name) for v in setting.onnx.graph.outputs if v.name not in walk.kept]
    if missing:
        failure += [f"{', '.join(missing)}: nothing in the reference to compare with"]
    if setting.reference.left_out:
        failure += [f"the ONNX model leaves out {', '.join(setting.reference.left_out)}"]
    found = replace(
        found,
        outputs=outputs,
        differing=tuple(n for n, v in verdicts.items() if v.kind in ("differs", "failed")),
        open=(
            *(
                n
                for n, v in verdicts.items()
                if v.kind not in ("differs", "failed") and said[n][0] == "incomparable"
            ),
            *(missing if setting.reference.whole else ()),
        ),
        notes=(*found.notes, *failure, *explained, *_conditions(setting, found)),
        captured=captured.kind != "differs",
        tolerance=tolerance,
        place=setting.place,
    )
    if excused and not found.differing:
        told = [verdict.about(f"output {name}") for name, verdict in excused.items()]
        found = replace(found, first=None, notes=(*found.notes, *told))
    return replace(found, verdict=whole_verdict(found, verdicts, captured)), walk


def _conditions(setting: Setting, found: Comparison) -> list[str]:
    """What of the model and the inputs the comparison is subject to."""
    told = [*setting.branches]
    if unmet := setting.unmet:
        told.append(
            f"the program was captured for sizes with {', '.join(unmet)}, which these inputs are "
            "not: it may be another for them"
        )
    undecided = any(row.verdict in ("random", "incomparable") for row in found.rows)
    if undecided and setting.module is not None and setting.module.training:
        told.append("the module is in training mode, where dropout is random: call .eval() first")
    return told


def _explained(found: Comparison, walk: Walk, cut: Path | str | None, bisect: bool) -> Comparison:
    """All that one may want to know about the first divergence."""
    allows, setting = walk.judge.allows, walk.setting
    found = isolate(found, setting, allows, None if cut is None else Path(cut))
    own = chance_of_model(setting.onnx)
    first = found.first
    if first is not None and setting.reference.program is None and setting.module is not None:
        choices = [name for name in own.places if name not in walk.judge.shared]
        if first.name in own.dependent((), choices) - own.dependent():
            found = replace(found, notes=(*found.notes, _CHOICE))
    if not bisect:
        return found
    chosen = [row.name for row in found.rows if row.verdict == "random"]
    undecided = own.dependent(also=chosen)
    decided = {name: value for name, value in walk.kept.items() if name not in undecided}
    if not decided:
        told = "the outputs depend on random numbers, or on an order: the steps are not compared"
        return replace(found, notes=(*found.notes, told))
    return replace(found, stages=tuple(bisect_stages(setting, decided, allows)))


def _tolerance(
    setting: Setting, dtype: torch.dtype | None, atol: float | None, rtol: float | None
) -> Tolerance:
    if any(limit is not None and not limit >= 0 for limit in (atol, rtol)):
        raise UsageError(f"tolerances are 0 or more, not atol={atol}, rtol={rtol}")
    usual = Tolerance.inside(dtype, setting.coarsest)
    chosen = usual.atol if atol is None else atol, usual.rtol if rtol is None else rtol
    basis = usual.basis if (atol, rtol) == (None, None) else ""
    return replace(usual, atol=chosen[0], rtol=chosen[1], basis=basis)


def _allowing(setting: Setting, atol: float | None, rtol: float | None) -> Allows:
    def allows(expected: torch.Tensor, difference: Discrepancy) -> bool:
        return _tolerance(setting, expected.dtype, atol, rtol).allows(difference, expected)

    return allows


def _outputs(
    setting: Setting, walk: Walk
) -> tuple[dict[str, Discrepancy], dict[str, tuple[Kind, str]], list[str]]:
    """The outputs with all of onnxruntime's optimizations, and what it says if it fails.

    What was given to the ONNX side while the values were compared is given to it here too.
    """
    given = {**setting.feeds, **walk.chosen}
    values = {name: ort_value(tensor) for name, tensor in given.items()}
    graph = setting.onnx.graph
    inputs = [value for value in graph.inputs if not value.is_initializer()]
    model = setting.onnx
    notes = []
    try:
        if walk.chosen:
            model = cut_out(model, inputs, list(graph.outputs), values, walk.chosen)
        found = Runner("all", setting.runner.providers)(model, values)
    except RunError as error:
        found, notes = {}, [f"the model as a whole: {error}"]
    judge = Judge(setting, walk.judge.allows)
    outputs: dict[str, Discrepancy] = {}
    said: dict[str, tuple[Kind, str]] = {}
    for name in (str(value.name) for value in graph.outputs if value.name in walk.kept):
        got = tensor_of_ort(found[name]) if name in found else None
        outputs[name] = difference_of(walk.kept[name], got)
        said[name] = judge(name, walk.needed, got, outputs[name], walk.numbers.get(name))
    return outputs, said, notes
