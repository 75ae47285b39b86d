"""The graphs that a node holds: branches, and bodies of loops."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

__all__ = ["named_subgraphs", "subgraphs"]


def named_subgraphs(node: ir.Node) -> Iterator[tuple[str, ir.Graph]]:
    """The subgraphs of a node, by the attribute they are; of a list of them ``NAME[0]``."""
    for name, attribute in node.attributes.items():
        if attribute.is_ref():
            continue
        if attribute.type == ir.AttributeType.GRAPH:
            yield name, attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            for number, graph in enumerate(attribute.as_graphs()):
                yield f"{name}[{number}]", graph


def subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    """The subgraphs of a node."""
    return (graph for _, graph in named_subgraphs(node))
