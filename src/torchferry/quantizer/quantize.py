"""From an ONNX file to one with quantized weights, streamed."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.quantizer.blocks import (
    MICROSOFT,
    Stored,
    look_up,
    multiply,
    store_blocks,
    store_rows,
)
from torchferry.quantizer.dynamic import look_up_dynamic, multiply_dynamic, store_table
from torchferry.quantizer.folding import fold_factors
from torchferry.quantizer.grid import Grid
from torchferry.quantizer.linears import Linear, Table, find_linears, find_tables
from torchferry.quantizer.recipe import Recipe
from torchferry.quantizer.scratch import Scratch
from torchferry.quantizer.static import (
    Convolution,
    Range,
    find_convolutions,
    quantize_convolutions,
)

__all__ = ["Quantized", "quantize_file"]

_OLDEST = 14  # of the operators that look rows up: Reshape as it is written
_TOGETHER = 4  # products of one operand that become one


@dataclass(frozen=True)
class Quantized:
    """What became of the weights.

    Attributes:
        path: the written model.
        bits: of each quantized weight, by name.
        nbytes: of the written model and its data.
    """

    path: Path
    bits: Mapping[str, int]
    nbytes: int


def quantize_file(
    source: Path,
    path: Path,
    recipe: Recipe,
    *,
    wide: Collection[str] = (),
    grids: Mapping[str, Grid] | None = None,
    seen: Mapping[str, Range] | None = None,
    floats: Collection[str] = (),
) -> Quantized:
    """Write a model with the weights of its products and look-ups in few bits.

    The weights are read from the source's files a few rows at a time, so that the memory it takes
    does not grow with the model; both files are complete or not there.

    Args:
        source: the model in floating point.
        path: ``.../model_q4.onnx``.
        recipe: one of `RECIPES`, or your own.
        wide: names of weights that get 8 bits whatever the recipe says.
        grids: codes found otherwise, by the weight's name, for weights that are not in ``wide``.
        seen: ranges by name, of the values that convolutions read and give; these get 8 bits too.
        floats: names of weights of convolutions that stay as they are.

    Raises:
        UsageError: the model cannot be read, has nothing to quantize or an opset that is too old,
            or the files cannot be written.
    """
    model = io.load(source)
    convolutions = [
        one
        for one in find_convolutions(model.graph)
        if one.name not in floats and {*one.values} <= {*(seen or {})}
    ]
    _check(model, source, recipe, convolutions)
    try:
        with Scratch(path.with_name(f".torchferry-{secrets.token_hex(8)}.scratch")) as scratch:
            bits = _quantize(model, recipe, scratch, wide, grids or {})
            bits |= quantize_convolutions(model.graph, convolutions, seen or {}, scratch)
            io.save(model, path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror or error}") from error
    size = sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*"))
    return Quantized(path, bits, size)


def _check(
    model: ir.Model, source: Path, recipe: Recipe, convolutions: Collection[Convolution]
) -> None:
    opset = model.opset_imports.get("", 0)
    if opset < _OLDEST:
        raise UsageError(
            f"{source} has opset {opset}, and {recipe.name} needs {_OLDEST} at least: export the "
            "model again, without --opset"
        )
    linears = list(find_linears(model.graph))
    if not linears and not convolutions and not [*find_tables(model.graph)]:
        raise UsageError(f"{source} has no product with a constant matrix: use fp32 or fp16")
    half = {linear.weight.dtype for linear in linears} - {ir.DataType.FLOAT}
    if recipe.kernel == "dynamic" and half:
        raise UsageError(f"{recipe.name} needs a float32 model, and {source} holds {half.pop()}")


def _quantize(
    model: ir.Model,
    recipe: Recipe,
    scratch: Scratch,
    wide: Collection[str],
    grids: Mapping[str, Grid],
) -> dict[str, int]:
    """Bits of each weight, by name."""
    graph = model.graph
    linears, tables = list(find_linears(graph)), list(find_tables(graph))
    weights = {linear.weight for linear in linears} | {table.weight for table in tables}
    if recipe.kernel == "dynamic":
        bits = _quantize_dynamic(graph, linears, tables, scratch)
    else:
        bits = _quantize_blocks(graph, linears, tables, recipe, scratch, wide=wide, grids=grids)
        model.opset_imports[MICROSOFT] = 1
    _remove_unread(graph, weights)
    return bits


def _quantize_dynamic(
    graph: ir.Graph, linears: list[Linear], tables: list[Table], scratch: Scratch
) -> dict[str, int]:
    stored: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
    for table in tables:
        if table.weight not in stored:
            stored[table.weight] = store_table(table, scratch)
        rows = stored[table.weight]
        _replace(graph, table.node, look_up_dynamic(table, rows), rows)
    for linear in linears:
        _replace(graph, linear.node, *multiply_dynamic(linear, scratch, stored.get(linear.weight)))
    return {str(v.name): 8 for v in stored} | {linear.name: 8 for linear in linears}


def _quantize_blocks(
    graph: ir.Graph,
    linears: list[Linear],
    tables: list[Table],
    recipe: Recipe,
    scratch: Scratch,
    *,
    wide: Collection[str],
    grids: Mapping[str, Grid],
) -> dict[str, int]:
    stored: dict[ir.Value, Stored] = {}
    bits: dict[str, int] = {}
    counts = _count_bits(linears, recipe, wide, grids)
    many = {one.name for one in linears if counts[one.weight] != recipe.bits}
    known = {name: grid for name, grid in grids.items() if name not in many}
    folded = fold_factors(graph, linears, known, many)
    for table in tables:
        weight = table.weight
        if weight not in stored:
            bits[str(weight.name)] = counts.get(weight, 8)
            stored[weight] = store_rows(table, recipe, counts.get(weight, 8), scratch, folded)
        _replace(graph, table.node, look_up(table, stored[weight]), stored[weight].values)
    for group in _groups(linears, counts, stored, folded.grids):
        weight, count = group[0].weight, counts[group[0].weight]
        if weight not in stored:
            stored[weight] = store_blocks(group, recipe, count, scratch, folded)
            bits |= {one.name: count for one in group}
        nodes, outputs = multiply(group, stored[weight], recipe)
        _replace_all(graph, [one.node for one in group], nodes, outputs, stored[weight].values)
    return bits


def _count_bits(
    linears: Sequence[Linear], recipe: Recipe, wide: Collection[str], fitted: Collection[str]
) -> dict[ir.Value, int]:
    """Bits of each weight. The head is the last product; a graph of look-ups alone has none."""
    counts = {one.weight: recipe.bits for one in linears}
    if linears and linears[-1].name not in fitted:
        counts[linears[-1].weight] = recipe.head
    return counts | {one.weight: 8 for one in linears if one.name in wide}


def _groups(
    linears: Sequence[Linear],
    counts: Mapping[ir.Value, int],
    stored: Collection[ir.Value],
    grids: Mapping[str, Grid],
) -> list[list[Linear]]:
    """Products of one operand in the same number of bits, as those of attention; others alone.

    Together they round the operand to eight bits once, and a thread gets more rows at a time.
    """
    uses = Counter(one.weight for one in linears)
    groups: dict[tuple[object, ...], list[Linear]] = {}
    for number, one in enumerate(linears):
        alone = uses[one.weight] > 1 or one.weight in stored
        factors = grids[one.name].factors if one.name in grids else None
        shared = one.node.inputs[0], counts[one.weight], one.weight.dtype, id(factors)
        key: tuple[object, ...] = (number,) if alone else shared
        group = groups.setdefault(key, [])
        if len(group) == _TOGETHER:  # what is computed at once is in memory twice
            groups[number, *key] = group
            groups[key] = group = []
        group.append(one)
    return list(groups.values())


def _replace(
    graph: ir.Graph, old: ir.Node, nodes: list[ir.Node], initializers: Collection[ir.Value]
) -> None:
    """Put nodes in the place of one; the last of them makes its output."""
    _replace_all(graph, [old], nodes, [nodes[-1].outputs[0]], initializers)


def _replace_all(
    graph: ir.Graph,
    old: Sequence[ir.Node],
    nodes: Sequence[ir.Node],
    outputs: Sequence[ir.Value],
    initializers: Collection[ir.Value],
) -> None:
    """Put nodes in the place of others, where the first stands, each with an output of its own."""
    for value in initializers:
        if value.name not in graph.initializers:
            graph.register_initializer(value)
    graph.insert_before(old[0], nodes)
    for node, after in zip(old, outputs, strict=True):
        before = node.outputs[0]
        after.type, after.shape, after.name = before.type, before.shape, before.name
        ir.convenience.replace_all_uses_with(before, after, replace_graph_outputs=True)
    graph.remove(list(old), safe=True)


def _remove_unread(graph: ir.Graph, weights: Collection[ir.Value]) -> None:
    for weight in weights:
        for node in list(weight.consumers()):
            if node.op_type == "Transpose" and not list(node.outputs[0].consumers()):
                graph.remove(node, safe=True)
        if not list(weight.consumers()):
            del graph.initializers[str(weight.name)]
