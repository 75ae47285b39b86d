"""Compute equal things once."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from typing import Any

import onnx_ir as ir

from torchferry.graph.subgraph import subgraphs
from torchferry.optimizer.facts import byte_count, constant
from torchferry.optimizer.pattern import COMMUTATIVE
from torchferry.optimizer.sizes import contents

__all__ = ["RANDOM", "merge_equal"]

RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators that make something else each time, even of equal inputs."""
Operators = Collection[ir.OperatorIdentifier]

_SMALL = 256  # bytes of a constant that is compared by content


def merge_equal(model: ir.Model) -> int:
    """Let the readers of equal values read the first of them.

    Equal are results of one operator with equal inputs and attributes, and vectors of sizes that
    are the same expressions (`torchferry.dims`), however they are computed. What nobody reads
    then is left for `remove_dead`.

    Args:
        model: is changed in place; also in subgraphs, where values from around count, and in
            functions.

    Returns:
        How many nodes lost their readers.
    """
    graphs: list[Iterable[ir.Node]] = [model.graph, *model.functions.values()]
    random = _random_functions(model)
    return sum(_merge(graph, {}, random) for graph in graphs)


def _random_functions(model: ir.Model) -> Operators:
    """The functions of a model that make something else each time, themselves or by others."""
    found: set[ir.OperatorIdentifier] = set()
    while True:
        more = {
            name
            for name, function in model.functions.items()
            if name not in found
            and any(
                n.op_type in RANDOM or n.op_identifier() in found for n in function.all_nodes()
            )
        }
        if not more:
            return found
        found |= more


def _merge(nodes: Iterable[ir.Node], seen: dict[Hashable, ir.Node], random: Operators) -> int:
    merged = 0
    for node in nodes:
        inner = list(subgraphs(node))
        for body in inner:
            merged += _merge(body, dict(seen), random)
        if inner or node.op_identifier() in random or not any(v.uses() for v in node.outputs):
            continue
        for key in _keys(node):
            first = seen.setdefault(key, node)
            if first is not node and _hand_over(node, first):
                merged += 1
                break
    return merged


def _hand_over(node: ir.Node, first: ir.Node) -> bool:
    """Let the readers of a node read an earlier one that is equal."""
    pairs = list(zip(node.outputs, first.outputs, strict=True))
    if any(old.is_graph_output() or old.dtype != new.dtype for old, new in pairs):
        return False
    for old, new in pairs:
        if new.shape is None or (old.shape is not None and _told(old) > _told(new)):
            new.shape = old.shape if not new.is_graph_output() else new.shape
        old.replace_all_uses_with(new)
    return True


def _told(value: ir.Value) -> int:
    """How many sizes of a value are known."""
    shape = value.shape
    return -1 if shape is None else sum(
        isinstance(size, int) or size.value is not None for size in shape
    )  # fmt: skip


def _keys(node: ir.Node) -> Iterable[Hashable]:
    """What two equal nodes have in common; none for what is another in every run."""
    if node.op_type in RANDOM or node.op_type == "Constant":
        return
    inputs: list[Any] = [_input(value) for value in node.inputs]
    if node.op_type in COMMUTATIVE and not node.domain:
        inputs.sort(key=hash)
    attributes = frozenset((name, _attribute(a)) for name, a in node.attributes.items())
    operator = (node.domain, node.op_type, node.overload)
    yield (operator, tuple(inputs), attributes, len(node.outputs))
    value = node.outputs[0]
    if len(node.outputs) == 1 and value.shape is not None and len(value.shape) <= 1:
        sizes = contents(value)
        if sizes is not None:
            yield ("sizes", value.dtype, len(value.shape), sizes)


def _input(value: ir.Value | None) -> Hashable:
    tensor = constant(value)
    if tensor is None or byte_count(tensor) > _SMALL:
        return value
    return (tensor.dtype, tuple(tensor.shape.numpy()), tensor.tobytes())


def _attribute(attribute: ir.Attr) -> Hashable:
    if attribute.is_ref():
        return ("of the function", attribute.ref_attr_name)
    value = attribute.value
    if attribute.type == ir.AttributeType.TENSOR:
        strings = value.dtype == ir.DataType.STRING
        content = tuple(value.numpy().ravel().tolist()) if strings else value.tobytes()
        return (value.dtype, tuple(value.shape.numpy()), content)
    return tuple(value) if isinstance(value, (list, tuple)) else str(value)
