"""Constant nodes into initializers."""

from __future__ import annotations

import onnx_ir as ir

from torchferry.optimizer.facts import constant

__all__ = ["lift_constants"]


def lift_constants(model: ir.Model) -> int:
    """``Constant``  →  an initializer of the same name, in the graph of a model.

    Those of subgraphs and functions stay, and so do outputs of the graph.

    Returns:
        How many there were.
    """
    lifted = 0
    for node in list(model.graph):
        if node.op_type != "Constant" or node.domain or node.outputs[0].is_graph_output():
            continue
        value = node.outputs[0]
        tensor = constant(value)
        if tensor is None or not value.name:
            continue
        name, value.name = value.name, None
        new = ir.Value(
            name=name,
            type=ir.TensorType(tensor.dtype),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        value.replace_all_uses_with(new)
        model.graph.remove(node, safe=True)
        model.graph.register_initializer(new)
        lifted += 1
    return lifted
