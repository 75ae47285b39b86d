"""Results that are views: PyTorch makes them, of what the session returns.

A functional graph may return views of one another, or of its arguments, and what is written to
one is then seen in the other; a session returns memory of its own for each. A slice or an expanded
tensor has strides that a session cannot give either.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import fx

from torchferry.compiler.graph import is_dense, source
from torchferry.seams.pytorch import storage_number

__all__ = ["is_separate", "separate_views"]

_MARK = "torchferry_view"


def is_separate(node: fx.Node) -> bool:
    """Whether a node was made by `separate_views`."""
    return _MARK in node.meta


def separate_views(module: fx.GraphModule) -> None:
    """Give results that must be views nodes of their own, which nothing else in the graph reads.

    Args:
        module: a functional graph, changed in place; ``meta["val"]`` of its nodes is known.
    """
    output = module.graph.output_node()
    results = [node for node in output.all_input_nodes if _memory(node) is not None]
    sharing: dict[Any, set[fx.Node]] = defaultdict(set)
    for node in results:
        sharing[_memory(node)].add(source(node))
    copies: dict[fx.Node, fx.Node] = {}
    for node in results:
        chain, root = _chain(node)
        if source(node) is root or not (root.op == "placeholder" or _is_dense(root)):
            continue
        alone = len(sharing[_memory(node)]) == 1 and root.op != "placeholder"
        if alone and _is_dense(node):
            continue
        for step in chain:
            if step not in copies:
                with module.graph.inserting_before(output):
                    copies[step] = module.graph.node_copy(step, lambda n: copies.get(n, n))
                copies[step].meta[_MARK] = True
    if copies:
        output.args = fx.map_arg(output.args, lambda node: copies.get(node, node))
        module.recompile()


def _chain(node: fx.Node) -> tuple[list[fx.Node], fx.Node]:
    """The views that lead to a node, and the tensor that they are of."""
    chain: list[fx.Node] = []
    while node.op == "call_function" and node.args and isinstance(node.args[0], fx.Node):
        viewed = node.args[0]
        if _memory(viewed) is None or _memory(viewed) != _memory(node):
            break
        chain.insert(0, node)
        node = viewed
    return chain, node


def _memory(node: fx.Node) -> int | None:
    """Which memory a tensor lies in, or all tensors that an operator returns."""
    example = node.meta.get("val")
    if isinstance(example, (list, tuple)) and example:
        example = example[0]
    if not isinstance(example, torch.Tensor) or example.layout is not torch.strided:
        return None
    return storage_number(example.untyped_storage())


def _is_dense(node: fx.Node) -> bool:
    example = node.meta["val"]
    return isinstance(example, torch.Tensor) and is_dense(example)
