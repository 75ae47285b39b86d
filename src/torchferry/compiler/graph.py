"""A functional ATen graph as an ONNX graph, and how its inputs and outputs meet the arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes.common import NameFixPass, RemoveUnusedNodesPass
from torch import fx

from torchferry.compiler.program import Feed, Result
from torchferry.converter.block import Block
from torchferry.converter.driver import Scope
from torchferry.converter.translate import register_initializers
from torchferry.converter.weight import weight_value
from torchferry.converter.write.size import Sizes, expression
from torchferry.errors import ConversionError

__all__ = ["Translated", "is_dense", "memory_axes", "source", "translate"]

_IR_LEAST = 10
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
# What these return is the tensor they are given.
_SAME = {torch.ops.aten.detach.default, torch.ops.aten.alias.default}


@dataclass(frozen=True)
class Translated:
    """An ONNX model of a graph.

    Attributes:
        model: its inputs are those of ``feeds``, in order.
        feeds: one for each graph input.
        results: one for each result of the FX graph.
    """

    model: ir.Model
    feeds: tuple[Feed, ...]
    results: tuple[Result, ...]


def translate(
    module: fx.GraphModule, opset: int, frozen: Mapping[int, torch.Tensor] | None = None
) -> Translated:
    """Write a graph of ATen operators in ONNX.

    Args:
        module: nothing in it is written in place; ``meta["val"]`` of each node is known.
        opset: ONNX operator set.
        frozen: arguments, by position, that become weights of the model; they are not copied.

    Raises:
        LoweringFailed: one operator cannot be written; names the FX node.
        ConversionError: an argument or a result is nothing that ONNX has.
    """
    block, sizes = Block(opset), Sizes()
    scope = Scope(block, sizes, root=module)
    feeds = list(_bound(module.graph, scope, frozen or {}))
    returned = scope.walk(module.graph)
    outputs = _Outputs(block)
    placeholders = module.graph.find_nodes(op="placeholder")
    items = module.graph.output_node().args[0]
    nodes = items if isinstance(items, (list, tuple)) else [items]
    results = tuple(
        outputs.result(node, value, placeholders)
        for node, value in zip(nodes, returned, strict=True)
    )
    graph = ir.Graph(
        [value for _, value in feeds],
        outputs.values,
        nodes=block.nodes,
        opset_imports=dict(block.domains),
        name="main",
    )
    needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    model = ir.Model(graph, ir_version=max(_IR_LEAST, needed), producer_name="torchferry")
    RemoveUnusedNodesPass()(model)
    register_initializers(model)
    for index, value in enumerate(graph.outputs):
        value.name = f"output_{index}"
    NameFixPass()(model)
    return Translated(model, _used(model, [feed for feed, _ in feeds]), results)


def source(node: fx.Node) -> fx.Node:
    """The node whose result another one hands on."""
    while node.target in _SAME:
        (viewed,) = node.all_input_nodes
        node = viewed
    return node


def memory_axes(example: torch.Tensor) -> tuple[int, ...] | None:
    """The axes of a tensor from the slowest in memory to the fastest.

    Returns:
        ``None`` when that is their order, or when no order of axes makes the tensor contiguous.
    """
    shape = _hints(example.shape)
    order = _order(example)
    if order is None or shape is None:
        return None
    long = [axis for axis in order if shape[axis] != 1]
    return None if long == sorted(long) else tuple(order)


def is_dense(example: torch.Tensor) -> bool:
    """Whether some order of its axes makes a tensor contiguous; an empty one always is."""
    return 0 in (_hints(example.shape) or ()) or _order(example) is not None


def _order(example: torch.Tensor) -> list[int] | None:
    shape, strides = _hints(example.shape), _hints(example.stride())
    if shape is None or strides is None:
        return None
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    expected = 1
    for axis in reversed(order):
        if shape[axis] < 2:
            continue
        if strides[axis] != expected:
            return None
        expected *= shape[axis]
    return order


def _hints(sizes: Sequence[Any]) -> list[int] | None:
    """The sizes of the example that was traced; no guard is made."""
    found = [size.node.hint if isinstance(size, torch.SymInt) else size for size in sizes]
    return found if all(isinstance(size, int) for size in found) else None


def _bound(
    graph: fx.Graph, scope: Scope, frozen: Mapping[int, torch.Tensor]
) -> Iterator[tuple[Feed, ir.Value]]:
    """Bind every placeholder; yield those that are inputs of the ONNX graph."""
    placeholders = list(enumerate(graph.find_nodes(op="placeholder")))
    known: set[str] = set()
    for position, node in placeholders:
        example = node.meta.get("val")
        if not isinstance(example, torch.Tensor):
            continue
        if position in frozen:
            shared = len(node.users) > 1
            scope.bind(node, weight_value(frozen[position], node.name, shared=shared))
            continue
        _check_plain(node, example)
        yield Feed(node.name, position), scope.input(node)
        known.update(str(expression(size)) for size in example.shape)
    for position, node in placeholders:
        example = node.meta.get("val")
        if isinstance(example, torch.Tensor):
            continue
        if isinstance(example, torch.SymInt) and str(expression(example)) not in known:
            value = ir.Value(
                name=node.name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1])
            )
            scope.bind(node, value)
            yield Feed(node.name, position, size=True), value
        elif isinstance(example, (torch.SymInt, bool, int, float)) or example is None:
            scope.bind(node, example)
        else:
            raise ConversionError(
                f"argument {node.name} is a {type(example).__name__}, and ONNX has tensors only",
                node=node.name,
            )


def _check_plain(node: fx.Node, example: torch.Tensor) -> None:
    strange = ""
    if example.is_complex():
        strange = "complex"
    elif example.layout is not torch.strided:
        strange = str(example.layout).removeprefix("torch.")
    elif example.is_neg():
        strange = "a view of a complex tensor"
    if strange:
        raise ConversionError(
            f"argument {node.name} is {strange}, and onnxruntime takes plain tensors only",
            node=node.name,
        )


class _Outputs:
    """The outputs of the ONNX graph, and what each result of the FX graph is of them."""

    def __init__(self, block: Block) -> None:
        self.values: list[ir.Value] = []
        self._block = block
        self._known: dict[fx.Node, Result] = {}

    def result(self, node: Any, value: Any, placeholders: Sequence[fx.Node]) -> Result:
        if not isinstance(node, fx.Node):
            return Result(constant=node)
        node = source(node)
        if node in self._known:
            return self._known[node]
        example = node.meta.get("val")
        if node.op == "placeholder":
            made = Result(argument=placeholders.index(node))
        elif isinstance(example, torch.Tensor):
            if example.is_complex():
                raise ConversionError(f"result {node.name} is complex", node=node.name)
            made = self._tensor(value, memory_axes(example))
        elif isinstance(value, ir.Value):
            made = Result(output=self._add(value), number=True)
        elif isinstance(example, _SYMBOLIC) or value is None or isinstance(value, (int, float)):
            made = Result(constant=value)
        else:
            raise ConversionError(
                f"result {node.name} is a {type(value).__name__}, and ONNX has tensors only",
                node=node.name,
            )
        self._known[node] = made
        return made

    def _tensor(self, value: Any, axes: tuple[int, ...] | None) -> Result:
        if axes is None:
            return Result(output=self._add(value))
        turned = self._block.Transpose(value, perm=list(axes))
        back = tuple(axes.index(axis) for axis in range(len(axes)))
        return Result(output=self._add(turned), axes=back)

    def _add(self, value: ir.Value) -> int:
        # One value for two results would be one memory, where PyTorch has two.
        if value.producer() is None or any(value is known for known in self.values):
            copied: ir.Value = self._block.Identity(value)
            copied.shape = value.shape
            value = copied
        self.values.append(value)
        return len(self.values) - 1


def _used(model: ir.Model, feeds: list[Feed]) -> tuple[Feed, ...]:
    """Drop the inputs that nothing reads."""
    kept = []
    values = list(model.graph.inputs)
    model.graph.inputs.clear()
    for feed, value in zip(feeds, values, strict=True):
        if value.uses():
            model.graph.inputs.append(value)
            kept.append(Feed(value.name or feed.name, feed.position, feed.size))
    return tuple(kept)
