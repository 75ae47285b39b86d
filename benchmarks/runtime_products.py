"""A model of nothing but the matrix products and convolutions of another one.

They read values of the sizes that they read there, with the same weights. What it takes is what no
rewrite of the graph makes faster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

__all__ = ["PRODUCTS", "write_products"]

PRODUCTS = ("MatMul", "Gemm", "Conv", "ConvTranspose")
Feeds = dict[str, np.ndarray[Any, Any]]


def write_products(source: Path, feeds: Mapping[str, Any], path: Path) -> Feeds:
    """Write the model.

    The data of a convolution is what another one made, where one made as much: onnxruntime lays
    it out anew only where it has to. Sizes are left open, and only those of the results are
    asked for, so that nothing is computed beforehand or copied out.

    Args:
        source: a model without fused operators.
        feeds: a call of it.
        path: where to write.

    Returns:
        The inputs of the written model.
    """
    model = onnx.load(source)
    weights = {item.name for item in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type in PRODUCTS]
    seen = _values(model, [n for node in nodes for n in (*node.input, *node.output)], feeds)
    made = _Products(seen)
    for node in nodes:
        made.add(node, weights)
    names = [*made.dangling, *made.results]
    sizes = [helper.make_node("Shape", [name], [f"{name}.size"]) for name in names]
    asked = helper.make_node("Concat", [size.output[0] for size in sizes], ["sizes"], axis=0)
    read = {name for node in made.nodes for name in node.input}
    graph = helper.make_graph(
        [*made.nodes, *sizes, asked], "products",
        [_open(name, array) for name, array in made.inputs.items()],
        [helper.make_tensor_value_info("sizes", onnx.TensorProto.INT64, [None])],
        [item for item in model.graph.initializer if item.name in read],
    )  # fmt: skip
    opsets, version = model.opset_import, model.ir_version
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=version), path)
    return made.inputs


@dataclass
class _Products:
    """The products so far.

    Attributes:
        seen: what values are in a call.
        inputs: of the model.
        results: of convolutions that no other one reads yet.
        dangling: results of other products.
    """

    seen: Feeds
    inputs: Feeds = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    dangling: list[str] = field(default_factory=list)

    def add(self, node: onnx.NodeProto, weights: set[str]) -> None:
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        convolution = "Conv" in node.op_type
        for place, name in enumerate(node.input):
            if name and name not in weights:
                before = self._result(name) if convolution and place == 0 else None
                copy.input[place] = before or self._input(name, place)
        (self.results if convolution else self.dangling).append(node.output[0])
        self.nodes.append(copy)

    def _result(self, name: str) -> str | None:
        """What a convolution made last of this size."""
        for other in reversed(self.results):
            if self.seen[other].shape == self.seen[name].shape:
                self.results.remove(other)
                return other
        return None

    def _input(self, like: str, place: int) -> str:
        array = self.seen[like]
        # The second factor is one of its own, or equal products would be computed once.
        own = f"_{len(self.nodes)}" if place else ""
        name = f"{array.dtype}_{'x'.join(map(str, array.shape))}{own}"
        if name not in self.inputs:
            drawn = np.random.default_rng(len(self.nodes)).normal(size=array.shape)
            self.inputs[name] = drawn.astype(array.dtype)
        return name


def _values(model: onnx.ModelProto, names: list[str], feeds: Mapping[str, Any]) -> Feeds:
    """What these values are in a call."""
    taken = {item.name for item in (*model.graph.initializer, *model.graph.output)}
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    asked = [name for name in dict.fromkeys(names) if name and name not in taken]
    given = {item.name for item in model.graph.input}
    shown.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in asked if name not in given
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        shown.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(None, dict(feeds))
    return dict(feeds) | {
        item.name: value for item, value in zip(session.get_outputs(), found, strict=True)
    }


def _open(name: str, array: np.ndarray[Any, Any]) -> onnx.ValueInfoProto:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, [f"{name}_{i}" for i in range(array.ndim)])
