"""Convolutions in int8 with ranges that were recorded: QuantizeLinear and DequantizeLinear.

onnxruntime makes one kernel, QLinearConv, of a convolution whose operands and result are written
so when it loads the model, with the Relu behind it. Why codes of weights are unsigned: see
`dynamic`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.dynamic import ZERO, round_rows
from torchferry.quantizer.grid import Array, ranges
from torchferry.quantizer.linears import LEAST
from torchferry.quantizer.scratch import Scratch

__all__ = ["Convolution", "Range", "find_convolutions", "quantize_convolutions"]

_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Range:
    """What a value was seen to be.

    Attributes:
        low: the least number.
        high: the largest.
        power: the mean square, of small channels rather than of large ones.
    """

    low: float
    high: float
    power: float

    @property
    def grid(self) -> tuple[Array, Array]:
        """Scale (float32) and zero point (uint8) of the grid that holds it, and 0."""
        scale, zero = ranges(np.array([self.low]), np.array([self.high]), 8)
        return scale[0], zero[0].astype(np.uint8)

    @property
    def noise(self) -> float:
        """The mean square error of that grid, relative to the mean square."""
        return float(self.grid[0]) ** 2 / 12 / max(self.power, _TINY)


@dataclass(frozen=True)
class Convolution:
    """A convolution with a constant weight.

    Attributes:
        node: the Conv.
        weight: the initializer (outputs, inputs / groups, …), float32.
        end: its result, behind a BatchNormalization and a Relu if these alone read it.
        norm: the BatchNormalization, which becomes part of the weight.
    """

    node: ir.Node
    weight: ir.Value
    end: ir.Value
    norm: ir.Node | None = None

    @property
    def name(self) -> str:
        """Of the weight."""
        return str(self.weight.name)

    @property
    def values(self) -> tuple[str, str]:
        """Names of what it reads and of its result, whose ranges are needed."""
        return str(self.node.inputs[0] and self.node.inputs[0].name), str(self.end.name)

    def content(self) -> tuple[Array, Array | None]:
        """The weight and the bias, with the BatchNormalization in them; float32."""
        weight = _content(self.weight)
        before = self.node.inputs[2] if len(self.node.inputs) > 2 else None
        bias = None if before is None else _content(before)
        if self.norm is None:
            return weight, bias
        factor, shift, mean, variance = map(_content, filter(None, self.norm.inputs[1:]))
        factor = factor / np.sqrt(variance + self.norm.attributes.get_float("epsilon", 1e-5))
        weight = weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
        bias = ((0 if bias is None else bias) - mean) * factor + shift
        return weight.astype(np.float32), bias.astype(np.float32)

    def rounded(self) -> tuple[Array, Array]:
        """uint8 codes as the weight's shape is, and a scale for each output."""
        content, _ = self.content()
        codes, scales = round_rows(content.reshape(len(content), -1))
        return codes.reshape(content.shape), scales

    def noise(self, seen: Mapping[str, Range]) -> float:
        """What 8 bits add here alone: mean square error relative to the mean square."""
        content, _ = self.content()
        codes, scales = self.rounded()
        values = (codes.astype(np.float32) - ZERO).reshape(len(codes), -1) * scales[:, None]
        error = np.square(values - content.reshape(len(codes), -1)).sum()
        own = float(error / max(float(np.square(content).sum()), _TINY))
        return own + sum(seen[name].noise for name in self.values)


def find_convolutions(graph: ir.Graph) -> Iterator[Convolution]:
    """The convolutions of a graph that can be stored in 8 bits; not those in subgraphs."""
    for node in graph:
        weight = node.inputs[1] if node.op_type == "Conv" and node.domain == "" else None
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        if weight is None or not _is_constant(weight) or not (bias is None or _is_constant(bias)):
            continue
        norm = _only_reader(node.outputs[0], "BatchNormalization")
        norm = norm if norm is not None and _is_affine(norm) else None
        end = (norm or node).outputs[0]
        relu = _only_reader(end, "Relu")
        end = end if relu is None else relu.outputs[0]
        if _content(weight).size >= LEAST and len(weight.uses()) == 1:
            yield Convolution(node, weight, end, norm)


def _only_reader(value: ir.Value, op_type: str) -> ir.Node | None:
    """The node that alone reads a value, if it is of this type."""
    readers = [use.node for use in value.uses() if use.node.op_type == op_type]
    alone = len(readers) == len(value.uses()) == 1 and not value.is_graph_output()
    return readers[0] if alone and readers[0].domain == "" else None


def _is_affine(norm: ir.Node) -> bool:
    """Whether a BatchNormalization only multiplies by constants and adds others."""
    plain = all(value is not None and _is_constant(value) for value in norm.inputs[1:])
    others = len(norm.outputs) > 1 or bool(norm.attributes.get_int("training_mode", 0))
    return plain and len(norm.inputs) == 5 and not others


def quantize_convolutions(
    graph: ir.Graph, chosen: Collection[Convolution], seen: Mapping[str, Range], scratch: Scratch
) -> dict[str, int]:
    """Write convolutions in 8 bits, in place.

    Args:
        graph: of the model.
        chosen: which of its convolutions.
        seen: of each value that they read or give, by name.
        scratch: gets the tensors.

    Returns: bits of each weight, by name.
    """
    chosen = [_fold(graph, one) for one in chosen]
    names = {one.end: one.values for one in chosen}
    rounded: dict[ir.Value, ir.Value] = {}
    for end, (_, name) in names.items():
        after = _round(graph, end, seen[name])
        readers = [use for use in end.uses() if use.node is not _maker(_maker(after).inputs[0])]
        for use in readers:
            use.node.replace_input_with(use.idx, after)
        rounded[end] = rounded[after] = after
    for one in chosen:
        x, (name, _) = one.node.inputs[0], names[one.end]
        if x is None:  # a Conv has one
            raise AssertionError
        if x not in rounded:
            rounded[x] = _round(graph, x, seen[name])
        one.node.replace_input_with(0, rounded[x])
        _store_weight(graph, one, seen[name], scratch)
    return {one.name: 8 for one in chosen}


def _fold(graph: ir.Graph, one: Convolution) -> Convolution:
    """A convolution without the BatchNormalization behind it."""
    if one.norm is None:
        return one
    weight, bias = one.content()
    del graph.initializers[one.name]
    contents = ((one.name, weight), (f"{one.name}.shift", bias))
    values = [_constant(graph, name, x) for name, x in contents if x is not None]
    old = one.norm.outputs[0]
    before = one.node
    node = ir.node("Conv", [before.inputs[0], *values], before.attributes, name=before.name)
    graph.insert_before(before, node)
    result = node.outputs[0]
    result.name, result.type, result.shape = old.name, old.type, old.shape
    ir.convenience.replace_all_uses_with(old, result, replace_graph_outputs=True)
    graph.remove([one.norm, before], safe=True)
    return Convolution(node, values[0], result if one.end is old else one.end)


def _round(graph: ir.Graph, value: ir.Value, seen: Range) -> ir.Value:
    """A value on its grid, behind the node that makes it."""
    scale, zero = seen.grid
    grid = [
        _constant(graph, f"{value.name}.scale", scale),
        _constant(graph, f"{value.name}.zero", zero),
    ]
    down = ir.node("QuantizeLinear", [value, *grid])
    up = ir.node("DequantizeLinear", [down.outputs[0], *grid])
    up.outputs[0].type, up.outputs[0].shape = value.type, value.shape
    maker = value.producer()
    if maker is None:
        graph.insert_before(graph[0], [down, up])
    else:
        graph.insert_after(maker, [down, up])
    return up.outputs[0]


def _store_weight(graph: ir.Graph, one: Convolution, read: Range, scratch: Scratch) -> None:
    codes, scales = one.rounded()
    zeros = np.full(len(codes), ZERO, np.uint8)
    inputs = [scratch.store(f"{one.name}.codes", [codes])]
    inputs += [scratch.store(f"{one.name}.{n}", [x]) for n, x in
               (("scales", scales), ("zeros", zeros))]  # fmt: skip
    _read(graph, one.node, 1, inputs)
    bias = one.node.inputs[2] if len(one.node.inputs) > 2 else None
    if bias is not None:
        # The kernel adds it to the sums of products, which have this scale.
        steps = (scales * read.grid[0]).astype(np.float32)
        limit = np.iinfo(np.int32).max
        whole = np.clip(np.round(_content(bias) / steps), -limit, limit).astype(np.int32)
        name = f"{one.name}.bias"
        stored = [scratch.store(name, [whole]), scratch.store(f"{name}.scales", [steps])]
        _read(graph, one.node, 2, stored)


def _read(graph: ir.Graph, node: ir.Node, place: int, inputs: list[ir.Value]) -> None:
    """Let a node read an operand from its codes."""
    for value in inputs:
        graph.register_initializer(value)
    up = ir.node("DequantizeLinear", inputs, {"axis": 0})
    graph.insert_before(node, up)
    before = node.inputs[place]
    node.replace_input_with(place, up.outputs[0])
    if before is not None and not list(before.consumers()):
        del graph.initializers[str(before.name)]


def _constant(graph: ir.Graph, name: str, content: Array) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(content, name=name))
    graph.register_initializer(value)
    return value


def _maker(value: ir.Value | None) -> ir.Node:
    maker = None if value is None else value.producer()
    if maker is None:  # `_round` has just made it
        raise AssertionError
    return maker


def _is_constant(value: ir.Value) -> bool:
    tensor = value.const_value
    plain = value.is_initializer() and not (value.is_graph_input() or value.is_graph_output())
    return plain and tensor is not None and tensor.dtype == ir.DataType.FLOAT


def _content(value: ir.Value) -> Array:
    if value.const_value is None:  # _is_constant asked
        raise AssertionError
    content: Array = value.const_value.numpy()
    return content
