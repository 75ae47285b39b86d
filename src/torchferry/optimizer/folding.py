"""Compute once what is the same in every run."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from torchferry.optimizer.block import Block
from torchferry.optimizer.equal import RANDOM
from torchferry.optimizer.facts import (
    attribute,
    axes_of,
    byte_count,
    constant,
    ints,
    rank,
    shape,
    tensor_of,
)
from torchferry.optimizer.pattern import Ops
from torchferry.optimizer.rule import Declined, Rule, require
from torchferry.optimizer.sizes import INTEGERS, contents

__all__ = ["VIEWS", "ConstantSize", "Fold", "compute", "computed", "fold"]

_MOST = 2**20  # bytes that go into a computation, or come out of it
_SMALL = 2**12, 2**16  # bytes of constants that may grow, and of what they may become
_UNSTORED = "torchferry.unstored"  # of the metadata of a value: its content
# Of some, onnxruntime and the reference that folds here have other notions in corner cases.
_NEVER = RANDOM | {
    "Attention",
    "Constant",
    "DequantizeLinear",
    "DynamicQuantizeLinear",
    "Identity",
    "LRN",
    "LpNormalization",
    "MaxUnpool",
    "Optional",
    "QuantizeLinear",
    "Resize",
    "SequenceConstruct",
    "SequenceEmpty",
    "SplitToSequence",
}
_SINCE = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "BatchNormalization": 15, "RoiAlign": 16}
"""From which opset on the reference computes what an operator means."""
_BODIES = frozenset({"body", "else_branch", "then_branch"})
_GROWING = frozenset({"ConstantOfShape", "EyeLike", "Expand", "OneHot", "Pad", "Range", "Tile"})
# What onnx's evaluator raises, from numpy or its own checks, where it cannot compute a node.
_FAILURES = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip


class Fold(Rule):
    """a node of constants  →  a constant

    Weights are not computed with, but those that are only laid out otherwise become views. What
    takes more bytes than the constants that are not needed any longer is not stored; nodes that
    read it are computed all the same, as they may make it small again.
    """

    since = 1

    def __init__(self, op_types: Collection[str] | None = None) -> None:
        self.op_types = op_types

    def pattern(self, p: Ops) -> Any:
        """Any node."""
        return p.any_node("node")

    def starts(self, node: ir.Node) -> bool:
        """Whether every input is constant, or computed from constants."""
        return all(v is None or computed(v) is not None for v in node.inputs)

    def check(self, node: ir.Node) -> None:
        """Decline what is not fixed, or large."""
        require(node.domain == "" and node.op_type not in _NEVER, f"{node.op_type} stays")
        require(self.op_types is None or node.op_type in self.op_types, "not asked for")
        require(
            not any(a.is_ref() or a.type in _GRAPHS for a in node.attributes.values()),
            "it has subgraphs, or attributes of the function around it",
        )
        strings = any(value is not None and value.dtype == ir.DataType.STRING
                      for value in (*node.inputs, *node.outputs))  # fmt: skip
        require(not strings, "strings stay")
        if node.op_type not in VIEWS:
            _check_sizes(node)

    def rewrite(self, b: Block, node: ir.Node) -> Any:
        """The results."""
        known = [v.meta[_UNSTORED] for v in node.outputs if _UNSTORED in v.meta]
        tensors = known or fold(node, b.opset)
        if not _is_smaller(node, tensors):
            for value, tensor in zip(node.outputs, tensors, strict=True):
                value.meta[_UNSTORED] = tensor
            raise Declined("the result takes more bytes than what it is made of")
        return [b.constant(tensor) for tensor in tensors]


class ConstantSize(Rule):
    """arithmetic of sizes that is a number whatever the inputs are  →  a constant"""

    since = 1

    def pattern(self, p: Ops) -> Any:
        """Any node that makes integers."""
        return p.any_node("node")

    def starts(self, node: ir.Node) -> bool:
        """Whether it makes integers that are numbers."""
        value = node.outputs[0]
        if value.dtype not in INTEGERS or value.shape is None or node.op_type == "Constant":
            return False
        sizes = contents(value)
        return sizes is not None and all(isinstance(size, int) for size in sizes)

    def rewrite(self, b: Block, node: ir.Node) -> Any:
        """The number or numbers."""
        value = node.outputs[0]
        found = list(contents(value) or ())
        return b.constant(found if rank(value) else found[0], value)


def compute(value: ir.Value | None, opset: int) -> ir.TensorProtocol:
    """The tensor of a value that is the same in every run, however large.

    Raises:
        Declined: it depends on an input, or cannot be computed here.
    """
    known = computed(value)
    if known is not None or value is None:
        return tensor_of(value) if known is None else known
    node = value.producer()
    if node is None or node.domain or node.op_type in _NEVER or node.attributes.keys() & _BODIES:
        raise Declined(f"{value.name} is not computed of constants")
    for item in node.inputs:
        if item is not None:
            compute(item, opset)
    for output, tensor in zip(node.outputs, fold(node, opset, most=math.inf), strict=True):
        output.meta[_UNSTORED] = tensor
    return compute(value, opset)


def fold(node: ir.Node, opset: int, *, most: float = _MOST) -> list[ir.TensorProtocol]:
    """The outputs of a node of constants, of at most so many bytes each.

    Raises:
        Declined: it cannot be computed here, or makes something large.
    """
    if node.op_type in VIEWS:
        tensor = _content(node.inputs[0])
        content = VIEWS[node.op_type](tensor.numpy(), node)
        return [ir.Tensor(content, dtype=tensor.dtype, name=_name_of_view(node))]
    require(opset >= _SINCE.get(node.op_type, 1), f"{node.op_type} meant something else")
    graph = onnx.helper.make_graph(
        [ir.to_proto(node)],
        "fold",
        [onnx.helper.make_value_info(str(v.name), onnx.TypeProto()) for v in node.inputs if v],
        [onnx.helper.make_value_info(str(v.name), onnx.TypeProto()) for v in node.outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    feeds = {str(v.name): _content(v).numpy() for v in node.inputs if v}
    try:
        with np.errstate(all="ignore"):
            results = ReferenceEvaluator(model).run(None, feeds)
    except _FAILURES as error:
        raise Declined(f"{node.op_type} cannot be computed here: {error}") from error
    return [_tensor(v, result, most) for v, result in zip(node.outputs, results, strict=True)]


def _tensor(value: ir.Value, result: Any, most: float) -> ir.TensorProtocol:
    plain = value.type is None or isinstance(value.type, ir.TensorType)
    if not plain or not isinstance(result, (np.ndarray, np.generic)):
        raise Declined("the result is no tensor")
    content = np.asarray(result)
    require(content.dtype.kind in "biufcV", "strings stay")
    require(content.nbytes <= most, "the result is large")
    tensor = ir.tensor(content)
    require(value.dtype in (None, tensor.dtype), "the result has another type than is declared")
    return tensor


_GRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _check_sizes(node: ir.Node) -> None:
    tensors = [tensor for v in node.inputs if (tensor := computed(v)) is not None]
    require(sum(map(byte_count, tensors)) <= _MOST, "its inputs are large")
    if node.op_type in _GROWING:
        sizes = [size if isinstance(size, int) else _MOST for size in shape(node.outputs[0])]
        require(math.prod(sizes) * 8 <= _MOST, "the result is large, or how large is not known")


# What a result replaces ------------------------------------------------------------------------


def computed(value: ir.Value | None) -> ir.TensorProtocol | None:
    """The tensor of a value that is the same in every run, even if no file is to hold it."""
    tensor: ir.TensorProtocol | None = constant(value)
    return value.meta.get(_UNSTORED) if tensor is None and value is not None else tensor


def _content(value: ir.Value | None) -> ir.TensorProtocol:
    tensor = computed(value)
    return tensor_of(value) if tensor is None else tensor


def _is_smaller(node: ir.Node, tensors: Collection[ir.TensorProtocol]) -> bool:
    """Whether the results of a node take no more bytes than the constants that they replace.

    Those of small constants may take some more.
    """
    size, (before, after) = sum(map(byte_count, tensors)), _SMALL
    behind, sources = _behind(node)
    if size <= after and sum(map(byte_count, sources.values())) <= before:
        return True
    gone = {node}
    for _ in behind:  # a node goes with the last that reads it
        gone |= {maker for maker in behind if all(_is_unread(v, gone) for v in maker.outputs)}
    return size <= sum(byte_count(tensor) for v, tensor in sources.items() if _is_unread(v, gone))


def _behind(node: ir.Node) -> tuple[list[ir.Node], dict[ir.Value, ir.TensorProtocol]]:
    """The nodes that a computed node needs, itself included, and the constants that they read."""
    behind, sources, values = [node], dict[ir.Value, ir.TensorProtocol](), list(node.inputs)
    while values:
        value = values.pop()
        maker = None if value is None else value.producer()
        if value is not None and (tensor := constant(value)) is not None:
            sources[value] = tensor
        elif maker is not None and maker not in behind:
            behind.append(maker)
            values += maker.inputs
    return behind, sources


def _is_unread(value: ir.Value, without: Collection[ir.Node]) -> bool:
    return not value.is_graph_output() and all(user in without for user in value.consumers())


# What only lays data out otherwise -------------------------------------------------------------


def _transpose(content: np.ndarray[Any, Any], node: ir.Node) -> np.ndarray[Any, Any]:
    return content.transpose(attribute(node, "perm"))


def _reshape(content: np.ndarray[Any, Any], node: ir.Node) -> np.ndarray[Any, Any]:
    wanted = ints(node.inputs[1])
    if not attribute(node, "allowzero", 0):
        wanted = [content.shape[i] if size == 0 else size for i, size in enumerate(wanted)]
    return _view(content, content.reshape(wanted))


def _squeeze(content: np.ndarray[Any, Any], node: ir.Node) -> np.ndarray[Any, Any]:
    if "axes" in node.attributes or len(node.inputs) == 1:
        axes = attribute(node, "axes")
        return content.squeeze(tuple(axes) if axes else None)
    return content.squeeze(tuple(axes_of(node.inputs[1], content.ndim)))


def _unsqueeze(content: np.ndarray[Any, Any], node: ir.Node) -> np.ndarray[Any, Any]:
    given = attribute(node, "axes")
    axes = ints(node.inputs[1]) if given is None else given
    return np.expand_dims(content, tuple(axes))


def _name_of_view(node: ir.Node) -> str | None:
    """What another layout of a weight is called: after the weight."""
    source = node.inputs[0]
    if source is None or source.producer() is not None:
        return None
    return f"{source.name}.T" if node.op_type == "Transpose" else f"{source.name}.view"


def _view(content: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Raises `Declined` when a large array had to be copied."""
    require(other.nbytes <= _MOST or np.may_share_memory(content, other), "it would be copied")
    return other


VIEWS: dict[str, Callable[[np.ndarray[Any, Any], ir.Node], np.ndarray[Any, Any]]] = {
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
"""Operators that only lay data out otherwise, and how each does of an array."""
