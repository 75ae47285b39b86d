"""The difference of two tensors, arrays or numbers.

Integers are compared exactly, everything else in float64 (complex128), in chunks, so that no
more than about 64 MB is needed besides the tensors themselves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from torchferry.values.discrepancy import Discrepancy
from torchferry.values.dtype import element_type, tensor_of
from torchferry.values.layout import why_not_shaped

__all__ = ["is_numeric", "measure"]

_CHUNK = 2**18  # elements; a dozen temporaries of 8 bytes each
_LEAST = 1e-3  # relative differences divide by no less than this
_NUMBERS = (bool, int, float, complex)
_ARRAYS = (np.ndarray, np.generic)
_STRING = 8  # ONNX's element type of strings


def is_numeric(value: Any) -> bool:
    """Whether a leaf is a tensor, an array of numbers or a number."""
    if isinstance(value, _ARRAYS):
        return element_type(value.dtype) not in (0, _STRING)
    return isinstance(value, (torch.Tensor, *_NUMBERS))


def measure(expected: Any, got: Any, path: str = "") -> Discrepancy:
    """Compare two numeric leaves.

    Args:
        expected: tensor, array or number of any shape.
        got: the same.
        path: where they stand, for the result.

    Returns:
        the discrepancy; infinite with a reason when the shapes differ or one holds no data. When
        the dtypes differ the numbers are compared all the same and ``reason`` says so. A Python
        number has no dtype.
    """
    if isinstance(expected, int) and isinstance(got, int):
        return _of_integers(expected, got, path)
    where = path or "the value"
    reason = _why_not(expected, got)
    if reason:
        n = _count(expected)
        return Discrepancy(math.inf, math.inf, math.inf, n, reason=f"{where}: {reason}", path=path)
    expected, got = _strided(expected), _strided(got)
    total, largest, relative, missing, scale = 0.0, 0.0, 0.0, 0, 0.0
    ceiling = _ceiling(expected)
    at = None
    for offset, left, right in _pairs(expected, got):
        # Most values are equal bit for bit: what differs is not asked of these.
        same = left.dtype is right.dtype is torch.float32 and torch.equal(left, right)
        diff, size, unpaired = (left, left.abs(), 0) if same else _differences(left, right)
        scale = max(scale, size.where(size < ceiling, 0.0).max().item())
        if same:
            continue
        total += diff.sum().item()
        missing += unpaired
        ratio = (diff / size.clamp(min=_LEAST)).where(diff.isfinite(), math.inf)
        relative = max(relative, ratio.max().item())
        peak, position = diff.max(dim=0)
        if peak.item() > largest:
            largest, at = peak.item(), offset + int(position)
    return Discrepancy(
        abs=largest,
        rel=relative,
        sum=total,
        n=_count(expected),
        dnan=missing,
        argm=None if at is None else tuple(int(i) for i in np.unravel_index(at, _shape(expected))),
        dev=int(_device(expected) != _device(got)),
        reason=_dtype_reason(expected, got, where),
        path=path,
        scale=scale,
    )


def _of_integers(expected: int, got: int, path: str) -> Discrepancy:
    """Python's integers, of any size."""
    apart, size = abs(expected - got), abs(expected)
    return Discrepancy(
        abs=_float(apart),
        rel=_float(apart / Fraction(max(size, _LEAST))),
        sum=_float(apart),
        n=1,
        argm=() if apart else None,
        path=path,
        scale=_float(size),
    )


def _float(number: int | Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _ceiling(value: Any) -> float:
    """Half the largest number of a floating type: what is above it is a mask, not a magnitude."""
    dtype = getattr(value, "dtype", None)
    if isinstance(dtype, torch.dtype) and dtype.is_floating_point:
        return torch.finfo(dtype).max / 2
    return math.inf


def _shape(value: Any) -> tuple[int, ...]:
    return () if isinstance(value, _NUMBERS) else tuple(value.shape)


def _count(value: Any) -> int:
    shapeless = isinstance(value, torch.Tensor) and why_not_shaped(value)
    return 0 if shapeless else math.prod(_shape(value))


def _device(value: Any) -> torch.device:
    return value.device if isinstance(value, torch.Tensor) else torch.device("cpu")


def _why_not(expected: Any, got: Any) -> str | None:
    """Why two leaves cannot be compared."""
    for side, value in (("expected", expected), ("got", got)):
        if not isinstance(value, torch.Tensor):
            continue
        if value.is_meta or type(value).__name__ == "FakeTensor":
            return f"{side} is a fake or meta tensor without data"
        reason = why_not_shaped(value)
        if reason:
            return f"{side} is {reason}"
    if _shape(expected) != _shape(got):
        return f"expected shape {_shape(expected)}, got {_shape(got)}"
    return None


def _strided(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    if value.is_quantized:
        return value.dequantize()
    return value if value.layout is torch.strided else value.to_dense()


def _dtype_reason(expected: Any, got: Any, where: str) -> str | None:
    names = [
        None if type(value) in _NUMBERS else str(value.dtype).removeprefix("torch.")
        for value in (expected, got)
    ]
    if None in names or names[0] == names[1]:
        return None
    return f"{where}: expected dtype {names[0]}, got {names[1]}"


def _chunks(shape: tuple[int, ...]) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Offset of the first element and index of every part of at most ``_CHUNK`` elements."""
    if math.prod(shape) <= _CHUNK:
        yield 0, ()
        return
    row = math.prod(shape[1:])
    rows = _CHUNK // row
    if rows:
        for start in range(0, shape[0], rows):
            yield start * row, (slice(start, start + rows),)
        return
    for start in range(shape[0]):
        for offset, index in _chunks(shape[1:]):
            yield start * row + offset, (start, *index)


def _pairs(expected: Any, got: Any) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """Both sides of every chunk that is not empty, and the offset of its first element."""
    for offset, index in _chunks(_shape(expected)):
        left, right = _part(expected, index), _part(got, index)
        if left.numel():
            yield offset, left, right


def _part(value: Any, index: tuple[Any, ...]) -> torch.Tensor:
    """A chunk on the CPU, as a row."""
    if isinstance(value, torch.Tensor):
        return value[index].reshape(-1).cpu()
    if type(value) in _NUMBERS:
        return _number(value)
    return tensor_of(value[index]).reshape(-1)


def _number(value: Any) -> torch.Tensor:
    if isinstance(value, complex):
        return torch.tensor([value], dtype=torch.complex128)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return torch.tensor([value])
    return torch.tensor([value], dtype=torch.float64)


def _differences(e: torch.Tensor, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Absolute differences, ``|expected|``, and how many NaN have no NaN on the other side."""
    if not any(x.is_floating_point() or x.is_complex() for x in (e, g)):
        size = e.double()
        rough = (size - g.double()).abs_()
        # Exact as long as it fits in an int64; else float64 is off by 1e-16 of the difference.
        exact = (e.to(torch.int64) - g.to(torch.int64)).abs_().double()
        return exact.where(rough < 2.0**62, rough), size.abs_(), 0
    wide = torch.complex128 if e.is_complex() or g.is_complex() else torch.float64
    e, g = e.to(wide), g.to(wide)
    unpaired = e.isnan() != g.isnan()
    same = (e == g) | (e.isnan() & g.isnan())
    diff = (e - g).abs().masked_fill_(same, 0.0).nan_to_num_(nan=math.inf, posinf=math.inf)
    return diff, e.abs().nan_to_num_(nan=0.0, posinf=math.inf), int(unpaired.sum())
