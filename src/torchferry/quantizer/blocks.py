"""Products with weights on grids of blocks: onnxruntime's MatMulNBits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.folding import Folded
from torchferry.quantizer.found import find_grid
from torchferry.quantizer.grid import Array, Grid, round_to_grid
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
        zeros: (N, bytes of the zero points of a row); ``None`` if all are the middle code, as the
            kernel takes them to be then, faster by a tenth.
        bits: 4 or 8.
        block: columns that share a scale.
        shape: (N, K).
        rests: (blocks, N): what the elements of a block have beside the grid's, where its zero
            point is no whole number; ``None`` if all are.
        factors: (K,): what the operand is multiplied by first; ``None`` for nothing.
    """

    codes: ir.Value
    scales: ir.Value
    zeros: ir.Value | None
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
        others = (self.zeros, self.rests, self.factors)
        return self.codes, self.scales, *(value for value in others if value is not None)


def store_blocks(
    linears: Sequence[Linear],
    recipe: Recipe,
    bits: int,
    scratch: Scratch,
    folded: Folded | None = None,
) -> Stored:
    """Quantize the weights of products of one operand, a few rows at a time, as one matrix.

    Rows that lie on a grid already stay on it.

    Args:
        linears: the products; the rows of their weights (N, K) stand below each other. Their
            grids have the same factors.
        recipe: the size of a block.
        bits: 4 or 8.
        scratch: gets the tensors.
        folded: codes that were found otherwise, by the weight's name, the nearest ones for others;
            and what rows and columns are multiplied by and divided.
    """
    folded = folded or Folded({})
    known = folded.grids

    def each() -> Iterator[Grid]:
        for one in linears:
            grid, start = known.get(one.name), 0
            columns, factors = folded.columns.get(one.name), folded.rows.get(one.name)
            for part in _grids(one, bits, recipe, columns) if grid is None else (grid,):
                stop = start + len(part.scales)
                yield part if factors is None else _with_rows(part, factors[start:stop])
                start = stop

    shape = (sum(one.shape[0] for one in linears), linears[0].shape[1])
    name = "+".join(one.name for one in linears)
    stored = _store(name, linears[0].weight, shape, each(), scratch)
    first = known.get(linears[0].name)
    if first is None or first.factors is None:
        return stored
    factors = first.factors.astype((linears[0].weight.dtype or ir.DataType.FLOAT).numpy())
    return replace(stored, factors=scratch.store(f"{name}.factors", [factors]))


def store_rows(
    table: Table, recipe: Recipe, bits: int, scratch: Scratch, folded: Folded | None = None
) -> Stored:
    """Quantize a table of which rows are looked up; the arguments are those of `store_blocks`."""
    rows = Linear(table.node, table.weight, swapped=True)
    return store_blocks([rows], recipe, bits, scratch, folded)


def _with_rows(grid: Grid, factors: Array) -> Grid:
    """The grid with every row multiplied by a number."""
    return replace(grid, scales=(grid.scales * factors[:, None]).astype(np.float32))


def _grids(linear: Linear, bits: int, recipe: Recipe, divisors: Array | None) -> Iterator[Grid]:
    block, (rows, columns) = recipe.block, linear.shape
    hqq = (recipe.fit, bits, columns % block) == ("hqq", 4, 0)
    fit = fit_zeros if hqq else round_to_grid
    step = max(1, _CHUNK // (4 * columns))
    for start in range(0, rows, step):
        matrix = linear.rows(start, start + step)
        matrix = matrix if divisors is None else matrix / divisors
        yield find_grid(matrix, bits, block, linear.rounding) or fit(matrix, bits, block)


def _store(
    name: str,
    weight: ir.Value,
    shape: tuple[int, int],
    grids: Iterator[Grid],
    scratch: Scratch,
) -> Stored:
    parts: list[tuple[Array, Array, Array | None]] = []  # an eighth of the codes and less
    kinds: list[tuple[int, int, bool]] = []

    def codes() -> Iterator[Array]:
        for grid in grids:
            whole, beside = grid.divided()
            packed, zeros = whole.packed()
            centred = bool((whole.zeros == 2 ** (grid.bits - 1)).all())
            kinds.append((grid.bits, grid.block, centred))
            parts.append((whole.scales, zeros, beside if beside.any() else None))
            yield packed

    stored = scratch.store(f"{name}.codes", codes())
    bits, block, _ = kinds[0]
    dtype = (weight.dtype or ir.DataType.FLOAT).numpy()
    centred = all(kind[2] for kind in kinds)
    return Stored(
        stored,
        scratch.store(f"{name}.scales", (scales.astype(dtype) for scales, _, _ in parts)),
        None if centred else scratch.store(f"{name}.zeros", (zeros for _, zeros, _ in parts)),
        bits,
        block,
        shape,
        _store_rests(name, parts, scratch),
    )


def _store_rests(
    name: str, parts: Sequence[tuple[Array, Array, Array | None]], scratch: Scratch
) -> ir.Value | None:
    if all(rests is None for _, _, rests in parts):
        return None
    scales = np.concatenate([part[0] for part in parts])
    rests = np.concatenate([np.zeros_like(x) if rest is None else rest for x, _, rest in parts])
    return scratch.store(f"{name}.rests", [_shortened(rests, scales).T])


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
        [operand, stored.codes, stored.scales, *(() if stored.zeros is None else (stored.zeros,))],
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

    def constant(self, content: Any, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
        """Write numbers."""
        return self.add("Constant", value=ir.tensor(np.array(content, dtype.numpy())))

    def halves(self, packed: ir.Value, sizes: ir.Value) -> ir.Value:
        """The numbers of four bits that stand two in a byte, the lower first, in a shape."""
        last, kind = self.constant([-1]), ir.DataType.INT32
        wide, base = self.add("Cast", packed, to=kind), self.constant(16, kind)
        pairs = [
            self.add("Unsqueeze", self.add(name, wide, base), last) for name in ("Mod", "Div")
        ]
        return self.add("Reshape", self.add("Concat", *pairs, axis=-1), sizes)


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
    matrix of codes is the one that MatMulNBits reads, so that a tied head shares it.
    """
    columns, blocks = stored.shape[1], -(-stored.shape[1] // stored.block)
    ids = table.node.inputs[1]
    kind = table.weight.dtype or ir.DataType.FLOAT
    nodes = _Nodes()
    add, constant = nodes.add, nodes.constant

    def picked(value: ir.Value) -> ir.Value:
        return add("Gather", value, ids, axis=0)

    def sizes(*rest: int) -> ir.Value:
        return add("Concat", add("Shape", ids), constant(rest), axis=0)

    last = constant([-1])
    codes, zeros = picked(stored.codes), None if stored.zeros is None else picked(stored.zeros)
    if stored.bits == 4:
        codes = nodes.halves(codes, sizes(blocks, stored.block))
        if zeros is not None:
            pairs = nodes.halves(zeros, sizes(blocks + blocks % 2))
            zeros = add("Slice", pairs, constant([0]), constant([blocks]), last)
    if zeros is None:
        middle = constant(2 ** (stored.bits - 1), kind)
    else:
        middle = add("Unsqueeze", add("Cast", zeros, to=kind), last)
    scales = add("Unsqueeze", picked(stored.scales), last)
    values = add("Mul", add("Sub", add("Cast", codes, to=kind), middle), scales)
    whole = blocks * stored.block
    row = add("Reshape", values, sizes(whole))
    if whole != columns:
        add("Slice", row, constant([0]), constant([columns]), last)
    return nodes
