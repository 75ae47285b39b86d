"""Casts around nodes that must compute in a wider type than the model's."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

__all__ = ["widen"]


def widen(
    nodes: Iterable[ir.Node],
    *,
    narrow: ir.DataType = ir.DataType.BFLOAT16,
    wide: ir.DataType = ir.DataType.FLOAT,
) -> dict[str, int]:
    """``Op(x)``  →  ``Cast(Op(Cast(x, wide)), narrow)`` for the given nodes, in place.

    Results are rounded to the narrow type after every node, which is what PyTorch does when it
    accumulates in float32. A value that several nodes read is cast once.

    Args:
        nodes: nodes of one model, in the order of its graphs; their values know their types.
        narrow: the type to compute in no longer.
        wide: the type to compute in instead.

    Returns:
        How many nodes of each operator were changed.
    """
    counts: dict[str, int] = {}
    cast: dict[tuple[int, int], ir.Value] = {}
    for node in nodes:
        graph = node.graph
        if graph is None:
            raise ValueError(f"node {node.name} stands in no graph")
        inputs = list(node.inputs)
        for index, value in enumerate(inputs):
            if value is None or value.dtype != narrow:
                continue
            key = (id(graph), id(value))
            if key not in cast:
                cast[key] = _cast(graph, node, value, wide)
            inputs[index] = cast[key]
        _replace(graph, node, inputs, narrow, wide)
        counts[node.op_type] = counts.get(node.op_type, 0) + 1
    return counts


def _cast(
    graph: ir.Graph | ir.Function, before: ir.Node, value: ir.Value, to: ir.DataType
) -> ir.Value:
    node = ir.node("Cast", [value], {"to": to})
    graph.insert_before(before, node)
    output = node.outputs[0]
    output.name = f"{value.name}_{to.name.lower()}"
    output.type, output.shape = ir.TensorType(to), value.shape
    return output


def _replace(
    graph: ir.Graph | ir.Function,
    node: ir.Node,
    inputs: list[ir.Value | None],
    narrow: ir.DataType,
    wide: ir.DataType,
) -> None:
    """Put a node that computes in the wide type in place of ``node``, and casts after it."""
    results = []
    for value in node.outputs:
        is_narrow = value.dtype == narrow
        result = ir.Value(
            name=f"{value.name}_unrounded" if is_narrow else value.name,
            type=ir.TensorType(wide) if is_narrow else value.type,
            shape=value.shape,
        )
        results.append(result)
    twin = ir.Node(
        node.domain,
        node.op_type,
        inputs,
        list(node.attributes.values()),
        overload=node.overload,
        outputs=results,
        name=node.name,
        metadata_props=dict(node.metadata_props),
    )
    graph.insert_after(node, twin)
    last = twin
    for value, result in zip(node.outputs, results, strict=True):
        replacement = result
        if value.dtype == narrow:
            back = ir.node("Cast", [result], {"to": narrow})
            replacement = back.outputs[0]
            replacement.type, replacement.shape = value.type, value.shape
            graph.insert_after(last, back)
            last = back
        name, value.name = value.name, f"{value.name}_unused"
        replacement.name = name
        ir.convenience.replace_all_uses_with(value, replacement, replace_graph_outputs=True)
    graph.remove(node, safe=True)
