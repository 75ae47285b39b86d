"""The verdict on a whole ONNX model, as the export gives it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, TensorArgument

from torchferry.comparer.comparison import Comparison
from torchferry.comparer.reference.modules import numbers_of
from torchferry.comparer.run.feeds import program_feeds
from torchferry.comparer.run.piece import Runner, ort_value, tensor_of_ort
from torchferry.comparer.setting import Call, Setting
from torchferry.comparer.walk import Walk
from torchferry.errors import RunError
from torchferry.judge import Kind, Reference, Tolerance, Verdict, worst_verdict
from torchferry.observer.tree import program_inputs, replace_leaves
from torchferry.values.flatten import Path

__all__ = ["judge_outputs", "output_nodes", "whole_verdict"]

_SHARED = "equal once both sides take the reference's choice"

Said = tuple[Kind, str]


def judge_outputs(
    setting: Setting, walk: Walk, said: Mapping[str, Said], tolerance: Tolerance | None
) -> dict[str, Verdict]:
    """The verdict on each output, where PyTorch can be asked again.

    Args:
        setting: what is compared.
        walk: with the reference's outputs.
        said: what was found of each output, where choices of the reference were shared.
        tolerance: limits that a user sets; the usual ones when ``None``.
    """
    found = {name: Verdict(kind, evidence=note) for name, (kind, note) in said.items()}
    return found | {
        name: _together(*said[name], verdict, shared=bool(walk.chosen))
        for name, verdict in _asked(setting, walk, list(said), tolerance).items()
    }


def _together(kind: Kind, note: str, verdict: Verdict, *, shared: bool) -> Verdict:
    """What is found with the reference's choices shared, and the verdict without sharing any."""
    excused = verdict.ok and bool(verdict.evidence)  # by rounding, or the arithmetic inside
    if kind == "failed" or (kind == "differs" and verdict.kind != "differs" and not excused):
        return Verdict(kind, verdict.difference, note)
    if kind == "equal" and shared and not verdict.ok:
        said = [verdict.evidence] if verdict.kind == "random" else []
        return Verdict("random", verdict.difference, "; ".join([*said, _SHARED]))
    if kind == "random" and verdict.kind == "differs" and not verdict.evidence:
        return Verdict(kind, verdict.difference, note)
    return verdict


def whole_verdict(found: Comparison, outputs: Mapping[str, Verdict], captured: Verdict) -> Verdict:
    """The verdict on the model: of its worst output, or of the first value that differs.

    Args:
        found: all that was compared.
        outputs: the verdict on each.
        captured: on the program that stands for the module.
    """
    worst = worst_verdict([*outputs.values(), captured])
    if worst.kind in ("differs", "failed"):
        return worst
    first = found.first
    if first is not None:
        why = first.note or f"the value {first.name} inside {first.verdict}"
        return Verdict(first.verdict, first.said, why)
    if found.open and worst.kind != "random":
        return Verdict("incomparable", evidence=f"not compared: {', '.join(found.open)}")
    return worst


def output_nodes(program: ExportedProgram) -> list[str]:
    """Names of the nodes whose tensors a program returns, in order."""
    return [
        str(spec.arg.name)
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]


@dataclass(frozen=True)
class _Source:
    """What the reference's outputs come from.

    Attributes:
        model: the module, or that of the program.
        inputs: as it takes them.
        places: of what it returns, by what is said of it in the reference.
    """

    model: torch.nn.Module
    inputs: Call
    places: Mapping[str, int]

    def outputs(self, model: torch.nn.Module, given: Call, keys: Sequence[str]) -> list[Any]:
        """The tensors of some places."""
        outputs = model(*given[0], **given[1])
        tensors = numbers_of(outputs)
        if len(tensors) < len(self.places):
            tensors = numbers_of(outputs, also_plain=True)
        return [tensors[self.places[key]] for key in keys]


def _source(setting: Setting) -> _Source | None:
    program, plain = setting.reference.program, setting.reference.plain
    if program is not None and plain is not None:
        places = {name: place for place, name in enumerate(output_nodes(plain))}
        module = program.module(check_guards=False)
        return _Source(module, _nested(program, setting.taken), places)
    if setting.module is None:
        return None
    count = len(setting.onnx.graph.outputs)
    places = {f"output:{place}": place for place in range(count)}
    return _Source(setting.module, setting.call, places)


def _nested(program: ExportedProgram, call: Call) -> Call:
    """The arguments of a call as the program's own example nests them."""
    feeds = program_feeds(program, *call)
    given: dict[Path, Any] = {
        path: tensor if isinstance(node.meta["val"], torch.Tensor) else int(tensor)
        for (path, node), tensor in zip(program_inputs(program), feeds, strict=True)
    }
    args, kwargs = program.example_inputs or ((), {})
    return replace_leaves(args, kwargs, change=given.get)


def _asked(
    setting: Setting, walk: Walk, names: Sequence[str], tolerance: Tolerance | None
) -> dict[str, Verdict]:
    source = _source(setting)
    origins = setting.reference.origins
    known = [n for n in names if source is not None and origins[n].key in source.places]
    if source is None or not known:
        return {}
    keys = [origins[name].key for name in known]
    feeds = {name: ort_value(tensor) for name, tensor in setting.feeds.items()}
    try:
        session = Runner("all", setting.runner.providers).loaded(setting.onnx)
        results = session(feeds)
    except RunError:
        return {}  # which is told where the outputs are compared

    def onnx() -> list[Any]:
        return _tensors(session(feeds), known, walk.kept)

    reference = Reference(
        lambda model, given: source.outputs(model, given, keys),
        source.model,
        source.inputs,
        tolerance=tolerance,
        expected=[walk.kept[name] for name in known],
    )
    verdicts = [
        verdict for _, verdict in reference.judge(_tensors(results, known, walk.kept), onnx)
    ]
    return dict(zip(known, verdicts, strict=True)) if len(verdicts) == len(known) else {}


def _tensors(
    results: Mapping[str, onnxruntime.OrtValue],
    names: Sequence[str],
    expected: Mapping[str, torch.Tensor],
) -> list[torch.Tensor | None]:
    """Tensors of outputs; ONNX has pairs of numbers where PyTorch has complex ones."""
    found = []
    for name in names:
        tensor = tensor_of_ort(results[name])
        if tensor is not None and expected[name].is_complex() and tensor.shape[-1:] == (2,):
            tensor = torch.view_as_complex(tensor.contiguous())
        found.append(tensor)
    return found
