"""The side that is taken to be right: a program, a module with hooks, or an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.comparer.align import Origin, align_models, align_modules, align_program
from torchferry.comparer.feeds import program_feeds
from torchferry.comparer.piece import Runner, ort_value
from torchferry.comparer.trace import single_modules, trace_modules, trace_onnx, trace_program
from torchferry.converter.randomness import is_random
from torchferry.converter.translate import prepared

__all__ = ["Reference", "of_model", "of_module", "of_program", "random_values"]

_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
           "RandomUniformLike"}  # fmt: skip


aten = torch.ops.aten
_UNSET = {
    aten.empty.memory_format, aten.empty_like.default, aten.empty_permuted.default,
    aten.empty_strided.default, aten.new_empty.default, aten.new_empty_strided.default,
}  # fmt: skip
_SORTS = {aten.sort.default, aten.sort.stable, aten.topk.default}


@dataclass(frozen=True)
class Reference:
    """What a graph is compared with.

    Attributes:
        values: gives the values of some names, in the order in which they are computed.
        origins: what each aligned value of the graph stands for.
        drawn: names of reference values that are drawn at random.
        tainted: names of those that depend on such, themselves included.
        unset: names of those whose memory nothing was written to.
        ties: of places of sorted numbers the name of these numbers, and along which dimension.
        unordered: of values that stand in any order along a dimension, which.
        program: the program, where it is one.
        plain: the program without in-place writes, whose nodes are compared.
        model: the ONNX model, where it is one.
    """

    values: Callable[[Collection[str]], Iterator[tuple[str, torch.Tensor]]]
    origins: Mapping[str, Origin]
    drawn: frozenset[str] = frozenset()
    tainted: frozenset[str] = frozenset()
    unset: frozenset[str] = frozenset()
    ties: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    unordered: Mapping[str, int] = field(default_factory=dict)
    program: ExportedProgram | None = field(default=None, repr=False)
    plain: ExportedProgram | None = field(default=None, repr=False)
    model: ir.Model | None = field(default=None, repr=False)


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
        return (pair for pair in trace_program(plain, feeds) if pair[0] in wanted)

    drawn, tainted = _random_nodes(plain)
    calls = [node for node in plain.graph.nodes if node.op == "call_function"]
    return Reference(
        values,
        align_program(plain, graph),
        drawn,
        tainted,
        frozenset(node.name for node in calls if node.target in _UNSET),
        {f"{n.name}:1": (f"{n.name}:0", _given(n)["dim"]) for n in calls if n.target in _SORTS},
        {
            f"{node.name}:{index}": _given(node)["dim"]
            for node in calls
            for index in (0, 1)
            if node.target is aten.topk.default and not _given(node)["sorted"]
        },
        program,
        plain,
    )


def of_module(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], graph: ir.Graph
) -> Reference:
    """A module as it runs in eager mode: what its submodules and itself return.

    Of a submodule with several tensors it is not known which one stands last in the graph.
    """
    single = single_modules(model, args, kwargs)
    origins = {
        name: origin
        for name, origin in align_modules(graph).items()
        if origin.how == "output" or origin.key in single
    }

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        paths = {"" if key.startswith("output:") else key for key in wanted}
        for key, tensor in trace_modules(model, args, kwargs, paths):
            path, _, number = key.partition(":")
            name = key if path else f"output:{number or 0}"
            if name in wanted:
                yield name, tensor

    return Reference(values, origins)


def of_model(
    model: ir.Model, feeds: Mapping[str, torch.Tensor], graph: ir.Graph, runner: Runner
) -> Reference:
    """Another ONNX model, or the same at another level or on other providers."""
    drawn, tainted = random_values(model.graph)

    def values(wanted: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
        given = {name: ort_value(tensor) for name, tensor in feeds.items()}
        return trace_onnx(model, given, runner=runner, wanted=wanted)

    return Reference(values, align_models(model.graph, graph), drawn, tainted, model=model)


def random_values(graph: ir.Graph) -> tuple[frozenset[str], frozenset[str]]:
    """Names of the values that an ONNX graph draws at random, and of all that depend on them."""
    drawn: set[str] = set()
    tainted: set[str] = set()
    for node in graph:
        names = {str(value.name) for value in node.outputs}
        if node.op_type in _RANDOM:
            drawn |= names
        if node.op_type in _RANDOM or any(
            v is not None and v.name in tainted for v in node.inputs
        ):
            tainted |= names
    return frozenset(drawn), frozenset(tainted)


def _random_nodes(program: ExportedProgram) -> tuple[frozenset[str], frozenset[str]]:
    drawn: set[str] = set()
    tainted: set[str] = set()
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        random = is_random(node)
        if random or any(source.name in tainted for source in node.all_input_nodes):
            example = node.meta.get("val")
            items = len(example) if isinstance(example, (list, tuple)) else 0
            names = {node.name, *(f"{node.name}:{index}" for index in range(items))}
            tainted |= names
            drawn |= names if random else set()
    return frozenset(drawn), frozenset(tainted)


def _given(node: torch.fx.Node) -> dict[str, Any]:
    """The arguments of a call by the names of the schema, defaults included."""
    target: Any = node.target  # an overload
    arguments = target._schema.arguments
    given = {argument.name: argument.default_value for argument in arguments}
    by_place = zip((argument.name for argument in arguments), node.args, strict=False)
    return given | dict(by_place) | dict(node.kwargs)
