"""Products of groups of rows, each with a matrix of its own: mixtures of experts."""

from __future__ import annotations

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.control.repetition import name_inside
from torchferry.seams.operators import aten

__all__: list[str] = []


@lowers(aten._grouped_mm.default)
def _grouped_mm(
    b: Block,
    x: ir.Value,
    mat2: ir.Value,
    offs: ir.Value | None = None,
    bias: ir.Value | None = None,
    out_dtype: torch.dtype | None = None,
) -> ir.Value:
    if bias is not None:
        raise ValueError("a bias of groups is not defined by PyTorch yet, add it afterwards")
    left, right = len(x.shape or ()), len(mat2.shape or ())
    if offs is None:
        result = b.MatMul(x, mat2)
    elif (left, right) == (2, 3):
        result = _rows_by_group(b, x, mat2, offs)
    else:
        raise ValueError(
            f"groups of a {left}-dimensional and a {right}-dimensional matrix, only rows of a "
            "2-dimensional one are grouped"
        )
    return result if out_dtype is None else b.cast(result, out_dtype)


@lowers("transformers::grouped_mm_fallback")
def grouped_mm_fallback(b: Block, x: ir.Value, weight: ir.Value, offs: ir.Value) -> ir.Value:
    """Transformers' own operator for devices without a grouped product."""
    return _rows_by_group(b, x, weight, offs)


def _rows_by_group(b: Block, x: ir.Value, mat2: ir.Value, offs: ir.Value) -> ir.Value:
    """A loop over groups: rows ``offs[g-1]`` to ``offs[g]`` of ``x`` times ``mat2[g]``.

    What it does with rows behind the last offset is not defined; they go to the last group.
    """
    # onnxruntime multiplies no bfloat16 matrices, and ONNX has no sequences of them
    dtype = ir.DataType.FLOAT if x.dtype == ir.DataType.BFLOAT16 else x.dtype or ir.DataType.FLOAT
    ends = b.cast(offs, ir.DataType.INT64)
    inner = b.inner()
    turn, going = _input(ir.DataType.INT64), _input(ir.DataType.BOOL)
    done = ir.Value(type=ir.SequenceType(ir.TensorType(dtype)))
    groups = b.dim(mat2, 0)
    last = b.constant([2**62])
    bounds = b.Concat(b.constant([0]), b.Slice(ends, [0], [-1], [0]), last, axis=0)
    here = inner.Unsqueeze(turn, [0])
    start = inner.Gather(bounds, here)
    end = inner.Gather(bounds, inner.Add(here, 1))
    rows = inner.cast(inner.Slice(x, start, end, [0]), dtype)
    part = inner.MatMul(rows, inner.cast(inner.Gather(mat2, turn), dtype))
    grown = inner.SequenceInsert(done, part)
    grown.type = done.type
    kept = inner.Identity(going)
    inputs = [turn, going, done]
    body = b.graph(inner, inputs, [kept, grown], name_inside(b, "groups", inner, inputs))
    empty = b.SequenceEmpty(dtype=dtype.value)
    empty.type = done.type
    products = b.Loop(b.scalar(groups), b.constant(True), empty, body=body)
    products.type = done.type
    result = b.ConcatFromSequence(products, axis=0)
    result.type = ir.TensorType(dtype)
    return b.cast(result, x)


def _input(dtype: ir.DataType) -> ir.Value:
    return ir.Value(type=ir.TensorType(dtype), shape=ir.Shape([]))
