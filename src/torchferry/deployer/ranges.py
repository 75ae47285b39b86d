"""Convolutions in 8 bits: the ranges of recorded inputs, and which have to stay floats."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from torchferry.deployer.likeness import Feeds, Outputs, compare_outputs
from torchferry.graph import io
from torchferry.quantizer import Quantized, Recipe, quantize_file
from torchferry.quantizer.linears import find_linears
from torchferry.quantizer.static import Convolution, Range, find_convolutions
from torchferry.runner import open_session

__all__ = ["quantize_image_model", "record_ranges"]

_ENOUGH = 0.99  # cosine of the outputs that differ most
_SHARE = 8  # of the convolutions, one in so many is left out at a time


def quantize_image_model(
    source: Path, path: Path, recipe: Recipe, feeds: Sequence[Feeds]
) -> tuple[Quantized, int]:
    """Write a graph with products, and convolutions if most weights are theirs, in 8 bits.

    Convolutions that cost most stay floats, as many as it takes until outputs are near.

    Args:
        source: the graph in float32.
        path: of the file.
        recipe: of the products.
        feeds: inputs that were recorded.

    Returns: what became of the weights, and how many convolutions stay floats.
    """
    graph = io.load(source).graph
    found = list(find_convolutions(graph))
    inner = sum(one.shape[0] * one.shape[1] for one in find_linears(graph))
    if sum(_size(one) for one in found) < inner:
        return quantize_file(source, path, recipe), 0
    seen = record_ranges(source, found, feeds)
    noise = {one.name: one.noise(seen) for one in found}
    worst = sorted(noise, key=lambda name: -noise[name])
    wanted = list(_outputs(source, feeds))
    count = 0
    while True:
        done = quantize_file(source, path, recipe, seen=seen, floats=worst[:count])
        near = compare_outputs(list(_outputs(path, feeds)), wanted, feeds).least >= _ENOUGH
        if near or count == len(worst):
            return done, count
        count = min(len(worst), count + -(-len(worst) // _SHARE))


def record_ranges(
    path: Path, convolutions: Sequence[Convolution], feeds: Sequence[Feeds]
) -> Mapping[str, Range]:
    """What the values are that convolutions read and give, by name.

    Args:
        path: of the graph in floating point.
        convolutions: of the graph.
        feeds: sets of inputs.
    """
    model = io.load(path)
    names = dict.fromkeys(name for one in convolutions for name in one.values)
    values = [*model.graph.inputs, *(v for node in model.graph for v in node.outputs)]
    by_name = {str(value.name): value for value in values}
    fed = {str(value.name) for value in model.graph.inputs}
    present = {str(value.name) for value in model.graph.outputs}
    for name in names:
        if name not in fed | present:
            by_name[name].type = by_name[name].type or ir.TensorType(ir.DataType.FLOAT)
            model.graph.outputs.append(by_name[name])
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="torchferry-") as place:
        io.save(model, Path(place) / "model.onnx")
        for outputs, given in zip(_outputs(Path(place) / "model.onnx", feeds), feeds, strict=True):
            for name, lines in found.items():
                x = outputs[name] if name in outputs else given[name]
                x = x.float()
                lines.append((float(x.min()), float(x.max()), float(x.square().mean())))
    return {
        name: Range(
            min(x[0] for x in lines),
            max(x[1] for x in lines),
            float(np.mean([x[2] for x in lines])),
        )
        for name, lines in found.items()
    }


def _outputs(path: Path, feeds: Sequence[Feeds]) -> Iterator[Outputs]:
    session: Any = open_session(path)
    names = [value.name for value in session.get_outputs()]
    known = {value.name for value in session.get_inputs()}
    for fed in feeds:
        results = session.run(names, {n: x.numpy() for n, x in fed.items() if n in known})
        yield dict(zip(names, map(torch.as_tensor, results), strict=True))


def _size(one: Convolution) -> int:
    tensor = one.weight.const_value
    return 0 if tensor is None else tensor.size
