"""PyTorch's and numpy's dtypes: their ONNX element types, without importing ONNX.

The numbers are those of ``onnx.TensorProto.DataType``:
https://github.com/onnx/onnx/blob/main/onnx/onnx.proto
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

__all__ = ["element_type", "tensor_of", "torch_dtype"]

_NUMBERS = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13, "complex64": 14,
    "complex128": 15, "bfloat16": 16, "float8_e4m3fn": 17, "float8_e4m3fnuz": 18,
    "float8_e5m2": 19, "float8_e5m2fnuz": 20, "uint4": 21, "int4": 22,
    "float4_e2m1fn_x2": 23, "float4_e2m1fn": 23,
}  # fmt: skip
_OF_DTYPE: dict[Any, int] = {
    getattr(torch, name): number for name, number in _NUMBERS.items() if hasattr(torch, name)
}
_WHOLE_BYTES = 20  # element types up to here take whole bytes, complex ones aside
_OF_NUMBER: dict[int, Any] = {
    number: dtype for dtype, number in _OF_DTYPE.items() if number <= _WHOLE_BYTES
}


def element_type(dtype: Any) -> int:
    """The ONNX element type of a ``torch.dtype`` or ``numpy.dtype``; 0 where ONNX has none.

    >>> element_type(torch.bfloat16)
    16
    """
    found = _OF_DTYPE.get(dtype)
    if found is None:
        name = str(dtype)
        # numpy spells strings <U3, and StringDType() since 2.0
        found = 8 if name.startswith(("<U", ">U", "StringDType")) else _NUMBERS.get(name, 0)
        _OF_DTYPE[dtype] = found
    return found


def torch_dtype(number: int) -> torch.dtype | None:
    """The dtype of an ONNX element type; ``None`` for text, and for less than a byte.

    >>> torch_dtype(16)
    torch.bfloat16
    """
    return _OF_NUMBER.get(number)


def tensor_of(array: Any) -> torch.Tensor:
    """A copy of a numpy array as a tensor; dtypes of ml_dtypes become float32."""
    array = np.asarray(array)
    if array.dtype.type.__module__ == "ml_dtypes":  # bfloat16, float8 and the like
        array = array.astype(np.float32)
    # A copy: PyTorch warns of arrays that may not be written to, and has no negative strides. The
    # dtype is made anew from its text, as it has no other byte order nor numpy's second int64.
    return torch.from_numpy(array.astype(array.dtype.str[1:]))
