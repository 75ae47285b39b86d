"""Leaves that are no tensors, as JSON and back, bit by bit.

None, bool, str, finite floats and integers of 64 bits stand for themselves; the others are an
object with one entry: ``{"float": "7ff8000000000000"}``, ``{"dtype": "torch.float32"}``.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import torch

from torchferry.dumper.element import dtype_name, find_dtype
from torchferry.errors import UsageError

__all__ = ["plain_from_json", "plain_to_json"]

_WORD = 2**63


def plain_to_json(value: Any) -> Any:
    """A leaf as JSON types.

    Only these very types: a subclass, as an IntEnum, would come back as something else.

    Raises:
        UsageError: the value is of another type.

    >>> plain_to_json(1.5), plain_to_json(torch.float16), plain_to_json(1j)
    (1.5, {'dtype': 'torch.float16'}, {'complex': ['0000000000000000', '3ff0000000000000']})
    """
    cls = type(value)
    if value is None or cls in (bool, str):
        return value
    if cls is int:
        # Python refuses to read or write more than 4300 decimal digits.
        return value if -_WORD <= value < _WORD else {"int": hex(value)}
    if cls is float:
        return value if math.isfinite(value) else {"float": _bits(value)}
    if cls is complex:
        return {"complex": [_bits(value.real), _bits(value.imag)]}
    if isinstance(value, torch.dtype | np.dtype) and dtype_name(value) is not None:
        return {"dtype": dtype_name(value)}
    if cls is torch.device:
        return {"device": str(value)}
    raise UsageError("no tensor, array, number, string, None, dtype or device")


def plain_from_json(data: Any) -> Any:
    """The leaf that `plain_to_json` wrote.

    Raises:
        UsageError: it wrote no such thing.
    """
    try:
        match data:
            case None | bool() | str() | int() | float():
                return data
            case {"int": str(text)}:
                return int(text, 16)
            case {"float": str(text)}:
                return _float(text)
            case {"complex": [str(real), str(imag)]}:
                return complex(_float(real), _float(imag))
            case {"dtype": str(name)}:
                return find_dtype(name)
            case {"device": str(name)}:
                return torch.device(name)
    except (RuntimeError, ValueError, struct.error) as error:
        raise UsageError(f"this is no value of a dump: {str(data)[:80]}") from error
    raise UsageError(f"this is no value of a dump: {str(data)[:80]}")


def _bits(value: float) -> str:
    return struct.pack(">d", value).hex()


def _float(bits: str) -> float:
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])
