"""Products with weights on grids of blocks: onnxruntime's MatMulNBits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.found import find_grid
from torchferry.quantizer.grid import Array, Grid, join_rows, round_to_grid
from torchferry.quantizer.hqq import fit_zeros
from torchferry.quantizer.linears import Linear, Table
from torchferry.quantizer.recipe import Recipe
from torchferry.quantizer.scratch import Scratch

__all__ = ["Stored", "look_up", "multiply", "store_blocks", "store_rows"]

MICROSOFT = "com.microsoft"
_CHUNK = 2**25  # bytes of float32 that are quantized at once
_FINE = 2.0**-10


@dataclass(frozen=True)
class Stored:
    """A quantized matrix in a graph.

    Attributes:
        codes: (N, blocks, bytes of a block).
        scales: (N, blocks), in the dtype of the activations.
        zeros: (N, bytes of the zero points of a row).
        bits: 4 or 8.
        block: columns that share a scale.
        shape: (N, K).
        rests: (blocks, N): what the elements of a block have beside the grid's, where its zero
            point is no whole number; ``None`` if all are.
        factors: (K,): what the operand is multiplied by first; ``None`` for nothing.
    """

    codes: ir.Value
    scales: ir.Value
    zeros: ir.Value
    bits: int
    block: int
    shape: tuple[int, int]
    rests: ir.Value | None = None
    factors: ir.Value | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return sum(v.const_value.nbytes for v in self.values if v.const_value is not None)

    @property
    def values(self) -> tuple[ir.Value, ...]:
        """The initializers."""
        others = [value for value in (self.rests, self.factors) if value is not None]
        return self.codes, self.scales, self.zeros, *others


def store_blocks(
    linears: Sequence[Linear],
    recipe: Recipe,
    bits: int,
    scratch: Scratch,
    grids: Mapping[str, Grid] | None = None,
) -> Stored:
    """Quantize the weights of products of one operand, a few rows at a time, as one matrix.

    Rows that lie on a grid already stay on it.

    Args:
        linears: the products; the rows of their weights (N, K) stand below each other. Their
            grids have the same factors.
        recipe: the size of a block.
        bits: 4 or 8.
        scratch: gets the tensors.
        grids: codes that were found otherwise, by the weight's name; the nearest ones for others.
    """
    known = grids or {}

    def each() -> Iterator[Grid]:
        for one in linears:
            grid = known.get(one.name)
            yield from _grids(one, bits, recipe) if grid is None else (grid,)

    shape = (sum(one.shape[0] for one in linears), linears[0].shape[1])
    name = "+".join(one.name for one in linears)
    stored = _store(name, linears[0].weight, shape, each(), scratch)
    first = known.get(linears[0].name)
    if first is None or first.factors is None:
        return stored
    factors = first.factors.astype((linears[0].weight.dtype or ir.DataType.FLOAT).numpy())
    return replace(stored, factors=scratch.store(f"{name}.factors", [factors]))


def store_rows(table: Table, recipe: Recipe, scratch: Scratch) -> Stored:
    """Quantize a table of which rows are looked up."""
    return store_blocks([Linear(table.node, table.weight, swapped=True)], recipe, 8, scratch)


def _grids(linear: Linear, bits: int, recipe: Recipe) -> Iterator[Grid]:
    block, (rows, columns) = recipe.block, linear.shape
    hqq = (recipe.fit, bits, columns % block) == ("hqq", 4, 0)
    fit = fit_zeros if hqq else round_to_grid
    step = max(1, _CHUNK // (4 * columns))
    for start in range(0, rows, step):
        matrix = linear.rows(start, start + step)
        yield find_grid(matrix, bits, block, linear.rounding) or fit(matrix, bits, block)


def _store(
    name: str,
    weight: ir.Value,
    shape: tuple[int, int],
    grids: Iterator[Grid],
    scratch: Scratch,
) -> Stored:
    small: list[Grid] = []  # scales and zero points are an eighth of the codes and less

    def codes() -> Iterator[Array]:
        for grid in grids:
            packed, _ = grid.divided()[0].packed()
            small.append(Grid(grid.codes[:, :0], grid.scales, grid.zeros, grid.bits, 0))
            bits_and_block.append((grid.bits, grid.block))
            yield packed

    bits_and_block: list[tuple[int, int]] = []
    stored = scratch.store(f"{name}.codes", codes())
    whole, rests = join_rows(small).divided()
    bits, block = bits_and_block[0]
    dtype = (weight.dtype or ir.DataType.FLOAT).numpy()
    return Stored(
        stored,
        scratch.store(f"{name}.scales", [whole.scales.astype(dtype)]),
        scratch.store(f"{name}.zeros", [whole.packed()[1]]),
        bits,
        block,
        shape,
        scratch.store(f"{name}.rests", [_shortened(rests, whole.scales).T])
        if rests.any()
        else None,
    )


def _shortened(rests: Array, scales: Array) -> Array:
    """Numbers in half the bytes, if that moves none by more than a thousandth of a step."""
    with np.errstate(over="ignore"):
        half = rests.astype(np.float16)
    moved = np.abs(half.astype(np.float32) - rests)
    return half if (moved <= scales * _FINE).all() else rests


def multiply(
    linears: Sequence[Linear], stored: Stored, recipe: Recipe
) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes that take the place of products of one operand, and the output of each."""
    first = linears[0].node
    operand, nodes = first.inputs[0], list[ir.Node]()
    if stored.factors is not None:
        nodes.append(ir.node("Mul", [operand, stored.factors]))
        operand = nodes[0].outputs[0]
    product = ir.node(
        "MatMulNBits",
        [operand, stored.codes, stored.scales, stored.zeros],
        {
            "K": stored.shape[1],
            "N": stored.shape[0],
            "bits": stored.bits,
            "block_size": stored.block,
            "accuracy_level": recipe.accuracy,
        },
        domain=MICROSOFT,
        name=first.name,
    )
    nodes.append(product)
    parts = list(product.outputs)
    if stored.rests is not None:
        nodes += _add_rests(operand, product, stored, stored.rests)
        parts = list(nodes[-1].outputs)
    if len(linears) > 1:
        content = np.array([one.shape[0] for one in linears], np.int64)
        sizes = ir.node("Constant", [], {"value": ir.tensor(content)})
        parted = ir.node("Split", [*parts, *sizes.outputs], {"axis": -1}, num_outputs=len(linears))
        nodes, parts = [*nodes, sizes, parted], list(parted.outputs)
    for place, one in enumerate(linears):
        bias = one.node.inputs[2] if len(one.node.inputs) > 2 else None
        if bias is not None:
            nodes.append(ir.node("Add", [parts[place], bias]))
            parts[place] = nodes[-1].outputs[0]
    return nodes, parts


class _Nodes(list[ir.Node]):
    """Nodes of standard operators, written one after the other."""

    def add(self, op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Write a node, and return its output."""
        self.append(ir.node(op_type, inputs, attributes))
        return self[-1].outputs[0]

    def constant(self, content: list[int]) -> ir.Value:
        """Write integers."""
        return self.add("Constant", value=ir.tensor(np.array(content, np.int64)))


def _add_rests(
    x: ir.Value | None, product: ir.Node, stored: Stored, rests: ir.Value
) -> list[ir.Node]:
    """Nodes that add the product of the sums of each block of ``x`` and what a block has beside.

    onnxruntime takes zero points that are no whole numbers too, but is many times slower then.
    """
    nodes = _Nodes()
    add, constant = nodes.add, nodes.constant
    outer = add("Slice", add("Shape", x), constant([0]), constant([-1]))
    shape = add("Concat", outer, constant([stored.shape[1] // stored.block, stored.block]), axis=0)
    sums = add("ReduceSum", add("Reshape", x, shape), constant([-1]), keepdims=0)
    kind = stored.scales.dtype
    thin = rests if rests.dtype == kind else add("Cast", rests, to=kind)
    add("Add", product.outputs[0], add("MatMul", sums, thin))
    return nodes


def look_up(table: Table, stored: Stored) -> list[ir.Node]:
    """The nodes that take the place of a look-up of rows, in standard operators.

    onnxruntime has an operator for this, GatherBlockQuantized, but not for WebAssembly. The
    matrix of 8-bit codes is the one that MatMulNBits reads, so that a tied head shares it.
    """
    columns = stored.shape[1]
    ids = table.node.inputs[1]
    kind = table.weight.dtype or ir.DataType.FLOAT
    nodes = _Nodes()
    add, constant = nodes.add, nodes.constant

    def picked(value: ir.Value) -> ir.Value:
        return add("Gather", value, ids, axis=0)

    last = constant([-1])
    zeros = add("Unsqueeze", add("Cast", picked(stored.zeros), to=kind), last)
    scales = add("Unsqueeze", picked(stored.scales), last)
    codes = add("Cast", picked(stored.codes), to=kind)
    blocks = add("Mul", add("Sub", codes, zeros), scales)
    whole = -(-columns // stored.block) * stored.block
    shape = add("Concat", add("Shape", ids), constant([whole]), axis=0)
    row = add("Reshape", blocks, shape)
    if whole != columns:
        add("Slice", row, constant([0]), constant([columns]), last)
    return nodes
