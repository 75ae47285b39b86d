"""The branches of an ONNX model that are taken on some inputs, in the place of its If nodes.

What stands inside an If has no counterpart outside: a file of optimum for decoders has all of the
model twice in one, for the first step and for the others. In the place of the If, the branch that
is taken is compared like any other nodes.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
import torch

from torchferry.comparer.align.provenance import FX_KEY
from torchferry.comparer.run.piece import ort_value
from torchferry.comparer.run.trace import trace_onnx
from torchferry.errors import RunError

__all__ = ["with_branches_taken"]

_NAMED = 3  # of so many it is told which branch was taken


def with_branches_taken(
    model: ir.Model, feeds: Mapping[str, torch.Tensor]
) -> tuple[ir.Model, tuple[str, ...]]:
    """A model without the If nodes of its graph, those in branches that are taken among them.

    Values keep their names; one that is in use already is called after its If too.

    Args:
        model: left as it is.
        feeds: its inputs.

    Returns:
        The model, itself where there is nothing to do, and which branches were taken. What cannot
        be run stays as it is.
    """
    told: list[str] = []
    made = model
    while choices := [node for node in made.graph if node.op_type == "If" and not node.domain]:
        try:
            conditions = _conditions(made, choices, feeds)
        except RunError:
            break  # the walk tells which node fails
        if made is model:
            made = model.clone()
            choices = [node for node in made.graph if node.op_type == "If" and not node.domain]
        for node in choices:
            chosen = node.inputs[0] is not None and conditions[str(node.inputs[0].name)]
            branch = "then_branch" if chosen else "else_branch"
            _inline(made.graph, node, node.attributes[branch].as_graph())
            told.append(f"If {node.name}: its {branch} is what is taken on these inputs")
    return made, tuple(told[:_NAMED])


def _conditions(
    model: ir.Model, choices: list[ir.Node], feeds: Mapping[str, torch.Tensor]
) -> dict[str, bool]:
    """The conditions of If nodes by name: inputs, weights, or what nodes compute.

    Raises:
        RunError: onnxruntime fails.
    """
    values = [node.inputs[0] for node in choices if node.inputs[0] is not None]
    found = {str(v.name): v.const_value.numpy() for v in values if v.const_value is not None}
    found |= {str(v.name): feeds[str(v.name)].numpy() for v in values if v.name in feeds}
    wanted = {str(value.name) for value in values if value is not None} - found.keys()
    given = {name: ort_value(tensor) for name, tensor in feeds.items()}
    for name, tensor in trace_onnx(model, given, wanted=wanted) if wanted else ():
        found[name] = tensor.numpy()
        if wanted <= found.keys():
            break
    if not wanted <= found.keys():
        raise RunError(f"nothing makes {', '.join(sorted(wanted - found.keys()))}")
    return {name: bool(array.item()) for name, array in found.items()}


def _inline(graph: ir.Graph, node: ir.Node, branch: ir.Graph) -> None:
    """Put the nodes of a branch in the place of its If."""
    taken = set(graph.initializers) | {str(value.name) for value in graph.inputs}
    taken |= {str(value.name) for one in graph for value in one.outputs}
    names = {str(one.name) for one in graph}
    outputs, nodes = list(branch.outputs), list(branch)
    branch.outputs.clear()
    for weight in list(branch.initializers.values()):
        branch.initializers.pop(str(weight.name))
        weight.name = _free(str(weight.name), node, taken)
        graph.register_initializer(weight)
    branch.remove(nodes)
    for one in nodes:
        one.metadata_props.pop(FX_KEY, None)  # of a graph of its own, which counts from 0 again
        one.name = _free(one.name, node, names) if one.name else one.name
        for value in one.outputs:
            value.name = _free(str(value.name), node, taken) if value.name else value.name
    ends = [ir.node("Identity", [v], name=f"{node.name}_{i}") for i, v in enumerate(outputs)]
    graph.insert_before(node, [*nodes, *ends])
    for value, end in zip(node.outputs, ends, strict=True):
        end.metadata_props.update(node.metadata_props)
        (made,) = end.outputs
        made.type, made.shape = value.type, value.shape
        ir.convenience.replace_all_uses_with(value, made, replace_graph_outputs=True)
        made.name, value.name = value.name, None
    graph.remove(node, safe=True)


def _free(name: str, node: ir.Node, taken: set[str]) -> str:
    """The name, with that of the If before it where it is in use; it is from then on."""
    while name in taken:
        name = f"{node.name}/{name}"
    taken.add(name)
    return name
