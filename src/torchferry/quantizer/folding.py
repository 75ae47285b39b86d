"""Factors of inputs, put into what makes an input, where they cost nothing.

A normalization multiplies by a row of constants anyway; and of a product of two values one can be
that of a matrix, whose rows are multiplied as they are stored. Elsewhere factors take a node.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.grid import Array, Grid
from torchferry.quantizer.linears import Linear

__all__ = ["Folded", "find_free", "fold_factors"]

_NORMS = ("RMSNormalization", "SimplifiedLayerNormalization", "LayerNormalization")


@dataclass
class Folded:
    """Where factors went.

    Attributes:
        grids: by the weight's name, without the factors that are elsewhere now.
        rows: what the rows of a weight are multiplied by as it is stored, (N,), by name.
        columns: what the columns of a weight without a grid are divided by, (K,), by name.
    """

    grids: dict[str, Grid]
    rows: dict[str, Array] = field(default_factory=dict)
    columns: dict[str, Array] = field(default_factory=dict)


def find_free(linears: Sequence[Linear], kept: Collection[str] = ()) -> set[str]:
    """Names of the weights whose inputs can be multiplied without a node more.

    Args:
        linears: of one graph or several.
        kept: names of those whose columns cannot be divided, as they stay on a grid.
    """
    by_node = {one.node: one for one in linears}
    free = set()
    for one in linears:
        readers = _readers(one, by_node)
        if readers is None or any(reader.name in kept for reader in readers):
            continue
        if _norm_of(one) is not None or _maker_of(one, by_node) is not None:
            free.add(one.name)
    return free


def fold_factors(
    graph: ir.Graph, linears: Sequence[Linear], grids: Mapping[str, Grid], wide: Collection[str]
) -> Folded:
    """Put factors of grids into normalizations, and into the rows of other weights.

    Args:
        graph: its normalizations change.
        linears: all of it.
        grids: by the weight's name.
        wide: names of weights whose columns may be divided: they have no grid, and many bits.
    """
    folded = Folded(dict(grids))
    by_node = {one.node: one for one in linears}
    for one in linears:
        grid = folded.grids.get(one.name)
        readers = _readers(one, by_node)
        if grid is None or grid.factors is None or readers is None:
            continue
        known = [folded.grids.get(reader.name) for reader in readers]
        others = [r for r, seen in zip(readers, known, strict=True) if seen is None]
        same = all(seen.factors is grid.factors for seen in known if seen is not None)
        if not same or not {reader.name for reader in others} <= {*wide}:
            continue
        if not _fold(graph, one, by_node, grid.factors, folded):
            continue
        for reader in readers:
            if reader in others:
                folded.columns[reader.name] = grid.factors
            else:
                folded.grids[reader.name] = replace(folded.grids[reader.name], factors=None)
    return folded


def _readers(linear: Linear, by_node: Mapping[ir.Node, Linear]) -> list[Linear] | None:
    """The products that read an operand, each of a weight of its own; nothing if others do."""
    operand = linear.node.inputs[0]
    if operand is None or operand.is_graph_output():
        return None
    nodes = list(operand.consumers())
    readers = [by_node[node] for node in nodes if node in by_node]
    alone = len(readers) == len(nodes) and all(_is_alone(reader) for reader in readers)
    return readers if alone else None


def _is_alone(linear: Linear) -> bool:
    """Whether nothing else reads a weight, through a Transpose neither."""
    value = linear.node.inputs[1]
    values = [linear.weight] if value is None or value is linear.weight else [linear.weight, value]
    return all(len(list(one.uses())) == 1 for one in values) and (
        linear.node.inputs[0] is not value
    )


def _norm_of(linear: Linear) -> ir.Node | None:
    """The normalization over the last axis that makes an operand, if its rows are constants."""
    operand = linear.node.inputs[0]
    norm = None if operand is None else operand.producer()
    if norm is None or norm.domain or norm.op_type not in _NORMS or operand is not norm.outputs[0]:
        return None
    rank = None if operand.shape is None else operand.shape.rank()
    if norm.attributes.get_int("axis", -1) not in (-1, rank and rank - 1):
        return None
    rows = [value for value in norm.inputs[1:] if value is not None]
    constant = all(value.const_value is not None and value.is_initializer() for value in rows)
    return norm if constant and rows else None


def _maker_of(linear: Linear, by_node: Mapping[ir.Node, Linear]) -> Linear | None:
    """The product without a bias that is one factor of an operand, and read by nothing else."""
    operand = linear.node.inputs[0]
    product = None if operand is None else operand.producer()
    if product is None or product.domain or product.op_type != "Mul":
        return None
    for value in product.inputs:
        maker = None if value is None else value.producer()
        found = None if maker is None else by_node.get(maker)
        if found is None or value is None or value.is_graph_output():
            continue
        plain = len(found.node.inputs) == 2 and len(list(value.uses())) == 1
        if plain and found.shape[0] == linear.shape[1] and _is_alone(found):
            return found
    return None


def _fold(
    graph: ir.Graph,
    linear: Linear,
    by_node: Mapping[ir.Node, Linear],
    factors: Array,
    folded: Folded,
) -> bool:
    maker = _maker_of(linear, by_node)
    if maker is not None:
        folded.rows[maker.name] = factors
        return True
    norm = _norm_of(linear)
    if norm is None:
        return False
    scaled = []
    for place, value in enumerate(norm.inputs[1:], 1):
        if value is not None and value.const_value is not None:
            with np.errstate(over="ignore"):
                content = value.const_value.numpy() * factors
                content = content.astype(value.const_value.numpy().dtype)
            if not np.isfinite(content).all():  # of half precision
                return False
            scaled.append((place, value, content))
    for place, value, content in scaled:
        name = f"{value.name}.scaled"
        while name in graph.initializers:  # two norms may share their row
            name += "_"
        new = ir.Value(
            name=name, const_value=ir.tensor(content, name=name), shape=value.shape,
            type=value.type,
        )  # fmt: skip
        graph.register_initializer(new)
        norm.replace_input_with(place, new)
        if not list(value.uses()):
            del graph.initializers[str(value.name)]
    return True
