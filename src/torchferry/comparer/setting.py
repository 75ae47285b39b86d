"""What is compared with what, on which inputs: everything a comparison needs, ready to run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import onnx as onnx_package
import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.capturer import accept_aliases, capture
from torchferry.comparer.align.match import match_numbers
from torchferry.comparer.reference import reference as references
from torchferry.comparer.reference.modules import called
from torchferry.comparer.reference.reference import Reference
from torchferry.comparer.reference.stored import holds_dump, of_dump
from torchferry.comparer.run.branches import with_branches_taken
from torchferry.comparer.run.feeds import draw_feeds, model_feeds, unmet_by_model, unmet_by_program
from torchferry.comparer.run.piece import LEVELS, Runner
from torchferry.converter.signature import read_signature
from torchferry.errors import CaptureError, UsageError
from torchferry.graph import io
from torchferry.observer import Observation
from torchferry.observer.given import sets_of
from torchferry.observer.sets import positional_keys

__all__ = ["Setting", "set_up", "with_own_outputs"]

_KNOWN = 10  # of so many nodes at least one is known where provenance is written at all

Call = tuple[tuple[Any, ...], dict[str, Any]]
_Given = TypeVar("_Given", Call, Call | None)


@dataclass(frozen=True)
class Setting:
    """Two sides and what they are given.

    Attributes:
        onnx: the ONNX model, its nodes in order.
        feeds: its inputs.
        reference: the other side.
        runner: how the ONNX model is run.
        module: the module in eager mode, where there is one.
        call: its arguments.
        taken: the arguments as the reference takes them, some of them by other names.
        place: which set of inputs it is, from 1.
        branches: which of its If nodes' were taken, and stand in their place.
    """

    onnx: ir.Model
    feeds: Mapping[str, torch.Tensor]
    reference: Reference
    runner: Runner
    module: torch.nn.Module | None = None
    call: Call = ((), {})
    taken: Call = ((), {})
    place: int = 1
    branches: tuple[str, ...] = ()

    def feeds_of(self, model: ir.Model) -> Mapping[str, torch.Tensor]:
        """The inputs of another ONNX model that was made of the same.

        Raises:
            UsageError: it takes others.
        """
        args, kwargs = self.taken
        if self.reference.program is not None:
            names: Sequence[str | int] = read_signature(self.reference.program).parameters
        elif self.module is not None:
            names = positional_keys(inspect.signature(self.module.forward), len(args))
        else:
            return self.feeds
        return model_feeds(model, args, kwargs, names)

    @property
    def unmet(self) -> tuple[str, ...]:
        """What was taken for granted of sizes that these inputs have not, nearly always idly."""
        program = self.reference.program
        found = [*unmet_by_model(self.onnx, self.feeds)]
        if program is not None:
            found += unmet_by_program(program, *self.taken)
        return tuple(dict.fromkeys(found))

    @cached_property
    def coarsest(self) -> torch.dtype | None:
        """The floating dtype of least precision among weights and inputs."""
        order = [ir.DataType.BFLOAT16, ir.DataType.FLOAT16, ir.DataType.FLOAT]
        kinds = {
            v.dtype for v in [*self.onnx.graph.initializers.values(), *self.onnx.graph.inputs]
        }
        names = {ir.DataType.BFLOAT16: torch.bfloat16, ir.DataType.FLOAT16: torch.float16}
        found = next((kind for kind in order if kind in kinds), None)
        return None if found is None else names.get(found, torch.float32)


def set_up(
    model: Any, onnx: Any, inputs: Any, *, against: str, runner: Runner
) -> tuple[list[Setting], list[str]]:
    """Load both sides and bring the inputs into the form each takes.

    Returns:
        One setting for each set of inputs that the ONNX model takes, and why it does not take the
        others.

    Raises:
        UsageError: something does not fit, or the ONNX model takes none of the inputs.
        CaptureError: the module cannot be captured.
    """
    candidate = _onnx_model(onnx)
    if isinstance(model, torch.nn.Module):
        program = getattr(onnx, "program", None)  # of an OnnxProgram
        calls = _sets(sets_of(model, inputs))
        return _of_module(model, candidate, program, calls, against, runner)
    other = getattr(model, "program", None) or model  # of a Captured, or an OnnxProgram
    if isinstance(other, ExportedProgram):
        if inputs is None and other.example_inputs is None:
            raise UsageError("this program has no example inputs: give inputs")
        calls = _sets(other.example_inputs if inputs is None else sets_of(other.module(), inputs))
        return _each(calls, lambda call: _of_program(other, candidate, call, runner))
    given: list[Call | None] = [None] if inputs is None else [*_sets(inputs)]
    return _each(given, lambda call: _of_file(other, candidate, call, against, runner))


def _each(
    calls: Sequence[_Given], make: Callable[[_Given], Setting]
) -> tuple[list[Setting], list[str]]:
    """A setting for each call that fits; of the others, why not."""
    made: list[Setting] = []
    refused: list[UsageError] = []
    told = []
    for place, call in enumerate(calls, 1):
        try:
            made.append(replace(make(call), place=place))
        except UsageError as error:
            refused.append(error)
            told.append(f"set {place} of the inputs was not compared: {error}")
    if not made:
        raise refused[0]
    return made, told


def _of_program(
    program: ExportedProgram, candidate: ir.Model, call: Call, runner: Runner
) -> Setting:
    feeds = model_feeds(candidate, *call, read_signature(program).parameters)
    onnx, told = with_branches_taken(candidate, feeds)
    found = references.of_program(program, *call, onnx.graph)
    return _matched(Setting(onnx, feeds, found, runner, call=call, taken=call, branches=told))


def _of_file(
    source: Any, candidate: ir.Model, given: Call | None, against: str, runner: Runner
) -> Setting:
    """A dump, or another ONNX model run as ``against`` says."""
    if isinstance(source, str | Path) and holds_dump(Path(source)):
        return Setting(candidate, *of_dump(Path(source), candidate, given), runner)
    base = _onnx_model(source)
    feeds = draw_feeds(base) if given is None else model_feeds(base, *given)
    names = {str(v.name) for v in candidate.graph.inputs if not v.is_initializer()}
    if names != set(feeds):
        raise UsageError(
            f"the two models take other inputs: {', '.join(feeds)} and {', '.join(sorted(names))}"
        )
    model_feeds(candidate, (), feeds)  # refuses what does not fit
    onnx, told = with_branches_taken(candidate, feeds)
    base, _ = with_branches_taken(base, feeds)
    found = references.of_model(base, feeds, onnx.graph, _runner(against))
    return _matched(Setting(onnx, feeds, found, runner, branches=told))


def _runner(against: str) -> Runner:
    if against == "program":
        return Runner()
    return Runner(against) if against in LEVELS else Runner(providers=[against])


def _of_module(  # noqa: PLR0917  (all of it is what was given)
    module: torch.nn.Module,
    candidate: ir.Model,
    program: ExportedProgram | None,
    calls: list[Call],
    against: str,
    runner: Runner,
) -> tuple[list[Setting], list[str]]:
    if against not in ("program", "eager"):
        raise UsageError(f"a module is compared as program or in eager mode, not {against!r}")
    calls = [(args, accept_aliases(module, kwargs)) for args, kwargs in calls]
    seen = Observation.from_inputs(module, calls)
    named = {id(call): seen.normalized(one) for call, one in zip(calls, seen.calls, strict=True)}
    exported = program is not None  # from a call as it is made
    if against == "program" and program is None:
        program = _captured(module, seen, calls[0])

    def make(call: Call) -> Setting:
        names = positional_keys(seen.signature, len(call[0]))
        feeds = model_feeds(candidate, *call, names)
        onnx, told = with_branches_taken(candidate, feeds)
        if program is None or against == "eager":
            found = references.of_module(module, *call, onnx.graph)
            return Setting(onnx, feeds, found, runner, module, call, call, branches=told)
        given = call if exported else named[id(call)]
        found = references.of_program(program, *given, onnx.graph)
        return _matched(Setting(onnx, feeds, found, runner, module, call, given, branches=told))

    return _each(calls, make)


def _captured(module: torch.nn.Module, seen: Observation, call: Call) -> ExportedProgram:
    """The module's program.

    Raises:
        UsageError: it fails already in eager mode.
        CaptureError: it cannot be captured.
    """
    try:
        return capture(module, seen, settle=False).program
    except CaptureError:
        called(module, *call)
        raise


def _matched(setting: Setting) -> Setting:
    """Where names hardly say which value stands for which, values are matched by numbers too."""
    reference = setting.reference
    named = sum(origin.how == "name" for origin in reference.origins.values())
    if named * _KNOWN >= len(setting.onnx.graph) - len(reference.origins) + named:
        return setting
    origins = match_numbers(reference, setting.onnx, setting.feeds)
    return replace(setting, reference=replace(reference, origins=origins))


def _onnx_model(source: Any) -> ir.Model:
    source = getattr(source, "model", source)  # of an OnnxProgram
    if isinstance(source, str | Path):
        path = Path(source)
        source = io.load(path / "model.onnx" if path.is_dir() else path)
    elif isinstance(source, onnx_package.ModelProto):
        source = ir.from_proto(source)
    if not isinstance(source, ir.Model):
        raise UsageError(
            f"cannot compare a {type(source).__name__}: give a module, an ExportedProgram, or an "
            "ONNX model"
        )
    return with_own_outputs(source)


def with_own_outputs(model: ir.Model) -> ir.Model:
    """The model with every output made by a node, and each by another, so that all are compared.

    An output that is an input, a weight or another output too is made by a node of its own.

    Raises:
        UsageError: an output is nothing of all that.
    """
    values = list(model.graph.outputs)
    inputs = {id(value) for value in model.graph.inputs}
    for value in values:
        if value.producer() is None and not value.is_initializer() and id(value) not in inputs:
            raise UsageError(f"no node of the ONNX model makes its output {value.name}")
    if len(set(values)) == len(values) and all(v.producer() is not None for v in values):
        return model
    model = model.clone()
    seen: set[ir.Value] = set()
    for index, value in enumerate(list(model.graph.outputs)):
        if value in seen or value.producer() is None:
            node = ir.node("Identity", [value], name=f"output_{index}_of_{value.name}")
            made = node.outputs[0]
            made.name, made.type, made.shape = node.name, value.type, value.shape
            model.graph.append(node)
            model.graph.outputs[index] = made
        seen.add(value)
    return model


def _sets(inputs: Any) -> list[Call]:
    if inputs is None:
        raise UsageError("a module is compared on inputs: give (args, kwargs), a tuple or a dict")
    found = [_call(one) for one in (inputs if isinstance(inputs, list) else [inputs])]
    if not found:
        raise UsageError(
            "an empty list of inputs: nothing would be compared; give one set or more"
        )
    return found


def _call(one: Any) -> Call:
    if isinstance(one, dict):
        return (), one
    if isinstance(one, torch.Tensor):
        return (one,), {}
    if not isinstance(one, tuple):
        raise UsageError(f"inputs are a tuple, a dictionary or both, not a {type(one).__name__}")
    if len(one) == 2 and isinstance(one[0], tuple) and isinstance(one[1], dict):
        return one[0], one[1]
    return one, {}
