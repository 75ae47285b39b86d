"""Chosen module classes as local ONNX functions, one for all instances that compute alike."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import onnx_ir as ir

from torchferry.converter.weight import Weight
from torchferry.errors import UsageError

__all__ = ["DOMAIN", "extract_functions"]

DOMAIN = "torchferry.modules"
"""The domain of the functions."""

_SCOPES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_SMALL = 64  # elements of a constant that a function keeps; larger ones are inputs, as weights are
_LISTED = 12  # classes named in an error

Scope = tuple[tuple[str, ...], str]  # the paths down to a module, and its class


def extract_functions(model: ir.Model, classes: Iterable[str | type]) -> None:
    """Move what modules of some classes compute into functions, in place.

    Weights are inputs of the functions, so that instances which differ in nothing else share one.
    Where an instance's nodes stand in several places, each becomes a function. Sizes that later
    nodes use too are computed before the call.

    Args:
        model: as translated, its nodes with the metadata of the modules they come from.
        classes: module classes, or their names, with the module's path or without.

    Raises:
        UsageError: the model has no module of a class that is asked for.
    """
    wanted = {_name(kind) for kind in classes}
    seen = {kind for node in model.graph for _, kind in _scopes(node)}
    missing = {name for name in wanted if not any(_is(kind, {name}) for kind in seen)}
    if missing:
        known = sorted({kind.rsplit(".", 1)[-1] for kind in seen})
        raise UsageError(
            f"the model has no module of class {', '.join(sorted(missing))}: choose among "
            + ", ".join(known[:_LISTED])
            + (" …" if len(known) > _LISTED else "")
        )
    made = _Functions(model)
    deepest = max((len(_scopes(node)) for node in model.graph), default=0)
    for depth in range(deepest, 0, -1):  # modules inside others first
        for scope, nodes in _runs(model.graph, depth, wanted):
            if scope is not None:
                made.move(nodes, scope)
    if model.functions:
        model.graph.opset_imports[DOMAIN] = 1


class _Functions:
    """The functions of a model, each under what it computes."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model
        self._known: dict[Any, str] = {}
        self._names: dict[str, int] = {}

    def move(self, nodes: list[ir.Node], scope: Scope) -> None:
        """Put a call in the place of nodes that stand one after another."""
        nodes = _without_sizes(self._model.graph, nodes)
        if not nodes:
            return
        inputs, outputs = _border(nodes)
        if not outputs:
            return
        key = _form(nodes, inputs, outputs)
        name = self._known.get(key)
        if name is None:
            name = self._known[key] = self._new_name(scope[1])
        call = ir.Node(DOMAIN, name, inputs, num_outputs=len(outputs))
        call.metadata_props.update(_metadata(nodes[0], len(scope[0])))
        for old, new in zip(outputs, call.outputs, strict=True):
            new.name, new.type, new.shape = old.name, old.type, old.shape
            new.meta.update(old.meta)
        self._model.graph.insert_before(nodes[0], call)
        # the uses inside go with the nodes, which a function of the same kind may not need
        ir.convenience.replace_all_uses_with(outputs, call.outputs, replace_graph_outputs=True)
        self._model.graph.remove(nodes)
        function = (DOMAIN, name, "")
        if function not in self._model.functions:
            self._model.functions[function] = self._function(
                name, nodes, inputs, list(zip(call.outputs, outputs, strict=True))
            )

    def _new_name(self, kind: str) -> str:
        short = kind.rsplit(".", 1)[-1]
        count = self._names[short] = self._names.get(short, 0) + 1
        return short if count == 1 else f"{short}_{count}"

    def _function(
        self,
        name: str,
        nodes: list[ir.Node],
        inputs: list[ir.Value],
        outputs: list[tuple[ir.Value, ir.Value]],
    ) -> ir.Function:
        formals = {}
        for place, value in enumerate(inputs):
            short = (value.name or "").rsplit(".", 1)[-1]
            formals[value] = ir.Value(name=f"input_{place}_{short}", type=value.type)
        inner = dict(outputs) | formals
        constants: dict[ir.Value, ir.Node] = {}
        for node in nodes:
            _rewire(node, inner, constants)
            for output in node.outputs:
                output.shape = None  # it is another one in another instance
        graph = ir.Graph(
            list(formals.values()),
            [old for _, old in outputs],
            nodes=[*constants.values(), *nodes],
            opset_imports={**self._model.graph.opset_imports, DOMAIN: 1},
            name=name,
        )
        return ir.Function(DOMAIN, name, graph=graph, attributes=[])


# Whose nodes they are ----------------------------------------------------------------------------


def _name(kind: str | type) -> str:
    return kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"


def _is(kind: str, wanted: set[str]) -> bool:
    return kind in wanted or kind.rsplit(".", 1)[-1] in wanted


def _scopes(node: ir.Node) -> list[tuple[str, str]]:
    """Path and class of every module that a node stands in, from the outermost."""
    said = node.metadata_props
    if _SCOPES not in said or _CLASSES not in said:
        return []
    paths, kinds = ast.literal_eval(said[_SCOPES]), ast.literal_eval(said[_CLASSES])
    return list(zip(paths, kinds, strict=True))[:-1]  # the last is the FX node itself


def _scope(node: ir.Node, depth: int, wanted: set[str]) -> Scope | None:
    """The module at a depth, when it is of a class that is wanted."""
    scopes = _scopes(node)
    if len(scopes) < depth or not _is(scopes[depth - 1][1], wanted):
        return None
    return tuple(path for path, _ in scopes[:depth]), scopes[depth - 1][1]


def _runs(
    graph: ir.Graph, depth: int, wanted: set[str]
) -> list[tuple[Scope | None, list[ir.Node]]]:
    """The nodes that stand one after another in the same module."""
    runs = groupby(list(graph), lambda node: _scope(node, depth, wanted))
    return [(scope, list(nodes)) for scope, nodes in runs]


def _metadata(node: ir.Node, depth: int) -> dict[str, str]:
    """What is said of a call: the modules around it, and the module itself as its node."""
    said = dict(node.metadata_props)
    if "namespace" in said:
        said["namespace"] = "/".join(said["namespace"].split("/")[:depth])
    for key in (_SCOPES, _CLASSES):
        said[key] = repr(ast.literal_eval(said[key])[:depth])
    return said


# What goes in and what comes out ---------------------------------------------------------------


def _uses(node: ir.Node) -> Iterator[ir.Value]:
    """The values a node needs, those of its bodies too."""
    yield from (value for value in node.inputs if value is not None)
    for graph in _bodies(node):
        own = {*graph.inputs, *(v for inner in graph for v in inner.outputs)}
        for inner in graph:
            yield from (value for value in _uses(inner) if value not in own)
        yield from (value for value in graph.outputs if value not in own)


def _bodies(node: ir.Node) -> list[ir.Graph]:
    graphs = (a for a in node.attributes.values() if a.type is ir.AttributeType.GRAPH)
    return [attribute.as_graph() for attribute in graphs]


def _border(nodes: Sequence[ir.Node]) -> tuple[list[ir.Value], list[ir.Value]]:
    """The values that nodes take from elsewhere, and those of theirs that are used elsewhere."""
    made = {value for node in nodes for value in node.outputs}
    inside = _with_bodies(nodes)
    taken: dict[ir.Value, None] = {}
    for node in nodes:
        for value in _uses(node):
            if value not in made and not _is_small(value):
                taken.setdefault(value)
    given = [
        value
        for node in nodes
        for value in node.outputs
        if value.is_graph_output() or any(user not in inside for user in value.consumers())
    ]
    return list(taken), given


def _with_bodies(nodes: Iterable[ir.Node]) -> set[ir.Node]:
    found: set[ir.Node] = set()
    for node in nodes:
        found.add(node)
        for graph in _bodies(node):
            found |= _with_bodies(graph)
    return found


def _is_small(value: ir.Value) -> bool:
    """Whether a function keeps it as a constant of its own."""
    tensor = value.const_value
    return tensor is not None and not isinstance(tensor, Weight) and tensor.size <= _SMALL


def _without_sizes(graph: ir.Graph, nodes: list[ir.Node]) -> list[ir.Node]:
    """The nodes less those that compute sizes which nodes after them use too.

    They are moved before the others, so that the first instance of a module, which computes them
    for all, is as the next ones are.
    """
    made = {value for node in nodes for value in node.outputs}
    inside, before = _with_bodies(nodes), []
    for node in nodes:
        outer = not any(value in made for value in _uses(node))
        shared = any(user not in inside for v in node.outputs for user in v.consumers())
        if outer and shared and all(_is_size(value) for value in node.outputs):
            before.append(node)
            made.difference_update(node.outputs)
    kept = [node for node in nodes if node not in set(before)]
    if before and kept:
        graph.remove(before)
        graph.insert_before(kept[0], before)
    return kept


def _is_size(value: ir.Value) -> bool:
    return (
        value.dtype == ir.DataType.INT64
        and value.shape is not None
        and len(value.shape) <= 1
        and not value.is_graph_output()
    )


# What they compute -----------------------------------------------------------------------------


def _form(
    nodes: Sequence[ir.Node], inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]
) -> Any:
    """The same for nodes that compute the same, whatever their values are called."""
    numbers: dict[ir.Value, Any] = {value: place for place, value in enumerate(inputs)}
    body = _numbered(nodes, numbers)
    kinds = tuple(value.dtype for value in inputs)
    return kinds, body, tuple(numbers[value] for value in outputs)


def _numbered(nodes: Iterable[ir.Node], numbers: dict[ir.Value, Any]) -> Any:
    lines = []
    for node in nodes:
        given = tuple(None if v is None else _number(v, numbers) for v in node.inputs)
        said = tuple(sorted((n, _content(a, numbers)) for n, a in node.attributes.items()))
        for value in node.outputs:
            numbers[value] = len(numbers)
        lines.append((node.domain, node.op_type, given, said, len(node.outputs)))
    return tuple(lines)


def _number(value: ir.Value, numbers: dict[ir.Value, Any]) -> Any:
    if value in numbers:
        return numbers[value]
    tensor = value.const_value
    if tensor is None:
        raise ValueError(f"{value.name} comes from nowhere")
    return str(tensor.dtype), tuple(tensor.shape), tensor.tobytes()


def _content(attribute: ir.Attr, numbers: dict[ir.Value, Any]) -> Any:
    if attribute.type is ir.AttributeType.GRAPH:
        graph = attribute.as_graph()
        for value in graph.inputs:
            numbers[value] = len(numbers)
        body = _numbered(graph, numbers)
        kinds = tuple(str(value.dtype) for value in graph.inputs)
        return repr((kinds, body, tuple(_number(v, numbers) for v in graph.outputs)))
    if attribute.type is ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return repr((str(tensor.dtype), tuple(tensor.shape), tensor.tobytes()))
    return repr(attribute.value)


def _rewire(
    node: ir.Node, inner: dict[ir.Value, ir.Value], constants: dict[ir.Value, ir.Node]
) -> None:
    """Let a node use what is in the function."""
    for place, value in enumerate(node.inputs):
        if value is not None:
            node.replace_input_with(place, _inside(value, inner, constants))
    for graph in _bodies(node):
        for inside in graph:
            _rewire(inside, inner, constants)


def _inside(
    value: ir.Value, inner: dict[ir.Value, ir.Value], constants: dict[ir.Value, ir.Node]
) -> ir.Value:
    if value in inner:
        return inner[value]
    if value.producer() is not None or not _is_small(value) or value.const_value is None:
        return value
    if value not in constants:
        tensor = ir.tensor(value.const_value.numpy(), dtype=value.const_value.dtype)
        made = ir.node("Constant", [], {"value": tensor})
        made.outputs[0].name = value.name
        made.outputs[0].type = value.type
        constants[value] = made
    return constants[value].outputs[0]
