"""Convolutions in 8 bits: the ranges of recorded inputs, and which have to stay floats."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch

from torchferry.deployer.prove.likeness import Feeds, Outputs, compare_outputs
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.quantizer import Quantized, Recipe, quantize_file
from torchferry.quantizer.linears import find_linears
from torchferry.quantizer.static import Convolution, Range, find_convolutions
from torchferry.runner import open_session

__all__ = ["quantize_image_model", "record_ranges"]

_ENOUGH = 0.99  # mean cosine of the outputs' vectors
_SECONDS = 120.0  # for measuring what convolutions cost
_DEAD = 1e-8  # of the mean power: a channel with less says nothing
_SHARE = 8  # of the convolutions, one in so many is left out at a time


def quantize_image_model(
    source: Path, path: Path, recipe: Recipe, feeds: Sequence[Feeds]
) -> tuple[Quantized, int]:
    """Write a graph with products, and convolutions if most weights are theirs, in 8 bits.

    Convolutions that cost most stay floats, as many as it takes until outputs are near. What one
    costs is measured, alone in 8 bits, if not all can have them; the likeliest first, as long as
    there is time.

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
    count, measured = 0, False
    while True:
        if count and not measured:
            costs = _measure(source, path, recipe, feeds, seen=seen, names=worst, wanted=wanted)
            measured = True
            worst = sorted(worst, key=lambda name: (-costs.get(name, 0.0), -noise[name]))
        done = quantize_file(source, path, recipe, seen=seen, floats=worst[:count])
        near = compare_outputs(list(_outputs(path, feeds)), wanted, feeds)
        enough = near.mean >= _ENOUGH and near.distance <= near.limits["int8"]
        if enough or count == len(worst):
            return done, count
        count = min(len(worst), count + -(-len(worst) // _SHARE))
        if count == len(worst) and not inner:
            raise UsageError(
                f"8 bits cost {source.name} too much in every convolution: use fp16, or give "
                "inputs like those that the model will see by --inputs"
            )


def _measure(
    source: Path,
    path: Path,
    recipe: Recipe,
    feeds: Sequence[Feeds],
    *,
    seen: Mapping[str, Range],
    names: Sequence[str],
    wanted: Sequence[Outputs],
) -> dict[str, float]:
    """1 less the cosine of the outputs if one convolution alone has 8 bits, by name."""
    costs: dict[str, float] = {}
    began = time.monotonic()
    for name in names:
        if time.monotonic() - began > _SECONDS:
            break
        others = [other for other in names if other != name]
        quantize_file(source, path, recipe, seen=seen, floats=others)
        costs[name] = 1 - compare_outputs(list(_outputs(path, feeds)), wanted, feeds).mean
    return costs


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
    found: dict[str, list[tuple[torch.Tensor, ...]]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory(prefix="torchferry-") as place:
        io.save(model, Path(place) / "model.onnx")
        for outputs, given in zip(_outputs(Path(place) / "model.onnx", feeds), feeds, strict=True):
            for name, lines in found.items():
                x = (outputs[name] if name in outputs else given[name]).float().transpose(0, 1)
                lines.append((x.min(), x.max(), x.flatten(1).square().mean(1)))
    return {name: _range(lines) for name, lines in found.items()}


def _range(lines: Sequence[tuple[torch.Tensor, ...]]) -> Range:
    """The range of all sets; the power is that of small channels, which noise hurts most."""
    low, high, powers = (torch.stack(parts) for parts in zip(*lines, strict=True))
    power = powers.mean(0)
    floor = _DEAD * float(power.mean()) or 1.0
    return Range(float(low.min()), float(high.max()), float(1 / (1 / power.clamp(floor)).mean()))


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
