"""What a model leaves open: random numbers, an order among equal ones, memory that is not set.

Two right runs may have other values there. Where both sides have such a value, the ONNX side can
be given the reference's, so that all that follows is compared again; what depends on one that
only one side has cannot be compared.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir
import torch
from torch import fx

from torchferry.comparer.run.piece import reads
from torchferry.converter.program.randomness import is_random
from torchferry.graph.subgraph import subgraphs
from torchferry.judge.choices import PLACES, UNSET, Places, arguments
from torchferry.judge.draws import FREE, UNIT, Bounds
from torchferry.seams.operators import aten

__all__ = [
    "Chance",
    "Step",
    "Unordered",
    "chance_of_model",
    "chance_of_program",
]

_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
           "RandomUniformLike"}  # fmt: skip
# Operators that draw each element by itself, and between what.
_BOUNDS: dict[object, Bounds] = {
    aten.bernoulli: UNIT, aten.dropout: FREE, aten.native_dropout: FREE, aten.normal: FREE,
    aten.rand: UNIT, aten.rand_like: UNIT, aten.randint: FREE, aten.randint_like: FREE,
    aten.randn: FREE, aten.randn_like: FREE, aten.uniform: FREE,
}  # fmt: skip
_WHOLE = {aten.argsort.default, aten.sort.default, aten.sort.stable, aten.topk.default}


@dataclass(frozen=True)
class Step:
    """One step of a computation.

    Attributes:
        made: names of the values it makes.
        read: names of those it is made from.
        draws: whether it draws random numbers.
    """

    made: frozenset[str]
    read: frozenset[str]
    draws: bool


@dataclass(frozen=True)
class Unordered:
    """The numbers that a topk leaves in any order, and their places, in the same one.

    Attributes:
        dim: along which they may change places.
        numbers: names of the numbers.
        places: names of the places, where anything reads them.
    """

    dim: int
    numbers: frozenset[str]
    places: frozenset[str]

    def pairs(self, known: Collection[str]) -> bool:
        """Whether of both some name is known."""
        some = not self.numbers.isdisjoint(known)
        return some and not (self.places and self.places.isdisjoint(known))


@dataclass(frozen=True)
class Chance:
    """What is left open in one model.

    Attributes:
        steps: of its computation, in order.
        places: by name of the value.
        unordered: the numbers that may stand in any order.
        unset: names of values whose memory nothing was written to.
        bounds: of values that are drawn element by element: between what, by name.
    """

    steps: tuple[Step, ...] = ()
    places: Mapping[str, Places] = field(default_factory=dict)
    unordered: tuple[Unordered, ...] = ()
    unset: frozenset[str] = frozenset()
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    @cached_property
    def drawn(self) -> frozenset[str]:
        """Names of the values that are drawn at random."""
        return frozenset(name for step in self.steps if step.draws for name in step.made)

    def dependent(self, given: Collection[str] = (), also: Collection[str] = ()) -> frozenset[str]:
        """Names of the values whose computation depends on random numbers, or on some values.

        Args:
            given: names of values that others read as they are given from outside, whatever was
                computed.
            also: names of the values that they are to depend on.
        """
        found = set(also)
        passed = found.difference(given)
        for step in self.steps:
            if step.draws or not passed.isdisjoint(step.read):
                found |= step.made
                passed |= step.made.difference(given)
        return frozenset(found)


# Of a program -----------------------------------------------------------------------------------


def chance_of_program(program: torch.export.ExportedProgram) -> Chance:
    """What a program leaves open; names are those of its FX nodes, ``NAME:1`` for an item."""
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    places: dict[str, Places] = {}
    unordered: list[Unordered] = []
    for node in calls:
        if node.target in PLACES:
            given = arguments(node.target, node.args, node.kwargs)
            dim, ordered = given.get("dim"), bool(given.get("sorted", True))
            kept = node.target in _WHOLE or bool(given.get("keepdim"))
            found = Places(node.args[0].name, dim, kept, ordered)
            places |= dict.fromkeys(_item_names(node, PLACES[node.target]), found)
            if not ordered and isinstance(dim, int):
                used = any(_taken(user) == f"{node.name}:1" for user in node.users)
                names = [frozenset(_item_names(node, index)) for index in (0, 1)]
                unordered.append(Unordered(dim, names[0], names[1] if used else frozenset()))
    return Chance(
        tuple(_program_steps(program.graph_module, calls)),
        places,
        tuple(unordered),
        frozenset(node.name for node in calls if node.target in UNSET),
        {
            name: bounds
            for node in calls
            if (bounds := _bounds_of(node)) is not None and is_random(node)
            for name in {node.name} | _item_names(node, 0)
        },
    )


def _bounds_of(node: fx.Node) -> Bounds | None:
    """Between what a node draws; ``None`` unless it draws each element by itself."""
    return _BOUNDS.get(getattr(node.target, "overloadpacket", None))


def _item_names(node: fx.Node, index: int | None) -> set[str]:
    """Names of an item of what a node returns: its own, and those of the nodes that take it."""
    if index is None:
        return {node.name}
    takers = {user.name for user in node.users if _taken(user) == f"{node.name}:{index}"}
    return {f"{node.name}:{index}", *takers}


def _taken(node: fx.Node) -> str:
    """The item that a node takes out of another's results; ``""`` if that is not what it does."""
    if node.target is not operator.getitem or not isinstance(node.args[0], fx.Node):
        return ""
    return f"{node.args[0].name}:{node.args[1]}"


def _program_steps(module: fx.GraphModule, calls: Sequence[fx.Node]) -> Iterator[Step]:
    drawn: set[str] = set()
    for node in calls:
        item = _taken(node)
        example = node.meta.get("val")
        count = len(example) if isinstance(example, (list, tuple)) else 0
        made = {node.name, *(f"{node.name}:{index}" for index in range(count))}
        read = {item} if item else {source.name for source in node.all_input_nodes}
        draws = item in drawn or _draws(node, module)
        drawn |= made if draws else set()
        yield Step(frozenset(made), frozenset(read), draws)


def _draws(node: fx.Node, module: fx.GraphModule) -> bool:
    """Whether a node draws random numbers, or one of the graphs does that it is given."""
    if is_random(node):
        return True
    graphs = (
        getattr(module, str(source.target), None)
        for source in node.all_input_nodes
        if source.op == "get_attr"
    )
    return any(
        _draws(inner, graph)
        for graph in graphs
        if isinstance(graph, fx.GraphModule)
        for inner in graph.graph.nodes
        if inner.op == "call_function"
    )


# Of an ONNX model -------------------------------------------------------------------------------


def chance_of_model(model: ir.Model) -> Chance:
    """What an ONNX model leaves open; names are those of its values."""
    places: dict[str, Places] = {}
    unordered: list[Unordered] = []
    for node in model.graph:
        numbers = node.inputs[0] if node.op_type in ("ArgMax", "ArgMin", "TopK") else None
        if numbers is not None and not numbers.is_initializer():
            top = node.op_type == "TopK"
            dim = _integer(node, "axis", -1 if top else 0)
            ordered = not top or bool(_integer(node, "sorted", 1))
            kept = top or bool(_integer(node, "keepdims", 1))
            name = str(node.outputs[-1].name)
            places[name] = Places(str(numbers.name), dim, kept, ordered)
            if not ordered:
                used = frozenset([name] if node.outputs[-1].uses() else [])
                unordered.append(Unordered(dim, frozenset([str(node.outputs[0].name)]), used))
    steps = [
        Step(
            frozenset(str(value.name) for value in node.outputs),
            frozenset(str(value.name) for value in reads(node)),
            _draws_inside(node, model),
        )
        for node in model.graph
    ]
    return Chance(tuple(steps), places, tuple(unordered))


def _integer(node: ir.Node, name: str, default: int) -> int:
    return node.attributes[name].as_int() if name in node.attributes else default


def _draws_inside(node: ir.Node, model: ir.Model) -> bool:
    """Whether a node draws random numbers, also inside its subgraphs or the function it calls."""
    if node.op_type in _RANDOM or (node.op_type == "Dropout" and _trains(node)):
        return True
    inner = [inside for graph in subgraphs(node) for inside in graph]
    called = model.functions.get((node.domain, node.op_type, node.overload))
    return any(_draws_inside(inside, model) for inside in [*inner, *(called or ())])


def _trains(node: ir.Node) -> bool:
    """Whether a Dropout is in training mode, or may be."""
    mode = node.inputs[2] if len(node.inputs) > 2 else None
    if mode is None:
        return False
    return mode.const_value is None or bool(mode.const_value.numpy().any())
