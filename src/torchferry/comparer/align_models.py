"""Which value of an ONNX graph stands for which of another one's."""

from __future__ import annotations

import re
from collections import defaultdict

import onnx_ir as ir

from torchferry.comparer.align import Origin, in_order, may_equal
from torchferry.comparer.provenance import all_scopes, fx_name, fx_said, layer_of
from torchferry.comparer.scopes import Move, move_between
from torchferry.errors import UsageError

__all__ = ["align_models"]

_NUMBERED = re.compile(r"(val_)?\d+")


def align_models(reference: ir.Graph, graph: ir.Graph) -> dict[str, Origin]:
    """Align a graph with another: values of one name, and the outputs in order.

    Two exporters may give one name to two things: values that are declared to have other shapes,
    or stand in other modules, are not aligned. Names of FX nodes count only where one graph has
    all that the other has of a module and an operator, and names that are numbers only when most
    of those that both graphs have are made by the same operator.
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
    numbered = [name for name in ours if name in names and _NUMBERED.fullmatch(name)]
    same = sum(_operator(names[name]) == _operator(ours[name]) for name in numbered)
    if 2 * same < len(numbered):
        for name in numbered:
            found.pop(name, None)
    if len(graph.outputs) < len(reference.outputs):
        raise UsageError(
            f"the reference has {len(reference.outputs)} outputs, the model only "
            f"{len(graph.outputs)}: compare models that return the same"
        )
    if len(reference.outputs) == len(graph.outputs):
        for value, other in zip(graph.outputs, reference.outputs, strict=True):
            if value.producer() is not None and other.name in names:
                found[str(value.name)] = Origin(str(other.name), "output")
    return in_order(found, graph)


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
    if one.shape is None or other.shape is None:
        return True
    return may_equal(list(one.shape), list(other.shape))
