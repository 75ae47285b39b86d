"""Products in int8 whose activations are quantized as they come: MatMulInteger."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.quantizer.grid import Array
from torchferry.quantizer.linears import Linear, Table
from torchferry.quantizer.scratch import Scratch

__all__ = ["look_up_dynamic", "multiply_dynamic", "round_rows", "store_table"]


def round_rows(matrix: Array) -> tuple[Array, Array]:
    """int8 codes and one float32 scale for each row of a matrix: symmetric, without zero point."""
    scales = np.abs(matrix).max(1, keepdims=True).astype(np.float32) / np.float32(127)
    scales[scales < np.finfo(np.float32).tiny] = 1
    return np.round(matrix / scales).astype(np.int8), scales[:, 0]


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
    cast = add("Cast", add("MatMulInteger", x, weight, zero), to=ir.DataType.FLOAT)
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
    result = ir.node("Mul", [cast.outputs[0], scale.outputs[0]])
    return [code, scale, cast, result]
