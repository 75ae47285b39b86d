"""Which value of an ONNX graph stands for which of another one's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection

import onnx_ir as ir

from torchferry.comparer.align.align import Origin, in_order, may_equal, output_places
from torchferry.comparer.align.provenance import all_scopes, fx_name, fx_said, layer_of
from torchferry.comparer.align.scopes import Move, module_ends, move_between
from torchferry.errors import UsageError

__all__ = ["align_models"]

_NUMBERED = re.compile(r"(val_)?\d+")


def align_models(reference: ir.Graph, graph: ir.Graph) -> dict[str, Origin]:
    """Align a graph with another: values of one name, ends of modules, and the outputs in order.

    Two exporters may give one name to two things: values that are declared to have other shapes,
    or stand in other modules, are not aligned. Names of FX nodes count only where one graph has
    all that the other has of a module and an operator, and names that are numbers only when most
    of one graph's are in the other too, made by the same operator. Where names say little, as in
    files of two exporters, what alone leaves a module of one is what leaves it in the other.
    """
    names, ours = _named_values(reference), _named_values(graph)
    move = move_between(all_scopes(graph), all_scopes(reference))
    theirs, here = _fx_names(reference, Move()), _fx_names(graph, move)
    recounted = {
        name
        for place, some in here.items()
        if not (some <= theirs[place] or theirs[place] <= some)
        for name in some
    }
    found = {
        name: Origin(name, "name")
        for name, value in ours.items()
        if name in names
        and _alike(names[name], value, move)
        and fx_name(value.producer()) not in recounted
    }
    numbered = [{*filter(_NUMBERED.fullmatch, one)} for one in (names, ours)]
    shared = numbered[0] & numbered[1]
    same = sum(_operator(names[name]) == _operator(ours[name]) for name in shared)
    if 2 * same < min(map(len, numbered)):
        found = {name: origin for name, origin in found.items() if name not in shared}
    if 2 * len(found) < len(graph):
        taken = {origin.key for origin in found.values()}
        found |= {
            name: Origin(key, "scope")
            for name, key in _module_pairs(reference, graph, move).items()
            if name not in found and key not in taken
        }
    if len(graph.outputs) < len(reference.outputs):
        raise UsageError(
            f"the reference has {len(reference.outputs)} outputs, the model only "
            f"{len(graph.outputs)}: compare models that return the same"
        )
    places = output_places(graph, [str(value.name) for value in reference.outputs])
    for value, place in zip(graph.outputs, places or (), strict=False):
        other = reference.outputs[place]
        if value.producer() is not None and other.name in names:
            found[str(value.name)] = Origin(str(other.name), "output")
    return in_order(found, graph)


def _module_pairs(reference: ir.Graph, graph: ir.Graph, move: Move) -> dict[str, str]:
    """The only values that leave the same module: of a graph → of its reference."""
    theirs, ours = module_ends(reference, Move()), module_ends(graph, move)
    again = _called_again(theirs, ours) | _called_again(ours, theirs)
    found: dict[str, str] = {}
    # Of modules that end in one value, the outermost comes last: it says most.
    for path in sorted(theirs.keys() & ours.keys(), key=len, reverse=True):
        if len(theirs[path]) == len(ours[path]) == 1 and not _beginnings(path) & again:
            there = _normalized(theirs[path][0], ours, Move())
            here = _normalized(ours[path][0], theirs, move)
            if here.name and there.name and may_equal(here.shape, there.shape):
                found[here.name] = there.name
    return found


def _called_again(paths: Collection[str], others: Collection[str]) -> set[str]:
    """Modules whose second call stands in ``NAME_1``, as in files of the TorchScript exporter."""
    return {path for path in paths if f"{path}_1" in paths and f"{path}_1" not in others}


def _beginnings(path: str) -> set[str]:
    """A module and those that it is a part of."""
    steps = path.split(".")
    return {".".join(steps[: count + 1]) for count in range(len(steps))}


def _normalized(value: ir.Value, others: Collection[str], move: Move) -> ir.Value:
    """The value, or the batch normalization of it if the other graph has it in the weights."""
    users = [use.node for use in value.uses()]
    if len(users) != 1 or users[0].op_type != "BatchNormalization":
        return value
    (user,) = users
    return value if move(layer_of(user)) in others else user.outputs[0]


def _named_values(graph: ir.Graph) -> dict[str, ir.Value]:
    return {str(v.name): v for node in graph for v in node.outputs if v.name}


def _fx_names(graph: ir.Graph, move: Move) -> dict[tuple[str, str], set[str]]:
    """Names of FX nodes by the module they stand in and what they call."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for node in graph:
        name, target = fx_said(node)
        if name:
            found[move(layer_of(node)), target].add(name)
    return found


def _operator(value: ir.Value) -> str:
    node = value.producer()
    return "" if node is None else node.op_type


def _alike(one: ir.Value, other: ir.Value, move: Move) -> bool:
    """Whether two values may be the same, by what is declared of them."""
    first, second = one.producer(), other.producer()
    if first is not None and second is not None:
        layers = layer_of(first), move(layer_of(second))
        if all(layers) and len(set(layers)) > 1:
            return False
    return may_equal(one.shape, other.shape)
