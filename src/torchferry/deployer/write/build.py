"""The graphs of a folder: exported and verified in floating point, then quantized."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import nn

from torchferry.deployer.fit.calibrate import fit_grids
from torchferry.deployer.fit.ranges import quantize_image_model
from torchferry.deployer.fit.sensitivity import measure_sensitivity, parameters_by_name
from torchferry.deployer.kind import KINDS, Kind
from torchferry.deployer.layout import GRAPHS, Graph
from torchferry.errors import UsageError
from torchferry.exporter.export import export
from torchferry.exporter.steps import Steps
from torchferry.exporter.watch import run_sets
from torchferry.graph import io
from torchferry.graph.outline import CONDITIONS_KEY, read_proto
from torchferry.observer import observe
from torchferry.quantizer import RECIPES, Grid, Quantized, Recipe, quantize_file
from torchferry.quantizer.choice import Unit, choose_for_loss, choose_for_size
from torchferry.quantizer.folding import find_free
from torchferry.quantizer.found import lies_on_grid
from torchferry.quantizer.linears import Linear, find_linears
from torchferry.report.model import Report
from torchferry.report.quantity import bytes_text
from torchferry.sources.source import Source
from torchferry.values.signature import SIGNATURE_KEY, Signature

__all__ = [
    "FLOATS",
    "RENAMED",
    "Built",
    "Choice",
    "Wanted",
    "build_graphs",
    "choose_grids",
    "export_graph",
    "lighten",
    "size_of",
]

_BASES = {graph.floats: graph for graph in GRAPHS if not graph.recipe}
"""The graphs that quantized graphs are made from, by ``fp32``, ``fp16`` and ``bf16``."""
RENAMED = {"token_embeddings": "last_hidden_state"}
"""Outputs that optimum finds under another name than sentence-transformers gives them."""
FLOATS = ("pixel_values", "input_values", "input_features")
"""Inputs that a processor computes, in float32."""
Choice = tuple[frozenset[str], dict[str, Grid]]
"""Weights that get 8 bits where others have 4, and grids for others."""
_FOLDERS = re.compile(r'"[^"]*?site-packages/')
_ROOM = 0.95  # of the bytes that are left: tensors begin on pages, and names take some


@dataclass(frozen=True)
class Wanted:
    """How a model is to be quantized.

    Attributes:
        rows: tokens to calibrate with; empty for the nearest grid.
        loss: the largest KL divergence, in nats, that 4 bits may cost by estimate.
        size: the largest file in bytes.
        recipe: of 4 bits: ``int4``, or ``int4-hqq`` without texts.
    """

    rows: Sequence[Any] = ()
    loss: float | None = None
    size: float | None = None
    recipe: str = "int4"

    def recipe_of(self, graph: Graph) -> Recipe:
        """The recipe that makes a quantized graph."""
        return RECIPES[self.recipe if graph.recipe == "int4" else graph.recipe]


@dataclass
class Built:
    """The graphs of a folder, and what their making showed.

    Attributes:
        sizes: bytes of each graph with its weights, by name.
        bits: of each quantized weight, by the graph's name.
        units: what 4 bits cost in each weight, if that was measured.
        kept: how many weights lay on a grid of 4 bits already, and stay there.
        fitted: how many weights were fitted to texts.
        floats: how many convolutions of int8 stay floats, as they cost most.
        exports: the reports of the graphs in floating point, by ``fp32`` and so on.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    bits: dict[str, dict[str, int]] = field(default_factory=dict)
    units: list[Unit] = field(default_factory=list)
    kept: int = 0
    fitted: int = 0
    floats: int = 0
    exports: dict[str, Report] = field(default_factory=dict)


def export_graph(source: Source, path: Path, steps: Steps, **options: Any) -> Report:
    """Export a model to a file and verify it.

    Args:
        source: the model and its inputs.
        path: of the graph.
        steps: gets the steps of the export.
        options: of `torchferry.exporter.export`.

    Raises:
        FerryError: see `export`.
    """
    with observe(source.model) as seen:
        run_sets(source)
    done = export(
        source.model, source.observed(seen), title=source.title, steps=steps, file=path, **options
    )
    lighten(path)
    if done.report is None:  # export always makes one
        raise AssertionError
    return done.report


def lighten(path: Path) -> None:
    """Remove what a saved graph says of the code it came from: a runtime has no use for it.

    Images and sounds become float32 inputs, as processors make them. Outputs get the names that
    runtimes look for; what a call of the model returns stays as it is.
    """
    model = read_proto(path)
    for node in _each_node([*model.graph.node, *(n for f in model.functions for n in f.node)]):
        node.ClearField("metadata_props")
    _rename_outputs(model.graph)
    _widen_inputs(model.graph)
    for entry in [*model.metadata_props]:
        if entry.key == CONDITIONS_KEY:  # for people, with lines of this machine's files
            model.metadata_props.remove(entry)
        elif entry.key == SIGNATURE_KEY:
            signature = Signature.from_json(_FOLDERS.sub('"', entry.value))
            leaves = [
                [RENAMED.get(leaf[0], leaf[0]), *leaf[1:]] if isinstance(leaf, list) else leaf
                for leaf in signature.leaves
            ]
            entry.value = replace(signature, leaves=type(signature.leaves)(leaves)).to_json()
    part = path.with_suffix(".part")
    part.write_bytes(model.SerializeToString())
    part.replace(path)


def _each_node(nodes: list[Any]) -> Iterator[Any]:
    """Nodes, and those in their subgraphs; the list is used up."""
    while nodes:
        node = nodes.pop()
        yield node
        for attribute in node.attribute:
            nodes += [*attribute.g.node, *(n for graph in attribute.graphs for n in graph.node)]


def _widen_inputs(graph: Any) -> None:
    """Let images and sounds be float32 in half precision too, as processors make them."""
    for given in graph.input:
        kind = given.type.tensor_type.elem_type
        if given.name not in FLOATS or kind == onnx.TensorProto.FLOAT:
            continue
        given.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        half = f"{given.name}.half"
        for node in _each_node(list(graph.node)):
            node.input[:] = [half if name == given.name else name for name in node.input]
        cast = onnx.helper.make_node("Cast", [given.name], [half], name=half, to=kind)
        graph.node.insert(0, cast)


def _rename_outputs(graph: Any) -> None:
    for output in graph.output:
        output.name = RENAMED.get(output.name, output.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [RENAMED.get(name, name) for name in names]


def build_graphs(
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
    """Write the graphs of a folder; what only quantized graphs are made of is removed again.

    Args:
        source: the model in float32.
        load: gives the model in ``fp16`` or ``bf16``.
        graphs: to write.
        folder: of the deployment.
        wanted: of the quantized graphs.
        kind: of the model.
        steps: gets the steps.
        options: of `export_graph`.
    """
    built = Built()
    for floats, base in _BASES.items():
        if any(graph.floats == floats for graph in graphs):
            path = folder / base.path
            path.parent.mkdir(exist_ok=True)
            this = source if floats == "fp32" else load(floats)
            built.exports[floats] = export_graph(this, path, steps, **options)
    choice: Choice = frozenset(), {}
    narrow = [graph for graph in graphs if graph.recipe == "int4"]
    if narrow:
        places = folder / _BASES[narrow[0].floats].path, folder / narrow[0].path
        choice = _choose(source, *places, wanted, built=built, steps=steps)
    for graph in [graph for graph in graphs if graph.recipe]:
        with steps.step(f"quantize {graph.name}") as say:
            given = choice if graph in narrow else (frozenset[str](), {})
            places = folder / _BASES[graph.floats].path, folder / graph.path
            if (KINDS[kind].kernel, graph.recipe) == ("dynamic", "int8"):
                done = _quantize_image(source, *places, built)
            else:
                wide, grids = given
                done = quantize_file(*places, wanted.recipe_of(graph), wide=wide, grids=grids)
            say(f"{len(done.bits)} weights")
        built.bits[graph.name] = dict(done.bits)
    _remove_bases(graphs, folder)
    for graph in graphs:
        built.sizes[graph.name] = size_of(folder / graph.path)
    return built


def _choose(
    source: Source, plain: Path, path: Path, wanted: Wanted, *, built: Built, steps: Steps
) -> Choice:
    """As `choose_grids`, for a model in one graph."""
    recipe = RECIPES[wanted.recipe]
    return choose_grids(
        source, [*find_linears(io.load(plain).graph)],
        lambda least: quantize_file(plain, path, least).nbytes, recipe,
        wanted=wanted, built=built, steps=steps,
    )  # fmt: skip


def _quantize_image(source: Source, plain: Path, path: Path, built: Built) -> Quantized:
    """Write a graph in int8 of a model that generates nothing."""
    feeds = [
        {name: x for name, x in fed.items() if isinstance(x, torch.Tensor)}
        for _, fed in source.input_sets
    ]
    done, built.floats = quantize_image_model(plain, path, RECIPES["int8-dynamic"], feeds)
    return done


def size_of(path: Path) -> int:
    """Bytes of a graph with its weights."""
    parts = [path, path.with_name(f"{path.name}_data")]
    return sum(part.stat().st_size for part in parts if part.is_file())


def _remove_bases(graphs: Sequence[Graph], folder: Path) -> None:
    for graph in _BASES.values():
        if graph not in graphs:
            for part in folder.glob(f"{graph.path.as_posix()}*"):
                part.unlink()


def choose_grids(
    source: Source,
    linears: Sequence[Linear],
    least: Callable[[Recipe], int],
    recipe: Recipe,
    *,
    wanted: Wanted,
    built: Built,
    steps: Steps,
    parameters: Mapping[str, nn.Parameter] | None = None,
) -> Choice:
    """The weights that get 8 bits, and grids for the others.

    Args:
        source: the model in float32.
        linears: of its graphs, the head last.
        least: gives the bytes of the graphs by a recipe that has all of them in 4 bits.
        recipe: of 4 bits.
        wanted: the texts, and a target if there is one.
        built: gets the table of sensitivity.
        steps: gets the steps.
        parameters: of the model, by the names that they have in its graphs; their own when
            ``None``.
    """
    with steps.step("look for grids") as say:
        kept = {one.name for one in linears if lies_on_grid(one, recipe.bits, recipe.block)}
        say(f"{len(kept)} weights lie on one of {recipe.bits} bits" if kept else "none")
    built.kept = len(kept)
    free = find_free(linears, kept)
    head = [one.name for one in linears[-1:]]
    linears = [one for one in linears if one.name not in kept]
    if not wanted.rows or {one.name for one in linears} <= {*head}:
        return frozenset(), {}  # an exact grid is not spoilt by a head in 4 bits
    model = source.model
    named = parameters_by_name(model) if parameters is None else parameters
    with steps.step("measure sensitivity") as say:
        built.units = measure_sensitivity(model, linears, recipe, wanted.rows, named)
        size = least(replace(recipe, head=recipe.bits))
        if recipe.symmetric:  # without zero points of half a byte
            size -= sum(unit.elements // recipe.block // 2 for unit in built.units)
        chosen = _chosen(built.units, recipe, wanted, size)
        wide = frozenset(name for unit in chosen for name in unit.weights)
        say(f"{len(wide)} weights get 8 bits")
    with steps.step("calibrate") as say:
        grids = fit_grids(
            model, linears, recipe, wanted.rows, wide=wide, parameters=named, scaled=free
        )
        say(f"{len(grids)} weights fitted")
    built.fitted = len(grids)
    return wide, grids


def _chosen(units: Sequence[Unit], recipe: Recipe, wanted: Wanted, least: int) -> list[Unit]:
    if wanted.loss is not None:
        return choose_for_loss(units, wanted.loss)
    if wanted.size is None:
        return choose_for_size(units, recipe.wide * least)
    if wanted.size < least:
        raise UsageError(
            f"--target-size {bytes_text(int(wanted.size))} is too small: int4 takes "
            f"{bytes_text(least)} with every weight in 4 bits that can be"
        )
    return choose_for_size(units, _ROOM * (wanted.size - least))
