"""A part of a program as a module of its own, so that it can be asked again in other ways."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

__all__ = ["part_of"]


def part_of(
    program: ExportedProgram, inputs: Collection[str], name: str
) -> torch.fx.GraphModule | None:
    """What makes one value of a program, as a module; ``None`` if it takes more than is known.

    It takes the values that it needs by their names. Its weights are the program's own.

    Args:
        program: without in-place writes.
        inputs: names of nodes whose values are known.
        name: of the node that is wanted.
    """
    held = {**program.state_dict, **program.constants}
    placed = program.graph.find_nodes(op="placeholder")
    weights = {
        node: held[spec.target]
        for node, spec in zip(placed, program.graph_signature.input_specs, strict=True)
        if spec.kind is not InputKind.USER_INPUT
    }
    target = next((node for node in program.graph.nodes if node.name == name), None)
    needed: set[torch.fx.Node] = set()
    waiting = [] if target is None else [target]
    while waiting:
        node = waiting.pop()
        if node in needed:
            continue
        needed.add(node)
        if node is target or node.name not in inputs:
            waiting += node.all_input_nodes
    graph, root = torch.fx.Graph(), torch.nn.Module()
    copies: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in (one for one in program.graph.nodes if one in needed):
        if node in weights:
            root.register_buffer(node.name, weights[node].detach())
            copies[node] = graph.get_attr(node.name)
        elif node is not target and node.name in inputs:
            copies[node] = graph.placeholder(node.name)
        elif node.op == "call_function":
            copies[node] = graph.node_copy(node, copies.__getitem__)
        else:
            return None  # an input of the program, or a graph within it
    if target is None or target not in copies:
        return None
    graph.output(copies[target])
    return torch.fx.GraphModule(root, graph).eval()
