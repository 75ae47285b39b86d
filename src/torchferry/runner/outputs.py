"""What onnxruntime computed, as torch tensors of the dtype that the model declares."""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

import onnxruntime

from torchferry.seams.ort import c_value

if TYPE_CHECKING:
    import torch

__all__ = ["to_tensor"]


def to_tensor(value: onnxruntime.OrtValue) -> torch.Tensor | None:
    """Copy a tensor of onnxruntime; ``None`` for text, and for elements of less than a byte.

    The CPU's memory is read as it is: before 1.32 onnxruntime's DLPack refuses float8 and calls a
    bool uint8, and its ``numpy()`` knows neither bfloat16 nor float8.

    Args:
        value: a tensor.
    """
    import torch
    import torch.utils.dlpack

    from torchferry.values.dtype import torch_dtype

    dtype = torch_dtype(value.element_type())
    if dtype is None:
        return None
    if value.device_name() != "cpu":
        shared: torch.Tensor = torch.utils.dlpack.from_dlpack(c_value(value).to_dlpack())
        return shared.clone()
    shape = tuple(value.shape())
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(value.data_ptr())
    # Without the clone the memory is the session's.
    return torch.frombuffer(memory, dtype=dtype, count=count).reshape(shape).clone()
