"""The nodes that make one value of an ONNX graph from values that are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir
import torch

from torchferry.comparer.run.piece import Runner, ort_value, reads, tensor_of_ort
from torchferry.comparer.run.window import Windows

__all__ = ["Segment", "segment_of"]


@dataclass(frozen=True)
class Segment:
    """Nodes and what they read from outside.

    Attributes:
        model: they are of.
        nodes: in its order.
        inputs: what they read: values that are known, and inputs of the model.
        output: what they make.
        keys: of those inputs that have a reference value, its name.
    """

    model: ir.Model
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    output: ir.Value
    keys: Mapping[str, str]

    def feeds(
        self, given: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """The tensors of the inputs, out of the model's and of reference values by their names."""
        return {
            str(v.name): values[self.keys[str(v.name)]]
            if str(v.name) in self.keys
            else given[str(v.name)]
            for v in self.inputs
        }

    def run(
        self,
        feeds: Mapping[str, torch.Tensor],
        references: Mapping[str, torch.Tensor] | None = None,
    ) -> tuple[dict[str, torch.Tensor], set[ir.Node]]:
        """Every value that can be computed, and the nodes that fail.

        Args:
            feeds: of the inputs, by name.
            references: what readers of interior values take in the place of what is computed.
        """
        given = {name: ort_value(tensor) for name, tensor in feeds.items()}
        names = {str(v.name) for node in self.nodes for v in node.outputs if v.name}
        windows = Windows(self.model, given, Runner())
        instead = {name: ort_value(tensor) for name, tensor in (references or {}).items()}
        computed = windows.run(self.nodes, names, instead)
        found = {name: tensor_of_ort(value) for name, value in computed.items()}
        tensors = {name: tensor for name, tensor in found.items() if tensor is not None}
        return tensors, set(windows.failed)


def segment_of(model: ir.Model, name: str, keys: Mapping[str, str]) -> Segment:
    """The nodes that make a value from values that have a reference, and from inputs.

    Args:
        model: of the value.
        name: of the value.
        keys: names of the values that may be taken as known, and of their reference values.
    """
    output = next(v for node in model.graph for v in node.outputs if v.name == name)
    nodes: dict[ir.Node, None] = {}
    inputs: dict[ir.Value, None] = {}
    waiting = [output]
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if producer is None or (value is not output and value.name in keys):
            if not value.is_initializer():
                inputs.setdefault(value)
        elif producer not in nodes:
            nodes.setdefault(producer)
            waiting += list(reads(producer))
    used = {str(value.name): keys[str(value.name)] for value in inputs if value.name in keys}
    in_order = tuple(node for node in model.graph if node in nodes)
    return Segment(model, in_order, tuple(inputs), output, used)
