"""Pieces of an ONNX model, one a layer, and which of them are the same but for their weights.

Two layers are the same if the captured program has the same nodes for both, the ONNX model too,
each weight of the second is in the file what the program has there, in the form that the first
one's has, byte for byte, and both read and make values that stand for corresponding ones of the
program. What is not shown to be the same is run, so that nothing hangs on how well this looks.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from torch.export import ExportedProgram

from torchferry.comparer.align.provenance import layer_of, scopes_of
from torchferry.comparer.run.piece import weight_bytes
from torchferry.comparer.weigh.weight_form import Form, forms_of
from torchferry.graph.reference import Region
from torchferry.graph.subgraph import subgraphs
from torchferry.values.dtype import element_type

__all__ = ["Piece", "find_pieces"]

_LAYER = re.compile(r"(?:[^.]+\.)*?\d+(?=\.|$)")  # the path as far as its first number
_AT_ONCE = 2**30  # bytes of weights in a piece that is no layer
_SLICE = 2**22  # elements compared at once


@dataclass(frozen=True)
class Piece:
    """Consecutive nodes of an ONNX model.

    Attributes:
        nodes: in the model's order.
        layer: path of the layer that they are of; ``""`` of what lies around the layers.
        like: path of an earlier layer that is the same but for its weights; ``""`` if none is.
        weights: names of this layer's weights → of those that ``like`` has in their place.
        wrong: a weight that is not the program's, which keeps the layer from being the same.
    """

    nodes: tuple[ir.Node, ...]
    layer: str = ""
    like: str = ""
    weights: Mapping[str, str] = field(default_factory=dict, repr=False)
    wrong: str = ""

    @property
    def leaving(self) -> list[ir.Value]:
        """What other nodes read, or what the model returns."""
        inside = set(self.nodes)
        return [
            value
            for node in self.nodes
            for value in node.outputs
            if value.is_graph_output() or any(use.node not in inside for use in value.uses())
        ]


def find_pieces(
    graph: ir.Graph,
    program: ExportedProgram,
    names: Mapping[str, str],
    regions: Sequence[Region] = (),
) -> list[Piece]:
    """Cut a model into its layers and what lies around them, and find layers that are the same.

    Args:
        graph: of a model as it lies in its file.
        program: that it was made of, without in-place writes.
        names: of values and inputs of the graph → the program's names of what they stand for.
        regions: the files in which weights of the program lie, as they are mapped: a weight that
            the model has in the same place of the same file is not read.
    """
    alike = _Alike(program, names, regions)
    runs = [*_runs(graph)]
    counts = Counter(layer for layer, _ in runs)
    firsts: dict[int, list[Piece]] = defaultdict(list)
    found = []
    for layer, nodes in runs:
        piece = Piece(tuple(nodes), layer)
        if layer and counts[layer] == 1:  # a layer in several runs is the same as no other
            piece = alike.find(piece, firsts[len(nodes)])
            if not piece.like:
                firsts[len(nodes)].append(piece)
        found.append(piece)
    return found


def _runs(graph: ir.Graph) -> Iterator[tuple[str, list[ir.Node]]]:
    """Consecutive nodes of one layer, or of none, these with no more weights than fit."""
    nodes: list[ir.Node] = []
    layer, size = "", 0
    for node in graph:
        own = _layer(layer_of(node)) if scopes_of(node) else layer
        more = weight_bytes(node)
        if nodes and (own != layer or (not own and size + more > _AT_ONCE)):
            yield layer, nodes
            nodes, size = [], 0
        nodes.append(node)
        layer, size = own, size + more
    if nodes:
        yield layer, nodes


def _layer(path: str) -> str:
    found = _LAYER.match(path)
    return found[0] if found else ""


class _Alike:
    """Compares layers, each with its program's nodes."""

    def __init__(
        self, program: ExportedProgram, names: Mapping[str, str], regions: Sequence[Region]
    ) -> None:
        self._names, self._regions = names, regions
        held = {**program.state_dict, **program.constants}
        placed = program.graph.find_nodes(op="placeholder")
        self._targets = {
            node.name: str(spec.target)
            for node, spec in zip(placed, program.graph_signature.input_specs, strict=True)
            if isinstance(held.get(spec.target), torch.Tensor)
        }
        self._weights = {name: held[target].detach() for name, target in self._targets.items()}
        self._program: dict[str, list[torch.fx.Node]] = defaultdict(list)
        for node in program.graph.nodes:
            stack = [*(node.meta.get("nn_module_stack") or {}).values()]
            if node.op not in ("placeholder", "output") and stack:
                self._program[_layer(stack[-1][0])].append(node)

    def find(self, piece: Piece, others: Sequence[Piece]) -> Piece:
        """The piece, with the first of the others that is the same."""
        wrong = ""
        for other in others:
            one, two = self._program[other.layer], self._program[piece.layer]
            twins = _twins(one, two) if one else None
            if twins is None or not self._same_graph(other, piece, twins):
                continue
            wrong = self._other_weight(other, piece, twins)
            if not wrong:
                pairs = ((b, a) for a, b in twins.items() if a in self._targets and a != b)
                weights = {self._targets[b]: self._targets[a] for b, a in pairs}
                return replace(piece, like=other.layer, weights=weights)
        return replace(piece, wrong=wrong)

    def _same_graph(self, one: Piece, other: Piece, twins: Mapping[str, str]) -> bool:
        """Whether the nodes are the same, and read and make what corresponds."""
        pairs: dict[ir.Value, ir.Value] = {}
        for a, b in zip(one.nodes, other.nodes, strict=True):
            if not _same_node(a, b):
                return False
            for x, y in zip(a.inputs, b.inputs, strict=True):
                if x is None or y is None or x in pairs:
                    same = (y if x is None else pairs.get(x)) is y and (x is None) == (y is None)
                else:
                    weights = x.is_initializer() and y.is_initializer()
                    same = weights or self._corresponds(x, y, twins)
                if not same:
                    return False
            pairs |= dict(zip(a.outputs, b.outputs, strict=True))
        leaving = set(other.leaving)
        return all(
            y not in leaving or (x.dtype == y.dtype and self._stands_for(x, y, twins))
            for x, y in pairs.items()
        )

    def _corresponds(self, x: ir.Value, y: ir.Value, twins: Mapping[str, str]) -> bool:
        """Whether the second layer is to read one value where the first reads the other."""
        if x.is_initializer() or y.is_initializer():
            return False
        if self._names.get(str(x.name)) not in twins:
            return x is y
        return self._stands_for(x, y, twins)

    def _stands_for(self, x: ir.Value, y: ir.Value, twins: Mapping[str, str]) -> bool:
        one, other = (self._names.get(str(value.name)) for value in (x, y))
        return one is not None and other is not None and twins.get(one) == other

    def _other_weight(self, one: Piece, other: Piece, twins: Mapping[str, str]) -> str:
        """The first initializer of the second layer that is not what the program has there."""
        pairs = {a: b for a, b in twins.items() if a in self._weights}
        for a, b in zip(one.nodes, other.nodes, strict=True):
            for x, y in zip(a.inputs, b.inputs, strict=True):
                if x is not None and y is not None and x.is_initializer():
                    forms = [*self._forms(x, pairs)]
                    same = bool(forms) or _same_constant(x, y)
                    for form in forms:
                        wanted = form.view(self._weights[pairs[form.names[0]]])
                        same = same and _same_bytes(wanted, y, self._regions)
                    if not same:
                        return str(y.name)
        return ""

    def _forms(self, value: ir.Value, names: Iterable[str]) -> Iterator[Form]:
        """In which forms an initializer holds one of some weights, byte for byte."""
        tensor = value.const_value
        shape = () if tensor is None else tuple(tensor.shape.numpy())
        for name in names:
            weight = self._weights[name]
            for form in forms_of(name, weight.shape, shape, turned=False):
                if _same_bytes(form.view(weight), value, self._regions):
                    yield form


def _twins(one: Sequence[torch.fx.Node], other: Sequence[torch.fx.Node]) -> dict[str, str] | None:
    """Map names of one layer of a program to those of another; ``None`` if they are not equal.

    Values from outside are among the names, weights too.
    """
    if len(one) != len(other):
        return None
    pairs = dict(zip(one, other, strict=True))

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, torch.fx.Node) and isinstance(b, torch.fx.Node):
            values = a.meta.get("val"), b.meta.get("val")
            return pairs.setdefault(a, b) is b and _same_value(*values)
        if isinstance(a, list | tuple) and isinstance(b, list | tuple):
            return len(a) == len(b) and all(map(same, a, b))
        return type(a) is type(b) and bool(a == b)

    for a, b in zip(one, other, strict=True):
        plain = a.op == b.op == "call_function" and a.target is b.target
        if not plain or a.kwargs.keys() != b.kwargs.keys() or not same(a.args, b.args):
            return None
        if not all(same(a.kwargs[key], b.kwargs[key]) for key in a.kwargs):
            return None
    return {a.name: b.name for a, b in pairs.items()}


def _same_value(a: Any, b: Any) -> bool:
    """Whether two values are alike for every operator: sizes are equal as expressions."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and [*map(str, a.shape)] == [*map(str, b.shape)]
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(_same_value, a, b))
    return type(a) is type(b) and str(a) == str(b)


def _same_node(a: ir.Node, b: ir.Node) -> bool:
    """Whether two nodes do the same; of nodes with subgraphs nobody knows."""
    attributes = [
        {name: ir.serde.serialize_attribute(one) for name, one in node.attributes.items()}
        for node in (a, b)
    ]
    return (
        a.op_identifier() == b.op_identifier()
        and (len(a.inputs), len(a.outputs)) == (len(b.inputs), len(b.outputs))
        and attributes[0] == attributes[1]
        and not [*subgraphs(a)]
    )


def _same_constant(x: ir.Value, y: ir.Value) -> bool:
    """Whether two initializers hold the same bytes."""
    one, other = x.const_value, y.const_value
    if one is None or other is None or one.dtype != other.dtype or one.shape != other.shape:
        return False
    return one is other or one.tobytes() == other.tobytes()


def _same_bytes(expected: torch.Tensor, value: ir.Value, regions: Sequence[Region]) -> bool:
    """Whether an initializer is exactly a tensor.

    Nothing is read if both lie in files that are mapped: they are the same in the same place only.
    """
    tensor = value.const_value
    if tensor is None or tuple(tensor.shape.numpy()) != tuple(expected.shape):
        return False
    if tensor.dtype != element_type(expected.dtype):
        return False
    if not isinstance(tensor, ir.ExternalTensor):
        return _equal(expected, tensor.numpy())
    if any(region.path.samefile(Path(tensor.path)) for region in regions):
        for region in regions:
            offset = expected.data_ptr() - region.address
            if 0 <= offset < region.size:
                placed = expected.is_contiguous() and offset == tensor.offset
                return placed and region.path.samefile(Path(tensor.path))
    same = _equal(expected, tensor.numpy())
    with suppress(BufferError):  # a profiler or debugger looks at the array
        tensor.release()  # the pages that were read
    return same


def _equal(expected: torch.Tensor, got: np.ndarray[Any, Any]) -> bool:
    """Bit by bit, in slices: NaN is equal to itself, and -0.0 is not 0.0."""
    if not expected.ndim:
        expected, got = expected.reshape(1), got.reshape(1)
    step = max(1, _SLICE // max(1, expected[:1].numel()))
    return all(
        np.array_equal(
            expected[at : at + step].detach().cpu().contiguous().reshape(-1).view(torch.uint8),
            np.ascontiguousarray(got[at : at + step]).reshape(-1).view(np.uint8),
        )
        for at in range(0, len(expected), step)
    )
