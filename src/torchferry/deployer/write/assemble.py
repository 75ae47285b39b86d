"""The graphs of a model in parts: these exported and verified, quantized, and joined."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.nn import Parameter

from torchferry.deployer.fit.sensitivity import parameters_by_name
from torchferry.deployer.kind import Kind
from torchferry.deployer.layout import Graph
from torchferry.deployer.write.build import (
    Built,
    Choice,
    Wanted,
    choose_grids,
    export_graph,
    size_of,
)
from torchferry.deployer.write.merge import merge_decoder, rename_sizes
from torchferry.deployer.write.parts import split_source
from torchferry.deployer.write.vision import split_vision
from torchferry.exporter.steps import Steps
from torchferry.graph import io
from torchferry.quantizer import RECIPES, Recipe, quantize_file
from torchferry.quantizer.linears import find_linears
from torchferry.sources.source import Source

__all__ = ["SCHEMES", "Scheme", "assemble_graphs"]

_NEAREST: Choice = (frozenset(), {})
_SIZES = {"past_key_values_0_decoder_key_dim_2": "past_sequence_length"}


@dataclass(frozen=True)
class Scheme:
    """How a kind of model is taken apart.

    Attributes:
        split: gives the parts by name, the one that gives logits first. The operator set that
            suits the first is that of the others too.
        join: makes the files of a graph from the parts' files in a folder.
        fitted: the parts whose weights texts say something of; others get 8 bits at least.
    """

    split: Callable[[Source], Mapping[str, Source]]
    join: Callable[[Path, Path, Graph], None]
    fitted: tuple[str, ...]


def assemble_graphs(
    source: Source,
    load: Callable[[str], Source],
    graphs: Sequence[Graph],
    folder: Path,
    wanted: Wanted,
    *,
    kind: Kind,
    steps: Steps,
    **options: Any,
) -> Built:
    """Write the files of a model in parts in each precision.

    Args:
        source: the model in float32, with inputs: see the scheme's ``split``.
        load: gives the model in ``fp16`` or ``bf16``.
        graphs: to write: each is several files.
        folder: of the deployment.
        wanted: of the graphs in 4 bits.
        kind: of the model, one of `SCHEMES`.
        steps: gets the steps.
        options: of `export_graph`.
    """
    built, scheme = Built(), SCHEMES[kind]
    place = folder / "parts"
    choice: Choice | None = None
    for floats in dict.fromkeys(graph.floats for graph in graphs):
        parts = scheme.split(source if floats == "fp32" else load(floats))
        _export_parts(parts, place / floats, floats, built, steps, **options)
    (folder / graphs[0].path).parent.mkdir(exist_ok=True)
    for graph in graphs:
        made = place / graph.floats
        if graph.recipe:
            plain, made = made, place / graph.name
            quantize = partial(_quantize_parts, [*parts], scheme, plain, made)
            if graph.recipe == "int4" and choice is None:
                choice = _choose(
                    source, scheme, plain, quantize, wanted=wanted, built=built, steps=steps
                )
            with steps.step(f"quantize {graph.name}") as say:
                chosen = choice if graph.recipe == "int4" and choice else _NEAREST
                built.bits[graph.name], _ = quantize(wanted.recipe_of(graph), choice=chosen)
                say(f"{len(built.bits[graph.name])} weights")
        with steps.step(f"join {graph.name}"):
            scheme.join(made, folder, graph)
        built.sizes[graph.name] = sum(size_of(folder / path) for path in graph.paths)
    shutil.rmtree(place)
    return built


def _export_parts(
    parts: Mapping[str, Source],
    place: Path,
    floats: str,
    built: Built,
    steps: Steps,
    **options: Any,
) -> None:
    place.mkdir(parents=True)
    for name, part in parts.items():
        path = place / f"{name}.onnx"
        built.exports[f"{floats} {name}"] = export_graph(part, path, steps, **options)
        options["opset"] = io.load(path).opset_imports[""]


def _quantize_parts(
    names: Sequence[str],
    scheme: Scheme,
    source: Path,
    place: Path,
    recipe: Recipe,
    *,
    choice: Choice = _NEAREST,
) -> tuple[dict[str, int], int]:
    """Bits of each weight, by name, and bytes of all parts.

    Args:
        names: of the parts, the one that gives logits first.
        scheme: of the model.
        source: the folder of the parts in floating point.
        place: the folder to write.
        recipe: of the graph.
        choice: weights that get 8 bits, and grids for others.
    """
    place.mkdir(exist_ok=True)
    wide, grids = choice
    bits: dict[str, int] = {}
    size = 0
    for name in names:
        this = recipe if name in scheme.fitted else RECIPES["int8"]
        # The head is the last product of the first part alone.
        this = this if name == names[0] else replace(this, head=this.bits)
        done = quantize_file(
            source / f"{name}.onnx", place / f"{name}.onnx", this, wide=wide, grids=grids
        )
        bits, size = bits | dict(done.bits), size + done.nbytes
    return bits, size


def _choose(
    source: Source,
    scheme: Scheme,
    plain: Path,
    quantize: Callable[[Recipe], tuple[dict[str, int], int]],
    *,
    wanted: Wanted,
    built: Built,
    steps: Steps,
) -> Choice:
    """The weights of all parts that get 8 bits, and grids for the others.

    Args:
        source: the model in float32.
        scheme: how it is taken apart.
        plain: the folder of its parts in floating point.
        quantize: writes the parts in the bits of a recipe, to see how small they get.
        wanted: the texts, and a target if there is one.
        built: gets the table of sensitivity.
        steps: gets the steps.
    """
    parts, recipe = scheme.split(source), RECIPES[wanted.recipe]
    names: dict[str, Parameter] = {}
    linears = []
    for name in reversed(scheme.fitted):
        names |= parameters_by_name(parts[name].model)
        linears += [*find_linears(io.load(plain / f"{name}.onnx").graph)]
    return choose_grids(
        source, linears, lambda least: quantize(least)[1], recipe,
        wanted=wanted, built=built, steps=steps, parameters=names,
    )  # fmt: skip


def _join_seq2seq(parts: Path, folder: Path, graph: Graph) -> None:
    """An encoder, and a decoder that knows its states from them or from the cache."""
    step, cross, encoder = (
        io.load(parts / f"{name}.onnx") for name in ("step", "cross", "encoder")
    )
    decoder = merge_decoder(step, cross)
    rename_sizes(decoder.graph, _SIZES)
    for model, path in zip((encoder, decoder), graph.paths, strict=True):
        io.save(model, folder / path)


def _join_vision(parts: Path, folder: Path, graph: Graph) -> None:
    """The three parts as they are."""
    for name, path in zip(("vision", "embedding", "model"), graph.paths, strict=True):
        io.save(io.load(parts / f"{name}.onnx"), folder / path)


_SEQ2SEQ = Scheme(split_source, _join_seq2seq, ("step", "cross", "encoder"))
SCHEMES: dict[Kind, Scheme] = {
    "seq2seq": _SEQ2SEQ,
    "speech": _SEQ2SEQ,
    "vision-language": Scheme(split_vision, _join_vision, ("model",)),
}
"""For each kind of model in parts."""
