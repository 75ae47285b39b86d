"""Types and shapes of values that a rewrite made, and of whole models that come without."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

import onnx
import onnx_ir as ir
from onnx.shape_inference import InferenceError, infer_node_outputs, infer_shapes

from torchferry.optimizer import facts

__all__ = ["infer_missing", "infer_node", "light", "told_of"]

_SMALL = 1024  # bytes; larger constants are no shapes and no axes


def infer_node(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Set the types and shapes of a node's outputs that are not set, where they follow.

    Args:
        node: its inputs and outputs have names.
        opsets: of the model.
    """
    if all(value.type and value.shape is not None for value in node.outputs):
        return
    for value, proto in told_of(node, opsets):
        _take(value, proto)


def told_of(node: ir.Node, opsets: Mapping[str, int]) -> list[tuple[ir.Value, onnx.TypeProto]]:
    """The types, with their shapes, that a node's outputs have as far as its inputs tell.

    The rules are those of onnx, which tell nothing of other domains, and of subgraphs.

    Args:
        node: its inputs and outputs have names.
        opsets: of the model.
    """
    values = {str(value.name): value for value in node.inputs if value is not None}
    if node.domain or any(value.type is None for value in values.values()):
        return []
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets[""], "")
        found = infer_node_outputs(
            schema,
            ir.to_proto(node),
            {name: ir.to_proto(value).type for name, value in values.items()},
            {name: proto for name, value in values.items() if (proto := _data(value))},
            opset_imports=imports,
        )
    except (InferenceError, onnx.checker.ValidationError, onnx.defs.SchemaError):
        return []  # the checker says it better, where the user asks for it
    return [(value, found[value.name]) for value in node.outputs if value.name in found]


def _data(value: ir.Value) -> onnx.TensorProto | None:
    tensor = facts.constant(value)
    if tensor is None or facts.byte_count(tensor) > _SMALL:
        return None
    return ir.to_proto(tensor)


def _take(value: ir.Value, proto: onnx.TypeProto) -> None:
    found = ir.serde.deserialize_type_proto_for_type(proto)
    if value.type is None:
        value.type = found
    if value.shape is None:
        value.shape = ir.serde.deserialize_type_proto_for_shape(proto)


def infer_missing(model: ir.Model, nodes: Iterable[ir.Node]) -> bool:
    """Run onnx's shape inference over a model when it may tell something new.

    Args:
        model: is changed in place; what it says already stays.
        nodes: of the model, to look at.

    Returns:
        Whether it was run.
    """
    lacking = any(
        value.type is None or value.shape is None
        for node in nodes
        for value in node.outputs
        if value.uses()
    )
    if not lacking:
        return False
    with light(model), _unique_names(model):
        proto = ir.to_proto(model)
    try:
        inferred = ir.from_proto(infer_shapes(proto, data_prop=True))
    except InferenceError:
        return True  # an invalid model; onnxruntime and the checker say where
    for graph, told in zip(model.graphs(), inferred.graphs(), strict=True):
        for node, other in zip(graph, told, strict=True):
            # Outputs that are left out at the end do not come back.
            for value, known in zip(node.outputs, other.outputs, strict=False):
                value.type = value.type or known.type
                if not value.is_graph_output():
                    with suppress(ValueError):  # a declared shape is another one: it stays
                        value.merge_shapes(known.shape)
    return True


@contextmanager
def _unique_names(model: ir.Model) -> Iterator[None]:
    """Let no two values of a model have one name in the block.

    Branches of an If may use the same names, and onnx's inference takes the sizes that one branch
    computes for those of the other.
    """
    taken: set[str | None] = set()
    renamed: list[tuple[ir.Value, str]] = []
    for graph in model.graphs():
        values = [*graph.inputs, *(value for node in graph for value in node.outputs)]
        for value in values:
            if value.name and value.name in taken:
                renamed.append((value, value.name))
                value.name = f"{value.name}\0{len(renamed)}"
            taken.add(value.name)
    try:
        yield
    finally:
        for value, name in renamed:
            value.name = name


@contextmanager
def light(model: ir.Model) -> Iterator[None]:
    """Let the large initializers of a model be inputs in the block: their data is not written."""
    graph = model.graph
    own = len(graph.inputs)
    large = [
        value
        for value in graph.initializers.values()
        if value.const_value is None or facts.byte_count(value.const_value) > _SMALL
    ]
    for value in large:
        del graph.initializers[str(value.name)]
        if not value.is_graph_input():
            graph.inputs.append(value)
    try:
        yield
    finally:
        while len(graph.inputs) > own:
            graph.inputs.pop()  # a deleted slice would still count as inputs
        for value in large:
            graph.initializers.add(value)
