"""Copy the nodes of a layer to where operators of a program stand for the calls of others."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from torchferry.capturer.depth.note import SYMBOLS
from torchferry.seams.layers import CALL, ENTER, GIVEN, LAYER, LEAVE, name_node
from torchferry.seams.pytorch import OpOverload
from torchferry.seams.symbols import has_unbacked_symbols

__all__ = ["NotStamped", "stamp_layers"]

_MARKS = (CALL, ENTER, GIVEN, LEAVE)
_MEMORY = {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_.default}


class NotStamped(Exception):  # noqa: N818  # nothing failed: the model is traced without notes
    """A layer takes something that no note says it does."""


@dataclass
class _Layer:
    """The nodes of a layer, each with the number of the call of torch that it belongs to.

    Attributes:
        begin: the mark where it begins.
        given: what it takes from outside.
        nodes: in their order.
        made: results of its calls as they are after a call: that, their number, the node; what
            was given and is returned, as by ``add_``, has a negative number.
        calls: how many are over.
        ended: whether others may be like it, or it is like another.
    """

    begin: fx.Node
    given: list[fx.Node] = field(default_factory=list)
    nodes: list[tuple[int, fx.Node]] = field(default_factory=list)
    made: list[tuple[int, int, fx.Node]] = field(default_factory=list)
    calls: int = 0
    ended: bool = False


def stamp_layers(program: ExportedProgram) -> None:
    """Put nodes in the place of operators that stand for calls of layers.

    Args:
        program: a capture of a model whose layers were compared; it is changed in place.

    Raises:
        NotStamped: a layer needs a value that the noted one was not seen to take.
    """
    marks = (*_MARKS, LAYER)
    for module in program.graph_module.modules():
        inner = isinstance(module, fx.GraphModule) and module is not program.graph_module
        if inner and any(node.target in marks for node in module.graph.nodes):
            raise NotStamped("a layer stands in a part of the program of its own")
    nodes = list(program.graph.nodes)
    if not any(node.target in marks for node in nodes):
        return
    targets = {node.target for node in nodes}
    if LAYER in targets and not targets.isdisjoint(_MEMORY):
        raise NotStamped("as_strided asks where results lie in memory")
    found = _Stamping(program)
    for node in nodes:
        found.visit(node)
    for node in nodes:
        if node.target in _MARKS:
            program.graph.erase_node(node)
    for layer in found.layers.values():
        for _, node in reversed(layer.nodes if layer.ended else []):  # what only the marks used
            if not node.users and not node.is_impure():
                program.graph.erase_node(node)
    _name_nodes(program, found.renamed)
    program.graph_module.recompile()


class _Stamping:
    """One walk over a graph."""

    def __init__(self, program: ExportedProgram) -> None:
        self.graph = program.graph
        self.layers: dict[str, _Layer] = {}
        self.open: _Layer | None = None
        self.visited: set[fx.Node] = set()
        self.renamed: dict[str, fx.Node] = {}
        constants = {InputKind.CONSTANT_TENSOR, InputKind.CUSTOM_OBJ}
        specs = program.graph_signature.input_specs
        self.constants = {spec.arg.name for spec in specs if spec.kind in constants}

    def visit(self, node: fx.Node) -> None:
        """Take a node as part of a layer, or put those in its place that it stands for."""
        self.visited.add(node)
        path, *rest = node.args or ("",)
        if node.target is ENTER:
            self.open = self.layers[str(path)] = _Layer(node)
        elif node.target is LAYER:
            self._copy_layer(node)
        elif self.open is None:
            return
        elif node.target is GIVEN:
            self.open.given.append(cast("fx.Node", rest[0]))
        elif node.target is CALL:
            for made, number in zip(*cast("Any", rest), strict=True):
                self.open.made.append((self.open.calls, number, made))
            self.open.calls += 1
        elif node.target is LEAVE:
            self.open.ended, self.open = True, None
        else:
            self.open.nodes.append((self.open.calls, node))

    def _copy_layer(self, node: fx.Node) -> None:
        path, like, given, calls, numbers = (cast("Any", one) for one in node.args)
        own, layer = self.layers[path], self.layers[like]
        copies: dict[fx.Node, fx.Node] = {}
        for old, new in zip(layer.given, given, strict=False):
            if copies.setdefault(old, new) is not new:
                raise NotStamped(f"{path} takes two tensors where {like} takes one")
        with self.graph.inserting_before(node):
            for number, one in layer.nodes:
                if number < calls:
                    copies[one] = self._copied(one, copies, layer.begin, own.begin)
                    own.nodes.append((number, copies[one]))
        self.visited.update(copies.values())
        own.calls = calls
        own.made = [
            (call, number, copies[one]) for call, number, one in layer.made if call < calls
        ]
        last = {number: one for _, number, one in own.made}
        for item in list(node.users):
            new = last[numbers[cast("int", item.args[1])]]
            item.replace_all_uses_with(new)
            self.renamed[item.name] = new
            self.graph.erase_node(item)
        self.graph.erase_node(node)

        def follows(user: fx.Node) -> bool:
            # Marks of what the layer was given, if its own calls go on, are of what came before.
            return user not in self.visited and user.args[:1] != (path,)

        for place, old in enumerate(given):
            if -1 - place in last:  # what follows takes it as the layer left it
                old.replace_all_uses_with(last[-1 - place], follows)

    def _copied(
        self, one: fx.Node, copies: Mapping[fx.Node, fx.Node], old: fx.Node, new: fx.Node
    ) -> fx.Node:
        if isinstance(value := one.meta.get("val"), SYMBOLS):
            if has_unbacked_symbols(value):
                raise NotStamped(f"{old.args[0]} takes a number from the values of a tensor")
            return one  # sizes are the same expressions

        def mapped(used: fx.Node) -> fx.Node:
            if used in copies:
                return copies[used]
            shared = used.op == "get_attr" or used.name in self.constants
            if shared or isinstance(used.meta.get("val"), SYMBOLS):
                return used
            raise NotStamped(f"{one} uses {used}, which {old.args[0]} was not seen to take")

        made: fx.Node = self.graph.node_copy(one, mapped)
        made.meta = _moved(one.meta, old.meta, new.meta)
        return made


def _moved(meta: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What is known of a node of one layer, as of the same in another."""
    moved = dict(meta)
    stack, outer = meta.get("nn_module_stack"), old.get("nn_module_stack")
    if stack and outer:
        (key, (path, _)), (to, (where, _)) = (
            list(one["nn_module_stack"].items())[-1] for one in (old, new)
        )
        if list(stack.items())[: len(outer)] != list(outer.items()):
            raise NotStamped(f"a node of {path} stands outside of it")
        inner = list(stack.items())[len(outer) :]
        moved["nn_module_stack"] = dict(new["nn_module_stack"]) | {
            to + name.removeprefix(key): (where + inside.removeprefix(path), cls)
            for name, (inside, cls) in inner
        }
    trace, begin = str(meta.get("stack_trace") or ""), str(old.get("stack_trace") or "")
    if begin and trace.startswith(begin):
        moved["stack_trace"] = new["stack_trace"] + trace.removeprefix(begin)
    return moved


def _name_nodes(program: ExportedProgram, renamed: Mapping[str, fx.Node]) -> None:
    """Number nodes of one kind in their order, as torch does, and tell the signature."""
    counts: Counter[str] = Counter()
    names = {name: node.name for name, node in renamed.items()}
    taken = {node.name for node in program.graph.nodes if node.op != "call_function"}
    now: dict[str, str] = {}
    for node in program.graph.nodes:
        if node.op == "call_function":
            stem = _stem(node)
            free = (f"{stem}_{n}" if n else stem for n in itertools.count(counts[stem]))
            name = next(one for one in free if one not in taken)
            counts[stem] = int(name[len(stem) + 1 :] or 0) + 1
            now[node.name] = name
    for node in program.graph.nodes:
        if node.name in now:
            name_node(node, now[node.name])
    for spec in program.graph_signature.output_specs:
        old = getattr(spec.arg, "name", None)
        if old is not None:
            current = names.get(old, old)
            spec.arg.name = now.get(current, current)


def _stem(node: fx.Node) -> str:
    target = node.target
    if isinstance(target, OpOverload):
        return str(target.overloadpacket.__name__)
    return re.sub(r"_\d+$", "", node.name)
