"""The side that is taken to be right: a program, a module with hooks, or an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.comparer.align.align import (
    Origin,
    align_modules,
    align_program,
    constant_outputs,
    output_places,
)
from torchferry.comparer.align.align_models import align_models
from torchferry.comparer.align.provenance import by_torch_script
from torchferry.comparer.reference.chance import Chance, Step, chance_of_model, chance_of_program
from torchferry.comparer.reference.modules import Watched, trace_modules, watch_modules
from torchferry.comparer.run.feeds import program_feeds
from torchferry.comparer.run.piece import Runner, ort_value
from torchferry.comparer.run.trace import trace_onnx, trace_program
from torchferry.converter.signature import read_signature
from torchferry.converter.translate import prepared
from torchferry.errors import UsageError
from torchferry.observer.naming import output_name
from torchferry.values.flatten import flatten, unflatten
from torchferry.values.signature import Signature

__all__ = ["Reference", "of_model", "of_module", "of_program", "returned_names"]

_MORE = "~"  # stands for random numbers that no dropout draws


@dataclass(frozen=True)
class Reference:
    """What a graph is compared with.

    Attributes:
        values: gives the values of some names, in the order in which they are computed.
        origins: what each aligned value of the graph stands for.
        chance: what of it may be otherwise in another run that is right too.
        program: the program, where it is one.
        plain: the program without in-place writes, whose nodes are compared.
        model: the ONNX model, where it is one.
        whole: whether it has all that the model returns.
        left_out: names of outputs that the graph does not have.
    """

    values: Callable[[Collection[str]], Iterator[tuple[str, torch.Tensor]]]
    origins: Mapping[str, Origin]
    chance: Chance = field(default_factory=Chance)
    program: ExportedProgram | None = field(default=None, repr=False)
    plain: ExportedProgram | None = field(default=None, repr=False)
    model: ir.Model | None = field(default=None, repr=False)
    whole: bool = True
    left_out: tuple[str, ...] = ()


def of_program(
    program: ExportedProgram, args: tuple[Any, ...], kwargs: dict[str, Any], graph: ir.Graph
) -> Reference:
    """A program, in the form in which it is converted: without in-place writes.

    Raises:
        UsageError: the arguments do not fit.
    """
    feeds = program_feeds(program, args, kwargs)
    plain = prepared(program)

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        pairs = chain(constant_outputs(plain).items(), trace_program(plain, feeds))
        return (pair for pair in pairs if pair[0] in wanted)

    signature = read_signature(program)
    origins = align_program(plain, graph, returned_names(signature))
    left_out = _left_out(signature.output_names, graph)
    return Reference(values, origins, chance_of_program(plain), program, plain, left_out=left_out)


def _left_out(names: Sequence[str], graph: ir.Graph) -> tuple[str, ...]:
    """Outputs of a model that a graph does not have, if it has others by their names."""
    ours = {str(value.name) for value in graph.outputs}
    return tuple(name for name in names if name not in ours) if ours & {*names} else ()


def returned_names(signature: Signature) -> list[str]:
    """What exporters call each leaf of what a program returns, constants too."""
    paths, _ = flatten(unflatten(range(len(signature.leaves)), signature.outputs))
    return [
        leaf[0] if isinstance(leaf, list) else output_name(path)
        for leaf, (path, _) in zip(signature.leaves, paths, strict=True)
    ]


def of_module(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], graph: ir.Graph
) -> Reference:
    """A module as it runs in eager mode: what its submodules and itself return.

    Of a submodule with several tensors it is not known which one stands last in the graph.

    Raises:
        UsageError: the module raises something, or returns more or less than the graph.
    """
    watched = watch_modules(model, args, kwargs)
    names, numbered = watched.outputs, watched.numbered
    places = output_places(graph, names)
    plain = places is None
    places = output_places(graph, numbered) if places is None else places
    if places is None:
        raise UsageError(
            f"the module returns {len(names)} tensors and {len(numbered) - len(names)} numbers, "
            f"the ONNX model has {len(graph.outputs)} outputs, which are not called as they are "
            f"({', '.join(numbered[:8])}): compare models that return the same"
        )
    single = watched.single | {f"output:{place}" for place in places}
    if by_torch_script(graph):
        single -= watched.repeated  # a second call of layer stands in layer_1 there
    paths = [path for path, _ in model.named_modules()]
    aligned = align_modules(graph, paths, places, watched.normalized).items()
    origins = {name: origin for name, origin in aligned if origin.key in single}

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        paths = {"" if key.startswith("output:") else key for key in wanted}
        for key, tensor in trace_modules(model, args, kwargs, paths, also_plain=plain):
            path, _, number = key.partition(":")
            name = key if path else f"output:{number or 0}"
            if name in wanted:
                yield name, tensor

    return Reference(values, origins, _chance(watched), left_out=_left_out(names, graph))


def _chance(watched: Watched) -> Chance:
    """Dropouts are known for what they draw; what else is drawn shows in what changes."""
    alone = {*watched.drops, *([_MORE] if watched.draws else [])}
    drawn = [Step(frozenset({name}), frozenset(), True) for name in alone]
    later = Step(watched.changing - watched.drops, frozenset(alone), False)
    return Chance((*drawn, later)) if drawn else Chance()


def of_model(
    model: ir.Model, feeds: Mapping[str, torch.Tensor], graph: ir.Graph, runner: Runner
) -> Reference:
    """Another ONNX model, or the same at another level or on other providers."""

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        yield from ((name, tensor) for name, tensor in feeds.items() if name in wanted)
        given = {name: ort_value(tensor) for name, tensor in feeds.items()}
        yield from trace_onnx(model, given, runner=runner, wanted=wanted)

    origins = align_models(model.graph, graph)
    return Reference(values, origins, chance_of_model(model), model=model)
