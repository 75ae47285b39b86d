"""Which dtypes onnxruntime's CPU kernels compute, and what to do for the others.

onnxruntime puts casts around float16 nodes that lack a kernel by itself; for integers, bool and
float64 it refuses the model.
"""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.converter.block import Block

__all__ = ["is_floating", "is_integer", "single", "widened"]

_FLOATS = (
    ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE, ir.DataType.BFLOAT16,
    ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E4M3FNUZ,
    ir.DataType.FLOAT8E5M2FNUZ,
)  # fmt: skip
_BY_CODE = {
    "f": ir.DataType.FLOAT, "d": ir.DataType.DOUBLE, "?": ir.DataType.BOOL,
    "b": ir.DataType.INT8, "h": ir.DataType.INT16, "i": ir.DataType.INT32,
    "q": ir.DataType.INT64, "B": ir.DataType.UINT8, "H": ir.DataType.UINT16,
    "I": ir.DataType.UINT32, "Q": ir.DataType.UINT64,
}  # fmt: skip
# Operator: its kernels, in the codes of Python's struct module; from
# onnxruntime.capi.onnxruntime_pybind11_state.get_all_opkernel_def() of 1.25 to 1.32: what every
# one has, so that a model runs on each; but for Cos of float64, which nothing else computes.
_CODES = {
    "Abs": "fdbhiqBHIQ",
    "Acos": "f",
    "Acosh": "f",
    "Asin": "f",
    "Asinh": "f",
    "Atan": "f",
    "Atanh": "f",
    "Ceil": "fd",
    "Celu": "f",
    "Clip": "fdiqbBIQ",
    "Cos": "fd",
    "Cosh": "f",
    "CumSum": "fdiq",
    "Elu": "f",
    "Erf": "f",
    "Exp": "fd",
    "Floor": "fd",
    "Gelu": "f",
    "Greater": "fdbhiqBHIQ",
    "GreaterOrEqual": "fdbhiqBHIQ",
    "HardSigmoid": "f",
    "LeakyRelu": "f",
    "Less": "fdbhiqBHIQ",
    "LessOrEqual": "fdbhiqBHIQ",
    "Log": "fd",
    "LogSoftmax": "fd",
    "Max": "fdiqbBIQ",
    "Min": "fdiqbBIQ",
    "Mish": "f",
    "Neg": "fdbhiq",
    "PRelu": "f",
    "Pow": "fdiq",
    "Reciprocal": "fd",
    "ReduceL1": "fdiq",
    "ReduceL2": "fdiq",
    "ReduceMax": "fd?iqbB",
    "ReduceMean": "fdiq",
    "ReduceMin": "fd?iqbB",
    "ReduceProd": "fdiq",
    "ReduceSum": "fdiq",
    "ReduceSumSquare": "fdiq",
    "Relu": "fdbi",
    "Round": "fd",
    "Selu": "f",
    "Sigmoid": "fd",
    "Sin": "fd",
    "Sinh": "f",
    "Softmax": "fd",
    "Softplus": "f",
    "Softsign": "f",
    "Sqrt": "fd",
    "Tan": "f",
    "Tanh": "fd",
    "Where": "fdiqB",
}
_KERNELS = {op_type: {_BY_CODE[code] for code in codes} for op_type, codes in _CODES.items()}
_HANDLED = {ir.DataType.FLOAT16, ir.DataType.BFLOAT16}  # by onnxruntime, or for the target


def widened(b: Block, op_type: str, *inputs: Any, **attributes: Any) -> Any:
    """A node of an operator, in a wider integer dtype where onnxruntime lacks the kernel.

    Operands are values of one dtype and Python numbers (``Where``: a condition before them).
    The result is in that dtype, or bool where the operator says so.

    Raises:
        ValueError: no wider dtype computes the same.
    """
    first = 1 if op_type == "Where" else 0
    dtype = next((v.dtype for v in inputs[first:] if isinstance(v, ir.Value)), None)
    known = _KERNELS.get(op_type)
    if known is None or dtype is None or dtype in known or dtype in _HANDLED:
        return b.add(op_type, inputs, **attributes)
    wider = next((d for d in _wider(dtype) if d in known), None)
    if wider is None:
        raise ValueError(
            f"onnxruntime has no {op_type} for {dtype.name.lower()}: convert the model in float32"
        )
    operands = [v if v is None else b.cast(v, wider) for v in inputs[first:]]
    result = b.add(op_type, (*inputs[:first], *operands), **attributes)
    return result if result.dtype == ir.DataType.BOOL else b.cast(result, dtype)


def _wider(dtype: ir.DataType) -> tuple[ir.DataType, ...]:
    """Integer dtypes in which every number of a dtype has a place, the narrowest first."""
    if dtype in _FLOATS or dtype in (ir.DataType.INT64, ir.DataType.UINT64):
        return ()
    return (ir.DataType.INT32, ir.DataType.INT64)[dtype == ir.DataType.UINT32 :]


def is_floating(x: ir.Value) -> bool:
    """Whether the elements are floating point numbers."""
    return x.dtype in _FLOATS


def is_integer(x: ir.Value) -> bool:
    """Whether the elements are integers; bool is none."""
    return x.dtype not in _FLOATS and x.dtype != ir.DataType.BOOL


def single(b: Block, x: ir.Value) -> ir.Value:
    """``x`` in float32 if it is of half precision, in which intermediate results lose too much."""
    return b.cast(x, ir.DataType.FLOAT) if x.dtype in _HANDLED else x
