"""Which nodes the installed onnxruntime cannot run for want of a kernel."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir
import onnxruntime

from torchferry.seams.ort import ort_errors

__all__ = ["nodes_without_kernel"]

_Key = tuple[str, str, int, tuple[ir.DataType | None, ...], tuple[ir.DataType | None, ...]]


def nodes_without_kernel(model: ir.Model, dtype: ir.DataType) -> list[ir.Node]:
    """The nodes that read or write ``dtype`` and that onnxruntime's CPU provider refuses.

    Each kind of node (operator and element types) is asked for once, as a model of one node; the
    weights are not touched. Nodes with subgraphs are taken to be fine, their inner nodes are
    looked at.

    Args:
        model: every value that matters must know its element type.
        dtype: the element type in question, for instance ``BFLOAT16``.
    """
    answers: dict[_Key, bool] = {}
    missing = []
    for node in model.graph.all_nodes():
        types = {value.dtype for value in [*node.inputs, *node.outputs] if value is not None}
        if dtype not in types or any(_is_graph(a) for a in node.attributes.values()):
            continue
        version = model.opset_imports.get(node.domain, 1)
        key = (node.domain, node.op_type, version, _types(node.inputs), _types(node.outputs))
        if key not in answers:
            answers[key] = _lacks_kernel(node, model)
        if answers[key]:
            missing.append(node)
    return missing


def _lacks_kernel(node: ir.Node, model: ir.Model) -> bool:
    """Whether onnxruntime refuses a model of this node alone for its types.

    It says NOT_IMPLEMENTED, or that the operator's definition has no such type (Conv before
    opset 22 has no bfloat16).
    """
    inputs = [
        None if value is None else ir.Value(name=f"in_{i}", type=value.type)
        for i, value in enumerate(node.inputs)
    ]
    alone = ir.node(
        node.op_type,
        inputs,
        {name: value.value for name, value in node.attributes.items()},
        domain=node.domain,
        outputs=[ir.Value(name=f"out_{i}", type=v.type) for i, v in enumerate(node.outputs)],
    )
    graph = ir.Graph(
        [value for value in inputs if value is not None],
        list(alone.outputs),
        nodes=[alone],
        opset_imports=dict(model.opset_imports),
        name="kernel",
    )
    content = ir.to_proto(ir.Model(graph, ir_version=model.ir_version)).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # Otherwise onnxruntime may replace the node before it looks for its kernel.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except ort_errors() as error:
        # Any other reason is one that the whole model will tell better.
        unknown = type(error).__name__ == "NotImplemented"
        return unknown or "Type Error: Type 'tensor(" in str(error)
    return False


def _types(values: Iterable[ir.Value | None]) -> tuple[ir.DataType | None, ...]:
    return tuple(None if value is None else value.dtype for value in values)


def _is_graph(attribute: ir.Attr) -> bool:
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
