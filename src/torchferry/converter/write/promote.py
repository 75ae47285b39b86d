"""PyTorch's type promotion, for values and Python numbers.

Source: https://docs.pytorch.org/docs/stable/tensor_attributes.html#type-promotion-doc
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.lowering import Promotion

__all__ = ["onnx_dtype", "promoted_dtype", "torch_dtype"]

_BOOL, _INT, _FLOAT, _COMPLEX = range(4)
_TORCH: dict[ir.DataType, torch.dtype] = {
    ir.DataType.FLOAT: torch.float32, ir.DataType.FLOAT16: torch.float16,
    ir.DataType.BFLOAT16: torch.bfloat16, ir.DataType.DOUBLE: torch.float64,
    ir.DataType.BOOL: torch.bool, ir.DataType.INT8: torch.int8, ir.DataType.INT16: torch.int16,
    ir.DataType.INT32: torch.int32, ir.DataType.INT64: torch.int64,
    ir.DataType.UINT8: torch.uint8, ir.DataType.UINT16: torch.uint16,
    ir.DataType.UINT32: torch.uint32, ir.DataType.UINT64: torch.uint64,
    ir.DataType.COMPLEX64: torch.complex64, ir.DataType.COMPLEX128: torch.complex128,
    ir.DataType.FLOAT8E4M3FN: torch.float8_e4m3fn, ir.DataType.FLOAT8E5M2: torch.float8_e5m2,
    ir.DataType.FLOAT8E4M3FNUZ: torch.float8_e4m3fnuz,
    ir.DataType.FLOAT8E5M2FNUZ: torch.float8_e5m2fnuz,
}  # fmt: skip
_ONNX = {known: dtype for dtype, known in _TORCH.items()}


def onnx_dtype(dtype: torch.dtype) -> ir.DataType:
    """The ONNX element type of a PyTorch dtype.

    Raises:
        ValueError: ONNX has none.
    """
    if dtype not in _ONNX:
        raise ValueError(f"ONNX has no element type for {dtype}")
    return _ONNX[dtype]


def torch_dtype(dtype: ir.DataType | None) -> torch.dtype:
    """The PyTorch dtype of an ONNX element type.

    Raises:
        ValueError: PyTorch has none, or the type is unknown.
    """
    if dtype is None or dtype not in _TORCH:
        raise ValueError(f"PyTorch has no dtype for {dtype}")
    return _TORCH[dtype]


def promoted_dtype(operands: Iterable[Any], kind: Promotion = "default") -> torch.dtype:
    """The dtype an element-wise operator computes in.

    Tensors with axes decide; a 0-dimensional tensor does when it is of a higher category (bool <
    integer < floating < complex), and so does a Python number, which then counts as the default
    dtype of its category.

    Args:
        operands: values with dtype and shape, and Python numbers; others are passed over.
        kind: see `Promotion`.
    """
    dimensioned: list[torch.dtype] = []
    scalars: list[torch.dtype] = []
    numbers: list[torch.dtype] = []
    for operand in operands:
        if isinstance(operand, ir.Value):
            # The driver marks a symbolic size, which counts as the Python number it stands for.
            if operand.meta.get("number"):
                numbers.append(_number_dtype(operand))
            elif operand.shape is not None and len(operand.shape) == 0:
                scalars.append(_value_dtype(operand))
            else:
                dimensioned.append(_value_dtype(operand))
        elif isinstance(operand, (bool, int, float, complex)):
            numbers.append(_python_dtype(operand))
    result: torch.dtype | None = None
    for group in (dimensioned, scalars, numbers):
        if group:
            result = _raised(result, reduce(torch.promote_types, group))
    if result is None:
        raise ValueError("there is nothing to promote")
    if kind == "float" and _category(result) < _FLOAT:
        return torch.get_default_dtype()
    if kind == "bool_to_long" and result is torch.bool:
        return torch.int64
    return result


def _raised(dtype: torch.dtype | None, other: torch.dtype) -> torch.dtype:
    """What comes of a group's dtype when a group that counts for less joins it."""
    if dtype is None:
        return other
    if _category(other) <= _category(dtype):
        return dtype
    # float16 + complex number is complex32, which ONNX has not; float64 + one is complex128
    return torch.promote_types(dtype, other) if other.is_complex else other


def _value_dtype(value: ir.Value) -> torch.dtype:
    dtype = torch_dtype(value.dtype)
    return dtype.to_complex() if value.meta.get("complex") else dtype


def _number_dtype(value: ir.Value) -> torch.dtype:
    if value.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return torch.get_default_dtype()
    return torch.bool if value.dtype == ir.DataType.BOOL else torch.int64


def _python_dtype(number: complex) -> torch.dtype:
    if isinstance(number, bool):
        return torch.bool
    if isinstance(number, int):
        return torch.int64
    default = torch.get_default_dtype()
    return default if isinstance(number, float) else default.to_complex()


def _category(dtype: torch.dtype) -> int:
    if dtype.is_complex:
        return _COMPLEX
    if dtype.is_floating_point:
        return _FLOAT
    return _BOOL if dtype is torch.bool else _INT
