"""Results that are their argument itself or a view of it, which the operator's schema hides.

A write in place to such a result changes the argument too. Functionalization goes by schemas, so
that it would miss that; here the program is given operators that say what they do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.export import ExportedProgram

from torchferry.converter.program.in_place import is_seen_write
from torchferry.seams.operators import aten
from torchferry.seams.pytorch import (
    FakeTensorMode,
    OpOverload,
    may_decompose,
    pytree,
    schema_of,
    storage_number,
)
from torchferry.values.recurrent import is_recurrent

__all__ = [
    "aliasing_targets", "graphs_of", "hidden_view", "hides", "is_view", "said", "views_of_written",
]  # fmt: skip

_DROPOUTS = (
    aten.dropout.default, aten.feature_dropout.default, aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
)  # fmt: skip
_VIEWS: dict[Any, Any] = {
    aten.unsafe_chunk.default: aten.chunk.default,
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}  # eager's "unsafe" results are views that are not told of each other


def graphs_of(program: ExportedProgram) -> Iterator[fx.Graph]:
    """The program's graph and those of its conditions, loops and blocks."""
    for module in program.graph_module.modules():
        if isinstance(module, fx.GraphModule):
            yield module.graph


def aliasing_targets(program: ExportedProgram) -> set[Any]:
    """Operators whose schema returns something new and whose result lies in an argument's memory.

    ``einsum`` that only permutes, ``type_as`` of the same dtype: they are to be taken apart.
    """
    return {
        node.target
        for graph in graphs_of(program)
        for node in graph.nodes
        if hidden_view(node) is not None
    }


def hidden_view(node: fx.Node) -> fx.Node | None:
    """The argument whose memory the result lies in though the schema does not say so."""
    target = node.target
    if not isinstance(target, OpOverload) or target.namespace != "aten" or is_recurrent(target):
        return None
    if any(result.alias_info for result in schema_of(target).returns) or not may_decompose(target):
        return None  # the schemas of operators that are made of no others are right
    return next((arg for arg in node.all_input_nodes if is_view(node, arg)), None)


def views_of_written(program: ExportedProgram) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Results and arguments that share memory with what is written to, or may at some sizes."""
    for graph in graphs_of(program):
        known: set[fx.Node] = set()
        for node in graph.nodes:
            if is_seen_write(node) and isinstance(node.args[0], fx.Node):
                yield from _shared(node.args[0], known)


def _shared(written: fx.Node, known: set[fx.Node]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Results and their arguments that share memory with a node, or may at some sizes.

    Args:
        written: the node.
        known: those that came before: what shares memory is one set, however often written to.
    """
    left = [] if written in known else [written]
    known.add(written)
    while left:
        node = left.pop()
        for view, viewed in (*((node, arg) for arg in node.all_input_nodes),
                             *((user, node) for user in node.users)):  # fmt: skip
            other = viewed if view is node else view
            if other not in known and _may_be_view(view):
                known.add(other)
                left.append(other)
                yield view, viewed


def _may_be_view(node: fx.Node) -> bool:
    """Whether the schema says that the result may be a view, or hides it; nothing is written."""
    target = node.target
    if not isinstance(target, OpOverload) or schema_of(target).is_mutable:
        return False
    return hides(node) or any(result.alias_info for result in schema_of(target).returns)


def hides(node: fx.Node) -> bool:
    """Whether an operator may return a view or a copy, as it finds its argument."""
    target = node.target
    return isinstance(target, OpOverload) and target.namespace == "aten" and may_decompose(target)


def is_view(node: fx.Node, viewed: fx.Node, sizes: Mapping[str, int] | None = None) -> bool:
    """Whether the result lies in the memory of an argument.

    The operator is run on fake tensors of the sizes that were exported, since the program's own
    would have the operator's questions about sizes fix these, and a saved program's do not know
    who shares memory with whom.

    Args:
        node: calls an operator.
        viewed: one of its arguments.
        sizes: other ones than those that were exported, by symbol.
    """
    operator: Any = node.target
    with FakeTensorMode():
        made: dict[fx.Node, Any] = {}
        for arg in node.all_input_nodes:
            made[arg] = pytree.tree_map(partial(_of_fixed_size, sizes=sizes), arg.meta.get("val"))
        if None in pytree.tree_leaves(list(made.values())):  # of a size that nobody knows
            return True  # better refuse too much than lose a write
        values, named = fx.node.map_arg((node.args, node.kwargs), lambda arg: made[arg])
        try:
            result = operator(*values, **named)
        except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError):
            return True
    return bool(_storages(made[viewed]) & _storages(result))


def _of_fixed_size(value: Any, sizes: Mapping[str, int] | None = None) -> Any:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.hint if sizes is None else _with_sizes(value, sizes)
    if not isinstance(value, torch.Tensor):
        return value
    size = [_of_fixed_size(n, sizes) for n in value.shape]
    stride = [_of_fixed_size(n, sizes) for n in value.stride()]
    if None in size or None in stride:
        return None
    return torch.empty_strided(size, stride, dtype=value.dtype, device=value.device)


def _with_sizes(value: Any, sizes: Mapping[str, int]) -> Any:
    expression = value.node.expr
    known = {symbol: sizes.get(str(symbol)) for symbol in expression.free_symbols}
    if None in known.values():
        return value.node.hint
    size = expression.subs(known)
    return int(size) if size.is_Integer else None


@contextmanager
def said(program: ExportedProgram) -> Iterator[None]:
    """Inside the block, idle dropouts are aliases and unsafe splits are the views they are."""
    changed = []
    for graph in graphs_of(program):
        for node in graph.nodes:
            target, args = _VIEWS.get(node.target, node.target), node.args
            if node.target in _DROPOUTS and _idle(node):
                target, args = aten.alias.default, node.args[:1]
            if target is not node.target:
                changed.append((node, node.target, node.args))
                node.target, node.args = target, args
    try:
        yield
    finally:
        for node, target, args in changed:
            node.target, node.args = target, args


def _idle(node: fx.Node) -> bool:
    """Whether a dropout returns its argument: it is not training, or drops nothing."""
    return len(node.args) == 3 and (node.args[2] is False or node.args[1] in (0, 0.0))


def _storages(value: Any) -> set[int]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return {storage_number(v.untyped_storage()) for v in values if isinstance(v, torch.Tensor)}
