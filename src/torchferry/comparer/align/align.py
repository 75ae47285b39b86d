"""Which value of an ONNX graph stands for which of the reference: by provenance, scope, or name.

torchferry and torch.onnx write into each node's metadata which FX node it came from and in which
modules that stood; the TorchScript exporter, which optimum uses, names nodes after modules
(``/model/layers.0/mlp/MatMul``). A value that carries neither is not aligned: its error shows in
the next one that does.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, OutputKind

from torchferry.comparer.align.provenance import (
    all_scopes,
    fx_name,
    fx_of,
    fx_said,
    layer_of,
    uncast,
)
from torchferry.comparer.align.scopes import Move, module_ends, move_between
from torchferry.errors import UsageError
from torchferry.values.dtype import element_type

__all__ = [
    "Origin",
    "align_modules",
    "align_program",
    "constant_outputs",
    "in_order",
    "may_equal",
    "output_places",
]

How = Literal["name", "scope", "output", "number"]


@dataclass(frozen=True)
class Origin:
    """What a value of the ONNX graph is compared with.

    Attributes:
        key: name of the reference value: an FX node (``split:1``), a module path, an ONNX value.
        how: through its name in the provenance, as the last value of a module, as an output of
            the graph, or because the numbers are the same.
    """

    key: str
    how: How


def output_places(graph: ir.Graph, names: Sequence[str]) -> list[int] | None:
    """Where each output of a graph stands among those of a model.

    That is by name, if the model has all of them: optimum writes the key and value of each layer
    next to each other, and leaves some out. Else it is in order, if there are as many.

    Args:
        graph: with its outputs.
        names: of the model's outputs, as exporters call them.
    """
    ours = [str(value.name) for value in graph.outputs]
    if set(ours) <= set(names):
        return [names.index(name) for name in ours]
    return [*range(len(ours))] if len(ours) == len(names) else None


def align_program(
    program: ExportedProgram, graph: ir.Graph, returned: Sequence[str] = ()
) -> dict[str, Origin]:
    """Align a graph with the program it came from.

    A node's value bears the FX node's name (``NAME_1``, ``NAME__1`` for the second of several);
    where a tool has renamed all values, it is the only one that leaves the FX node's nodes. In a
    capture with other sizes the numbers in names may be others: then the nodes of a module
    are taken in order, if there are as many of each operator.

    Returns:
        Origins by name of the ONNX value, in the order of the graph; names of values that stand
        for nothing in the program are missing.
    """
    known = {node.name: node for node in program.graph.nodes if node.op == "call_function"}
    written = all_scopes(graph)
    move = move_between(written, {path for node in known.values() for path in _paths(node)})
    renamed = _renamed(known, graph, move)
    found: dict[str, Origin] = {}
    for node in graph:
        name = fx_name(uncast(node))
        fx_node = known.get(renamed.get(name, ""))
        for value in node.outputs:
            key = _named(str(value.name), name, fx_node) if fx_node is not None else ""
            if key:
                found[str(value.name)] = Origin(key, "name")
    outputs = _outputs(program, graph, returned)
    named = {origin.key for origin in found.values()}
    aligned = named | {origin.key for origin in outputs.values()}
    if 2 * sum(bool(fx_name(node)) for node in graph) < len(graph):
        paths = _last_fx(known.values())
        scopes = {move(path) for path in written}
        for name, path in _module_values(graph, move).items():
            if name not in found and path in paths and paths[path] not in aligned:
                key = _normalized(known[paths[path]], scopes)
                found[name] = Origin(key, "scope")
    exits = {n: key for n, key in _exits(known, renamed, graph).items() if key not in aligned}
    if len(exits) > len(named) or not outputs:  # names say more, where they were kept
        found = {name: Origin(key, "name") for name, key in exits.items()} | found
    return in_order(found | outputs, graph)


def _normalized(node: torch.fx.Node, scopes: Collection[str]) -> str:
    """The node, or the batch normalization after it if the file has it in the node's weights."""
    (user, *others) = [*node.users] or [node]
    normalizes = user.target is torch.ops.aten.batch_norm.default and not others
    return user.name if normalizes and not _paths(user) <= set(scopes) else node.name


def _exits(
    known: Mapping[str, torch.fx.Node], renamed: Mapping[str, str], graph: ir.Graph
) -> dict[str, str]:
    """The only value that leaves the nodes of one FX node, where there is but one."""
    groups: dict[str, list[ir.Node]] = defaultdict(list)
    for node in graph:
        name = fx_name(node)
        if isinstance((fx_node := known.get(renamed.get(name, ""))), torch.fx.Node):
            groups[fx_node.name].append(node)
    found: dict[str, str] = {}
    for key, nodes in groups.items():
        inside = set(nodes)
        leaving = [
            value
            for node in nodes
            for value in node.outputs
            if value.is_graph_output() or any(use.node not in inside for use in value.uses())
        ]
        example = known[key].meta.get("val")
        if len(leaving) == 1 and isinstance(example, torch.Tensor):
            kind = leaving[0].dtype
            fits = kind is None or int(kind) == element_type(example.dtype)
            if fits and may_equal(leaving[0].shape, example.shape):
                found[str(leaving[0].name)] = key
    return found


def may_equal(shape: ir.Shape | None, other: ir.Shape | torch.Size | None) -> bool:
    """Whether two shapes have as many sizes, and no two that are known and differ.

    One that is not declared may be any.
    """
    if shape is None or other is None:
        return True
    return len(shape) == len(other) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int))
        for a, b in zip(shape, other, strict=True)
    )


def _named(value: str, name: str, fx_node: torch.fx.Node) -> str:
    """The key of the FX value that an ONNX value is called after; ``""`` for an interior one."""
    example = fx_node.meta.get("val")
    if value == name and isinstance(example, torch.Tensor):
        return fx_node.name
    if isinstance(example, (list, tuple)):
        index = value.removeprefix(name).lstrip("_")
        if value.startswith(f"{name}_") and index.isdecimal() and int(index) < len(example):
            return f"{fx_node.name}:{index}"
        if value == name and len(example) == 1:
            return f"{fx_node.name}:0"
    return ""


def _renamed(known: Mapping[str, torch.fx.Node], graph: ir.Graph, move: Move) -> dict[str, str]:
    """Names of FX nodes in the ONNX file → in the program; those that cannot be told are left out.

    A name holds if the operator does too, for all of its module, and where the file leaves some
    out, what it declares of their shapes; else nodes of one module and operator are paired in
    order, if there are as many.
    """
    ours: dict[tuple[str, str], list[str]] = defaultdict(list)
    for fx_node in known.values():
        stack = [path for path, _ in (fx_node.meta.get("nn_module_stack") or {}).values()]
        _, target = fx_of(str(fx_node.format_node()))
        ours[(stack[-1] if stack else "", target)].append(fx_node.name)
    theirs: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    others = set()
    for node in graph:
        name, target = fx_said(node)
        if name:
            place = (move(layer_of(node)), target)
            theirs[place].setdefault(name)
            example = known[name].meta.get("val") if name in known else None
            if isinstance(example, torch.Tensor):
                own = [value.shape for value in node.outputs if value.name == name]
                others |= {place for shape in own if not may_equal(shape, example.shape)}
    renamed: dict[str, str] = {}
    for place, names in theirs.items():
        there = ours.get(place, [])
        sure = len(names) == len(there) or place not in others
        if set(names) <= set(there) and sure:
            renamed |= {name: name for name in names}
        elif len(names) == len(there):
            renamed |= dict(zip(names, there, strict=True))
    return renamed


def _last_fx(nodes: Iterable[torch.fx.Node]) -> dict[str, str]:
    """The last tensor inside each module of a program that is called once.

    That is the last that is read outside, if any is; of several results of one operator it is not
    known which stands last in another graph.
    """
    last: dict[str, str] = {}
    exits: dict[str, list[torch.fx.Node]] = defaultdict(list)
    calls: dict[str, set[str]] = defaultdict(set)
    for node in nodes:
        if isinstance(node.meta.get("val"), torch.Tensor):
            paths = _paths(node)
            last |= dict.fromkeys(paths, node.name)
            left = {path for user in node.users for path in paths - _paths(user)}
            for path in left:
                exits[path].append(node)
            for call, (path, _) in (node.meta.get("nn_module_stack") or {}).items():
                calls[path].add(call)
    last |= {path: leaving[-1].name for path, leaving in exits.items()}
    items = {
        path: [node for node in leaving if node.target is operator.getitem]
        for path, leaving in exits.items()
    }
    return {
        path: name
        for path, name in last.items()
        if len(calls[path]) == 1 and len(items.get(path, ())) < 2
    }


def _paths(node: torch.fx.Node) -> set[str]:
    """The modules that a node of a program stands in, the model itself left out."""
    stack = node.meta.get("nn_module_stack") or {}
    return {path for path, _ in stack.values() if path}


def align_modules(
    graph: ir.Graph,
    paths: Collection[str],
    places: Sequence[int] | None = None,
    normalized: Mapping[str, str] | None = None,
) -> dict[str, Origin]:
    """Align a graph with what the modules of a model return.

    A module's value is the last one anywhere inside its scope that is read outside of it. The
    model's own outputs are aligned as ``output:0``.

    Args:
        graph: whose nodes say in which modules they stand.
        paths: of the modules of the model.
        places: of the graph's outputs among those of the model; in order when None.
        normalized: for some of them the batch normalization that is called after it, which the
            file may have in the weights of the first.
    """
    written = all_scopes(graph)
    move = move_between(written, paths)
    scopes = {move(path) for path in written}
    found = {}
    for name, path in _module_values(graph, move).items():
        after = (normalized or {}).get(path, path)
        found[name] = Origin(path if after in scopes else after, "scope")
    for place, value in zip(places or range(len(graph.outputs)), graph.outputs, strict=True):
        if value.producer() is not None:
            found[str(value.name)] = Origin(f"output:{place}", "output")
    return in_order(found, graph)


def _module_values(graph: ir.Graph, move: Move) -> dict[str, str]:
    """The value of each module: name of the ONNX value → path of the outermost module it ends."""
    ends = {path: _result(values) for path, values in module_ends(graph, move).items()}
    # Of modules that end in one value, the innermost comes last; the outermost says most.
    return {str(ends[path].name): path for path in sorted(ends, key=len, reverse=True)}


def _result(values: Sequence[ir.Value]) -> ir.Value:
    """What a module returns, of all that leaves it: the last, but for sizes that it computed."""
    return ([value for value in values if not _is_size(value)] or values)[-1]


def _is_size(value: ir.Value) -> bool:
    whole = value.dtype is not None and value.dtype.is_integer()
    return whole and value.shape is not None and value.shape.rank() == 0


def constant_outputs(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Numbers that a program returns whatever it is given, by what they are called here."""
    return {
        f"constant:{index}": torch.tensor(spec.arg.value)
        for index, spec in enumerate(program.graph_signature.output_specs)
        if spec.kind is OutputKind.USER_OUTPUT
        and isinstance(spec.arg, ConstantArgument)
        and isinstance(spec.arg.value, bool | int | float)
    }


def _outputs(
    program: ExportedProgram, graph: ir.Graph, returned: Sequence[str]
) -> dict[str, Origin]:
    """The outputs by name or in order; an exporter may leave out those that are constants."""
    constants = constant_outputs(program)
    all_names = [
        f"constant:{index}" if isinstance(spec.arg, ConstantArgument) else str(spec.arg.name)
        for index, spec in enumerate(program.graph_signature.output_specs)
        if spec.kind is OutputKind.USER_OUTPUT
    ]
    names = [name for name in all_names if not name.startswith("constant:")]
    told = dict(zip(returned, all_names, strict=False))
    if all(value.name in told for value in graph.outputs):
        names = [told[str(value.name)] for value in graph.outputs]
    if len(graph.outputs) < len(names):
        raise UsageError(
            f"the program has {len(names)} outputs, the ONNX model only {len(graph.outputs)}: "
            "compare models that return the same"
        )
    if len(names) != len(graph.outputs):
        names = [name for name in all_names if name in constants or name in names]
    if len(names) != len(graph.outputs):
        return {}
    return {
        str(value.name): Origin(name, "output")
        for value, name in zip(graph.outputs, names, strict=True)
        if value.producer() is not None
    }


def in_order(found: Mapping[str, Origin], graph: ir.Graph) -> dict[str, Origin]:
    """Origins in the order in which the graph computes the values."""
    names = [str(value.name) for node in graph for value in node.outputs]
    return {name: found[name] for name in names if name in found}
