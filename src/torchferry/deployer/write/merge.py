"""One decoder of two graphs: a step, and the keys and values of the encoder's states.

optimum and transformers.js run one graph for the first token and for all others, and say with
``use_cache_branch`` which it is. Their own exporter puts the whole decoder into both branches;
here only what differs is in a branch: keys and values of the encoder's states
are computed once.
"""

from __future__ import annotations

import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.values.signature import SIGNATURE_KEY

__all__ = ["CROSS", "merge_decoder", "rename_sizes", "split_for_genai"]

CROSS = ".encoder."
"""Part of the names of keys and values of the encoder's states."""
_FLAG, _STATES = "use_cache_branch", "encoder_hidden_states"
_BRANCH = "cross_attention_states"
_PAST, _PRESENT = "past_key_values.", "present."


def merge_decoder(step: ir.Model, cross: ir.Model) -> ir.Model:
    """The decoder that the runtimes call ``decoder_model_merged``.

    Args:
        step: takes tokens and all keys and values; gets the branch, in place.
        cross: takes ``encoder_hidden_states``; loses its nodes.

    Returns: the first, which also takes ``encoder_hidden_states`` and ``use_cache_branch``; if
        that is false, ``past_key_values.N.encoder`` is not looked at.

    Raises:
        UsageError: the graphs are of different opsets.
    """
    _check(step, cross)
    graph, inner = step.graph, cross.graph
    states = inner.inputs[0]
    outputs = list(inner.outputs)
    flag = ir.Value(name=_FLAG, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([1]))
    _absorb(graph, cross)
    inner.inputs.clear()
    graph.inputs.extend([states, flag])
    past = {str(value.name): value for value in graph.inputs}
    held = [past[str(out.name).replace(_PRESENT, _PAST, 1)] for out in outputs]
    copies = [ir.node("Identity", [value]) for value in held]
    for out, copy in zip(outputs, copies, strict=True):
        copy.outputs[0].name = f"held.{out.name}"
    kept = ir.Graph([], [copy.outputs[0] for copy in copies], nodes=copies, name="held")
    made = [ir.Value(name=out.name, type=out.type, shape=out.shape) for out in outputs]
    for out in outputs:
        out.name = f"computed.{out.name}"
    for value, of_branch in zip(held, made, strict=True):
        ir.convenience.replace_all_uses_with(value, of_branch)
    for copy, value in zip(copies, held, strict=True):
        copy.replace_input_with(0, value)
        value.shape = _with_length(value.shape, "past_encoder_sequence_length")
    branch = ir.Node(
        "", "If", [flag],
        [ir.AttrGraph("then_branch", kept), ir.AttrGraph("else_branch", inner)],
        outputs=made, name=_BRANCH,
    )  # fmt: skip
    graph.insert_before(graph[0], branch)
    graph.outputs.extend(made)
    step.metadata_props.pop(SIGNATURE_KEY, None)  # it is that of a step
    return step


def split_for_genai(encoder: ir.Model, decoder: ir.Model) -> None:
    """Give keys and values of the encoder's states to the encoder, where genai looks for them.

    Args:
        encoder: returns them too afterwards; changed in place.
        decoder: of `merge_decoder`; takes nothing else of the encoder afterwards.

    Weights that lie in files beside the graphs stay there.
    """
    graph, target = decoder.graph, encoder.graph
    branch = next(node for node in graph if node.name == _BRANCH)
    inner = branch.attributes["else_branch"].as_graph()
    past = {str(value.name): value for value in graph.inputs}
    graph.outputs[:] = [value for value in graph.outputs if value not in branch.outputs]
    for value in branch.outputs:
        ir.convenience.replace_all_uses_with(
            value, past[str(value.name).replace(_PRESENT, _PAST, 1)]
        )
    names = [value.name for value in branch.outputs]
    nodes, outputs = list(inner), list(inner.outputs)
    inner.outputs.clear()
    inner.remove(nodes)
    graph.remove(branch, safe=True)
    states = past[_STATES]
    ir.convenience.replace_all_uses_with(states, target.outputs[0])
    for value in (states, past[_FLAG]):
        graph.inputs.remove(value)
    for value in dict.fromkeys(v for node in nodes for v in node.inputs if v is not None):
        if graph.initializers.get(str(value.name)) is value:
            del graph.initializers[str(value.name)]
            value.name = f"moved/{value.name}"
            target.register_initializer(value)
    for value in (out for node in nodes for out in node.outputs):
        value.name = f"moved/{value.name}"
    for name, value in zip(names, outputs, strict=True):
        value.name = name
    target.extend(nodes)
    target.outputs.extend(outputs)
    _narrow_input(target)
    encoder.metadata_props.pop(SIGNATURE_KEY, None)


def _narrow_input(graph: ir.Graph) -> None:
    """Take float16 again where the encoder does: genai makes its outputs of its inputs' type."""
    value = graph.inputs[0]
    for node in list(value.consumers()):
        if node.op_type == "Cast":
            ir.convenience.replace_all_uses_with(node.outputs[0], value)
            value.dtype = node.outputs[0].dtype or ir.DataType.FLOAT16
            graph.remove(node, safe=True)


def rename_sizes(graph: ir.Graph, names: dict[str, str]) -> None:
    """Give names of dimensions another name wherever they stand in shapes.

    Args:
        graph: changed in place.
        names: new names by old ones.
    """
    values = [*graph.inputs, *(out for node in graph.all_nodes() for out in node.outputs)]
    for value in values:
        if value.shape is not None:
            value.shape = ir.Shape([_renamed(size, names) for size in value.shape])


def _renamed(size: int | ir.SymbolicDim, names: dict[str, str]) -> int | str | None:
    text = size.value if isinstance(size, ir.SymbolicDim) else size
    if isinstance(text, str):
        for old, new in names.items():
            text = text.replace(old, new)
    return text


def _check(model: ir.Model, other: ir.Model) -> None:
    opsets = [one.opset_imports.get("", 0) for one in (model, other)]
    if opsets[0] != opsets[1] or model.functions or other.functions:
        raise UsageError(
            f"parts of one decoder have opsets {opsets[0]} and {opsets[1]}, or functions: export "
            "them with one --opset"
        )


def _absorb(graph: ir.Graph, other: ir.Model) -> None:
    """Take another graph's initializers, and give its values names that this one has not."""
    taken = {str(v.name) for v in [*graph.inputs, *graph.initializers.values()]}
    taken |= {str(out.name) for node in graph.all_nodes() for out in node.outputs}
    inner = other.graph
    for node in inner.all_nodes():
        node.name = f"cross/{node.name}" if node.name else None
        for out in node.outputs:
            if out.name in taken:
                out.name = f"cross/{out.name}"
    for value in list(inner.initializers.values()):
        del inner.initializers[str(value.name)]
        if value.name in taken:
            value.name = f"cross/{value.name}"
        graph.register_initializer(value)


def _with_length(shape: ir.Shape | None, name: str) -> ir.Shape | None:
    if shape is None:
        return None
    batch, heads, _, size = shape
    return ir.Shape([batch, heads, name, size])
