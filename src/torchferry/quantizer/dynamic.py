"""Products in int8 whose activations are quantized as they come: MatMulInteger.

The codes of weights are unsigned, with a zero point of 128: processors without instructions for
this (VNNI) add signed ones up in 16 bits, and onnxruntime's results saturate there. Where there
are such instructions both take as long.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.grid import Array
from torchferry.quantizer.linears import Linear, Table
from torchferry.quantizer.scratch import Scratch

__all__ = ["ZERO", "look_up_dynamic", "multiply_dynamic", "round_rows", "store_table"]


ZERO = 128


def round_rows(matrix: Array) -> tuple[Array, Array]:
    """uint8 codes, 128 for 0, and one float32 scale for each row of a matrix."""
    scales = np.abs(matrix).max(1, keepdims=True).astype(np.float32) / np.float32(127)
    scales[scales < np.finfo(np.float32).tiny] = 1
    return (np.round(matrix / scales) + ZERO).astype(np.uint8), scales[:, 0]


def multiply_dynamic(
    linear: Linear, scratch: Scratch, rows: tuple[ir.Value, ir.Value] | None = None
) -> tuple[list[ir.Node], list[ir.Value]]:
    """The nodes that take the place of a product, and their initializers.

    onnxruntime makes one kernel of them when it loads the model.

    Args:
        linear: the product.
        scratch: gets the tensors.
        rows: codes (N, K) and scales (N, 1) of the same weight, that a look-up reads already.
    """
    nodes: list[ir.Node] = []

    def add(op_type: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        nodes.append(ir.node(op_type, inputs, attributes))
        return nodes[-1].outputs[0]

    if rows is None:
        codes, scales = round_rows(linear.rows(0, linear.shape[0]))
        weight = scratch.store(f"{linear.name}.codes", [np.ascontiguousarray(codes.T)])
        factor = scratch.store(f"{linear.name}.scales", [scales])
        new = [weight, factor]
    else:
        weight, factor = (add("Transpose", value, perm=[1, 0]) for value in rows)
        new = []
    quantize = ir.node("DynamicQuantizeLinear", [linear.node.inputs[0]], num_outputs=3)
    nodes.append(quantize)
    x, scale, zero = quantize.outputs
    offset = add("Constant", value=ir.tensor(np.array(ZERO, np.uint8)))
    cast = add("Cast", add("MatMulInteger", x, weight, zero, offset), to=ir.DataType.FLOAT)
    result = add("Mul", cast, add("Mul", scale, factor))
    bias = linear.node.inputs[2] if len(linear.node.inputs) > 2 else None
    if bias is not None:
        add("Add", result, bias)
    return nodes, new


def store_table(table: Table, scratch: Scratch) -> tuple[ir.Value, ir.Value]:
    """Codes (N, K) and scales (N, 1) of a table of which rows are looked up."""
    content = Linear(table.node, table.weight, swapped=True)
    codes, scales = round_rows(content.rows(0, content.shape[0]))
    rows = scratch.store(f"{content.name}.codes", [codes])
    return rows, scratch.store(f"{content.name}.scales", [scales[:, None]])


def look_up_dynamic(table: Table, rows: tuple[ir.Value, ir.Value]) -> list[ir.Node]:
    """The nodes that take the place of a look-up of rows."""
    ids = table.node.inputs[1]
    code, scale = (ir.node("Gather", [value, ids], {"axis": 0}) for value in rows)
    cast = ir.node("Cast", [code.outputs[0]], {"to": ir.DataType.FLOAT})
    zero = ir.node("Constant", [], {"value": ir.tensor(np.array(ZERO, np.float32))})
    moved = ir.node("Sub", [cast.outputs[0], zero.outputs[0]])
    result = ir.node("Mul", [moved.outputs[0], scale.outputs[0]])
    return [code, scale, cast, zero, moved, result]
