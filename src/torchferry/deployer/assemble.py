"""The graphs of an encoder-decoder: its parts exported and verified, quantized, and joined."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torchferry.deployer.build import Built, export_graph, size_of
from torchferry.deployer.layout import Graph
from torchferry.deployer.merge import merge_decoder, rename_sizes
from torchferry.deployer.parts import split_source
from torchferry.exporter.steps import Steps
from torchferry.graph import io
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.sources.source import Source

__all__ = ["PARTS", "assemble_graphs"]

PARTS = ("step", "cross", "encoder")
"""Exported in this order: the operator set that suits the first is that of the others too."""
_SIZES = {"past_key_values_0_decoder_key_dim_2": "past_sequence_length"}


def assemble_graphs(
    source: Source,
    load_half: Callable[[], Source],
    graphs: Sequence[Graph],
    folder: Path,
    *,
    steps: Steps,
    **options: Any,
) -> Built:
    """Write an encoder and a merged decoder in each precision.

    Args:
        source: the model in float32, with inputs of steps of its decoder.
        load_half: gives the model in float16.
        graphs: to write: each is two files.
        folder: of the deployment.
        steps: gets the steps.
        options: of `export_graph`.
    """
    built = Built()
    place = folder / "parts"
    for floats in dict.fromkeys(graph.floats for graph in graphs):
        this = source if floats == "fp32" else load_half()
        _export_parts(this, place / floats, floats, built, steps, **options)
    (folder / graphs[0].path).parent.mkdir(exist_ok=True)
    for graph in graphs:
        parts = place / graph.floats
        if graph.recipe:
            with steps.step(f"quantize {graph.name}") as say:
                parts = place / graph.name
                built.bits[graph.name] = _quantize_parts(place / graph.floats, parts, graph.recipe)
                say(f"{len(built.bits[graph.name])} weights")
        with steps.step(f"join {graph.name}"):
            _join_parts(parts, folder, graph)
        built.sizes[graph.name] = sum(size_of(folder / path) for path in graph.paths)
    shutil.rmtree(place)
    return built


def _export_parts(
    source: Source, place: Path, floats: str, built: Built, steps: Steps, **options: Any
) -> None:
    parts = split_source(source)
    place.mkdir(parents=True)
    for name in PARTS:
        path = place / f"{name}.onnx"
        report = export_graph(getattr(parts, name), path, steps, **options)
        built.exports[f"{floats} {name}"] = report
        options["opset"] = io.load(path).opset_imports[""]


def _quantize_parts(source: Path, place: Path, recipe: str) -> dict[str, int]:
    """Bits of each weight, by name."""
    place.mkdir()
    bits: dict[str, int] = {}
    for name in PARTS:
        done = quantize_file(source / f"{name}.onnx", place / f"{name}.onnx", RECIPES[recipe])
        bits |= done.bits
    return bits


def _join_parts(parts: Path, folder: Path, graph: Graph) -> None:
    step, cross, encoder = (io.load(parts / f"{name}.onnx") for name in PARTS)
    decoder = merge_decoder(step, cross)
    rename_sizes(decoder.graph, _SIZES)
    for model, path in zip((encoder, decoder), graph.paths, strict=True):
        io.save(model, folder / path)
