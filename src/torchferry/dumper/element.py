"""Dtypes of PyTorch, numpy and ml_dtypes as text, and what files have in their place.

In a dump a dtype is ``torch.bfloat16``, numpy's own text (``<f4``) or ``ml_dtypes.int4``.
"""

from __future__ import annotations

import re
from collections.abc import Container
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import torch

from torchferry.errors import UsageError

__all__ = ["Dtype", "dtype_name", "find_dtype", "item_size", "presented"]

Dtype = torch.dtype | np.dtype[Any]

# Booleans, numbers, dates and texts of a fixed size; objects and records have pointers or names.
_NUMPY = re.compile(r"[<>|][biufcmMSUV][1-9]\d{0,8}(\[\w{1,20}(/\d{1,9})?\])?")
_COMPLEX = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_SUB_BYTE = re.compile(r"u?int[1-7]")


def dtype_name(dtype: Dtype) -> str | None:
    """The text of a dtype; ``None`` for what a dump does not hold: objects, records, quantized.

    >>> dtype_name(torch.bfloat16), dtype_name(np.dtype("float32"))
    ('torch.bfloat16', '<f4')
    """
    if isinstance(dtype, torch.dtype):
        return None if _is_quantized(str(dtype)) else str(dtype)
    if dtype.type.__module__ == "ml_dtypes":
        return f"ml_dtypes.{dtype.name}"
    plain = dtype.names is None and dtype.kind in "biufcmMSUV" and dtype.itemsize > 0
    return dtype.str if plain else None


@cache
def find_dtype(name: str) -> Dtype:
    """The dtype of a text.

    Raises:
        UsageError: there is none in the installed libraries.

    >>> find_dtype("torch.bool")
    torch.bool
    """
    library, _, attribute = name.partition(".")
    if library == "torch" and not _is_quantized(name):
        found = getattr(torch, attribute, None)
        if isinstance(found, torch.dtype):
            return found
    elif library == "ml_dtypes":
        scalar = getattr(ml_dtypes, attribute, None)
        if isinstance(scalar, type) and issubclass(scalar, np.generic):
            return np.dtype(scalar)
    elif _NUMPY.fullmatch(name):
        try:
            return np.dtype(name)
        except (TypeError, ValueError):
            pass  # said below
    raise UsageError(f"this dump holds a dtype {name!r} that is not known here")


def item_size(name: str) -> int:
    """Bytes of one element in memory.

    >>> item_size("torch.complex64"), item_size("ml_dtypes.int4")
    (8, 1)
    """
    return find_dtype(name).itemsize


def presented(name: str, known: Container[str]) -> tuple[str, tuple[int, ...]]:
    """How a file shows elements to other tools, whose types are fewer.

    Args:
        name: a dtype as `dtype_name` writes it.
        known: what the file has: ``float32``, ``bfloat16`` ...

    Returns:
        one of ``known``, or ``uint8`` for bits; and the axes to append to the shape: complex
        numbers are pairs, bits are as many bytes as an element has.

    >>> presented("torch.complex64", {"float32"}), presented("torch.int16", ())
    (('float32', (2,)), ('uint8', (2,)))
    """
    plain = _plain_name(name)
    if plain in known:
        return plain, ()
    if _COMPLEX.get(plain) in known:
        return _COMPLEX[plain], (2,)
    if _SUB_BYTE.fullmatch(plain) and "int8" in known:
        return ("uint8" if plain[0] == "u" else "int8"), ()
    size = item_size(name)
    return "uint8", () if size == 1 else (size,)


def _plain_name(name: str) -> str:
    library, _, attribute = name.partition(".")
    if library in ("torch", "ml_dtypes"):
        return attribute
    return name if name.startswith(">") else str(np.dtype(name).name)


def _is_quantized(name: str) -> bool:
    return name.removeprefix("torch.").startswith(("qint", "quint"))
