"""The graphs of an encoder-decoder: its parts exported and verified, quantized, and joined."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch.nn import Parameter

from torchferry.deployer.fit.sensitivity import parameters_by_name
from torchferry.deployer.layout import Graph
from torchferry.deployer.write.build import (
    Built,
    Choice,
    Wanted,
    choose_grids,
    export_graph,
    inner_linears,
    size_of,
)
from torchferry.deployer.write.merge import merge_decoder, rename_sizes
from torchferry.deployer.write.parts import split_source
from torchferry.exporter.steps import Steps
from torchferry.graph import io
from torchferry.quantizer import RECIPES, Recipe, quantize_file
from torchferry.quantizer.linears import find_linears
from torchferry.sources.source import Source

__all__ = ["PARTS", "assemble_graphs"]

PARTS = ("step", "cross", "encoder")
"""Exported in this order: the operator set that suits the first is that of the others too."""
_NEAREST: Choice = (frozenset(), {})
_SIZES = {"past_key_values_0_decoder_key_dim_2": "past_sequence_length"}


def assemble_graphs(
    source: Source,
    load: Callable[[str], Source],
    graphs: Sequence[Graph],
    folder: Path,
    wanted: Wanted,
    *,
    steps: Steps,
    **options: Any,
) -> Built:
    """Write an encoder and a merged decoder in each precision.

    Args:
        source: the model in float32, with inputs of steps of its decoder.
        load: gives the model in ``fp16`` or ``bf16``.
        graphs: to write: each is two files.
        folder: of the deployment.
        wanted: of the graphs in 4 bits.
        steps: gets the steps.
        options: of `export_graph`.
    """
    built = Built()
    place = folder / "parts"
    choice: Choice | None = None
    for floats in dict.fromkeys(graph.floats for graph in graphs):
        this = source if floats == "fp32" else load(floats)
        _export_parts(this, place / floats, floats, built, steps, **options)
    (folder / graphs[0].path).parent.mkdir(exist_ok=True)
    for graph in graphs:
        parts = place / graph.floats
        if graph.recipe:
            plain, parts = parts, place / graph.name
            if graph.recipe == "int4" and choice is None:
                choice = _choose(source, (plain, parts), wanted, built, steps)
            with steps.step(f"quantize {graph.name}") as say:
                recipe = wanted.recipe_of(graph)
                chosen = choice if graph.recipe == "int4" and choice else _NEAREST
                built.bits[graph.name], _ = _quantize_parts(plain, parts, recipe, chosen)
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


def _quantize_parts(
    source: Path, place: Path, recipe: Recipe, choice: Choice = _NEAREST
) -> tuple[dict[str, int], int]:
    """Bits of each weight, by name, and bytes of all parts."""
    place.mkdir(exist_ok=True)
    wide, grids = choice
    bits: dict[str, int] = {}
    size = 0
    for name in PARTS:
        # The head is the last product of the decoder alone.
        this = recipe if name == "step" else replace(recipe, head=recipe.bits)
        done = quantize_file(
            source / f"{name}.onnx", place / f"{name}.onnx", this, wide=wide, grids=grids
        )
        bits, size = bits | dict(done.bits), size + done.nbytes
    return bits, size


def _choose(
    source: Source, places: tuple[Path, Path], wanted: Wanted, built: Built, steps: Steps
) -> Choice:
    """The weights of all parts that get 8 bits, and grids for the others.

    Args:
        source: the model in float32.
        places: its parts in floating point, and a folder that may be written to see how small
            they get.
        wanted: the texts, and a target if there is one.
        built: gets the table of sensitivity.
        steps: gets the steps.
    """
    parts, recipe = split_source(source), RECIPES[wanted.recipe]
    names: dict[str, Parameter] = {}
    for name in PARTS:
        names |= parameters_by_name(getattr(parts, name).model)
    graphs = {name: io.load(places[0] / f"{name}.onnx").graph for name in PARTS}
    step = inner_linears(graphs["step"])
    linears = [*find_linears(graphs["encoder"]), *find_linears(graphs["cross"]), *step]
    return choose_grids(
        source, linears, lambda: _quantize_parts(*places, recipe)[1], recipe,
        wanted=wanted, built=built, steps=steps, parameters=names,
    )  # fmt: skip


def _join_parts(parts: Path, folder: Path, graph: Graph) -> None:
    step, cross, encoder = (io.load(parts / f"{name}.onnx") for name in PARTS)
    decoder = merge_decoder(step, cross)
    rename_sizes(decoder.graph, _SIZES)
    for model, path in zip((encoder, decoder), graph.paths, strict=True):
        io.save(model, folder / path)
