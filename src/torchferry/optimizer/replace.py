"""Put what a rule made in the place of what it found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir as ir

from torchferry.errors import RuleBroke
from torchferry.optimizer.block import Block
from torchferry.optimizer.inference import infer_node
from torchferry.optimizer.matcher import Match
from torchferry.optimizer.place import Place
from torchferry.optimizer.rule import Declined, Rule, require

__all__ = ["replace"]

_BY = "pkg.torchferry.rule"


def replace(rule: Rule, match: Match, place: Place, opsets: dict[str, int]) -> list[ir.Node]:
    """Apply a rule to what it matched.

    Names of outputs, types, shapes and metadata stay; nodes that nobody reads any longer are left
    for the driver to remove.

    Args:
        rule: has a match, and its check passed.
        match: what it found.
        place: the order of the nodes.
        opsets: of the graph; domains that the new nodes need are added.

    Returns:
        The new nodes.

    Raises:
        Declined: the rewrite is not possible here; nothing was changed.
        RuleBroke: the rule returned something else than it should.
    """
    block = Block(opsets[""])
    new = _pairs(rule, match, rule.rewritten(block, match.found))
    root = match.nodes[0]
    made = {value for node in block.nodes for value in node.outputs}
    try:
        kept = _left_over(new, made)
        require(not kept or root.op_type != "Identity", "an output needs a node of its own")
        for old in kept:
            new[old] = block.Identity(new[old])
            made.add(new[old])
        anchor = _anchor(match, new, block, place, made)
    except Declined:
        _discard(block.nodes)
        raise
    new = _store(block, new, place, anchor)
    for node in block.nodes:
        _name(node, rule, root, place)
    place.insert(anchor, block.nodes)
    _describe(block.nodes, rule, match, new)
    for domain, version in block.domains.items():
        opsets.setdefault(domain, version)
    for old, value in new.items():
        _take_over(rule, old, value, made=value in made)
    for node in block.nodes:
        infer_node(node, opsets)
    return block.nodes


def _pairs(rule: Rule, match: Match, result: Any) -> dict[ir.Value, ir.Value]:
    """Old values and what replaces them."""
    if isinstance(result, Mapping):
        return dict(result)
    values = [result] if isinstance(result, ir.Value) else list(result or ())
    if len(values) != len(match.replaced):
        raise RuleBroke(
            f"{rule.name} returned {len(values)} values for {len(match.replaced)} of its pattern",
            rule=rule.name,
        )
    return dict(zip(match.replaced, values, strict=True))


def _left_over(new: dict[ir.Value, ir.Value], made: set[ir.Value]) -> list[ir.Value]:
    """Outputs of the graph that would be left without a node that makes them."""
    left, taken = [], set()
    for old, value in new.items():
        if not old.is_graph_output():
            continue
        maker, here = value.producer(), old.producer()
        same_graph = maker is not None and here is not None and maker.graph is here.graph
        free = value in made or (same_graph and not value.is_graph_output())
        if not free or value in taken:
            left.append(old)
        taken.add(value)
    return left


def _anchor(
    match: Match,
    new: dict[ir.Value, ir.Value],
    block: Block,
    place: Place,
    made: set[ir.Value],
) -> ir.Node:
    """The node that the new nodes are put before."""
    root = match.nodes[0]
    if len(new) == 1 and root.outputs[0] in new:
        return root  # whatever was matched stands before it
    inner = set(match.nodes)
    readers = [
        here
        for old in new
        for user in old.consumers()
        if user not in inner and (here := place.around(user, root.graph)) is not None
    ]
    anchor = place.first([root, *readers])
    outside = [v for node in block.nodes for v in node.inputs if v is not None and v not in made]
    outside += [value for value in new.values() if value not in made]
    late = [v for v in outside if v not in block.constants and not place.ready(v, anchor)]
    if late:
        raise Declined(f"{late[0].name} is made after what reads the result")
    return anchor


def _discard(nodes: Sequence[ir.Node]) -> None:
    """Let nodes that will not be used read nothing."""
    for node in nodes:
        for index in range(len(node.inputs)):
            node.replace_input_with(index, None)


def _store(
    block: Block, new: dict[ir.Value, ir.Value], place: Place, anchor: ir.Node
) -> dict[ir.Value, ir.Value]:
    """Keep the constants that are used; return what replaces what, with them."""
    results = set(new.values())
    for constant in block.constants:
        uses = constant.uses()
        if not uses and constant not in results:
            continue
        stored = place.store(constant, anchor)
        for node, index in uses if stored is not constant else ():
            node.replace_input_with(index, stored)
        new = {old: stored if value is constant else value for old, value in new.items()}
    return new


def _name(node: ir.Node, rule: Rule, root: ir.Node, place: Place) -> None:
    node.name = place.fresh(f"{root.name or root.op_type}/{rule.name}")
    for value in node.outputs:
        value.name = place.fresh(f"{root.outputs[0].name}/{node.op_type}")


def _describe(
    nodes: Iterable[ir.Node], rule: Rule, match: Match, new: dict[ir.Value, ir.Value]
) -> None:
    """Metadata of all that was matched, the root's first."""
    origins = match.nodes if len(match.replaced) == len(new) else [
        node for old in new if (node := old.producer()) is not None
    ]  # fmt: skip
    props: dict[str, str] = {}
    for origin in origins:
        props = {**origin.metadata_props, **props}
    for node in nodes:
        node.metadata_props.update({**props, _BY: rule.name})


def _take_over(rule: Rule, old: ir.Value, new: ir.Value, *, made: bool) -> None:
    """Let a new value have the name, type, shape and readers of an old one."""
    if old.dtype is not None and new.dtype is not None and old.dtype != new.dtype:
        raise RuleBroke(
            f"{rule.name} made {new.dtype.name} of {old.name}, which is {old.dtype.name}",
            rule=rule.name,
        )
    output = old.is_graph_output()
    if (output or made) and not new.is_graph_output():
        name, old.name = old.name, f"{old.name}/replaced"
        new.name = name
    new.type = new.type or old.type
    if old.shape is not None and (output or new.shape is None):
        new.shape = old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
