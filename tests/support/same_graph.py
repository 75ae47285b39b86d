"""Are two ONNX models the same, node by node? Names of values and nodes may differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

_SHARED = "lifted_tensor"  # constants in the code, which layers share where they are equal

__all__ = ["find_difference"]

# Forms that spell the name of a node.
_NAMED = ("pkg.torch.onnx.fx_node", "namespace", "pkg.torch.onnx.name_scopes")


def find_difference(model: ir.Model, other: ir.Model) -> str:
    """The first difference in operators, wiring, attributes, shapes, weights and provenance."""
    theirs = _described(other)
    for number, row in enumerate(_described(model)):
        if row != next(theirs, None):
            return f"node {number}: {row}"
    extra = next(theirs, None)
    if extra is not None:
        return f"only in the other: {extra}"
    for name, value in model.graph.initializers.items():
        twin = other.graph.initializers.get(name)
        if _SHARED in name:
            continue
        if twin is None or value.const_value is None or twin.const_value is None:
            return f"initializer {name}"
        if value.const_value.tobytes() != twin.const_value.tobytes():
            return f"the values of {name}"
    extra = {name for name in other.graph.initializers if _SHARED not in name}
    return ", ".join(extra - {*model.graph.initializers})


def _described(model: ir.Model) -> Iterator[Any]:
    labels: dict[ir.Value | None, str] = {None: ""}
    for graph in (model.graph, *model.functions.values()):
        for value in graph.inputs:
            labels[value] = f"input {value.name} {value.dtype} {value.shape}"
    for name, value in model.graph.initializers.items():
        label = value.const_value.tobytes() if _SHARED in name else name
        labels[value] = f"weight {label} {value.dtype} {value.shape}"
    for number, node in enumerate(_all_nodes(model)):
        for place, value in enumerate(node.outputs):
            labels[value] = f"{number}, {place}"
        yield (
            node.domain, node.op_type, [labels.get(value, "?") for value in node.inputs],
            [(value.dtype, str(value.shape)) for value in node.outputs],
            {name: _plain(one) for name, one in node.attributes.items()}, _scopes(node),
        )  # fmt: skip
    yield [(value.name, labels.get(value), str(value.shape)) for value in model.graph.outputs]


def _all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    for graph in (model.graph, *model.functions.values()):
        yield from ir.traversal.RecursiveGraphIterator(graph)


def _plain(attribute: ir.Attr) -> Any:
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return str(tensor.dtype), str(tensor.shape), tensor.tobytes()
    return "graph" if attribute.type == ir.AttributeType.GRAPH else str(attribute.value)


def _scopes(node: ir.Node) -> dict[str, str]:
    kept = {key: text for key, text in node.metadata_props.items() if key not in _NAMED}
    kept = {key: re.sub(r"<eval_with_key>\.\d+", "", text) for key, text in kept.items()}
    kept["modules"] = node.metadata_props.get("namespace", "").rpartition("/")[0]
    return kept
