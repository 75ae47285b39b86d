"""What can be said of the elements of a tensor without showing them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from torchferry.values.dtype import tensor_of

__all__ = ["Statistics", "statistics"]

_CHUNK = 2**20  # elements; 8 MB as float64
_BINS = 12


@dataclass(frozen=True)
class Statistics:
    """Of all elements; of their absolute values if they are complex.

    Attributes:
        least: of the elements that are numbers, infinities included; NaN when there is none.
        largest: of the same.
        mean: of the same.
        nans: how many elements are NaN.
        infinities: how many are infinite.
        counts: finite elements in each of the equal parts of the range from the least finite
            element to the largest; one part when these are equal, none without finite elements.
        edges: the borders of the parts, one more than there are.
    """

    least: float
    largest: float
    mean: float
    nans: int
    infinities: int
    counts: tuple[int, ...] = ()
    edges: tuple[float, ...] = ()


def statistics(value: Any) -> Statistics | None:
    """Read a tensor or an array of numbers, in chunks.

    Returns:
        ``None`` for what holds no numbers: no element, texts, dates, bits without arithmetic.

    >>> found = statistics(torch.tensor([1.0, 3.0, float("nan")]))
    >>> found.least, found.largest, found.mean, found.nans
    (1.0, 3.0, 2.0, 1)
    """
    if isinstance(value, np.ndarray | np.generic):
        dtype = value.dtype
        if dtype.kind not in "biufc" and dtype.type.__module__ != "ml_dtypes":
            return None
        value = tensor_of(value.astype(np.float64) if dtype == np.longdouble else value)
    if value.numel() == 0:
        return None
    try:
        return _statistics(value.detach())
    except (NotImplementedError, RuntimeError, TypeError):
        return None  # a dtype that is only bits to PyTorch


def _statistics(tensor: torch.Tensor) -> Statistics:
    count, nans, infinities, total = 0, 0, 0, 0.0
    least, largest = math.inf, -math.inf
    low, high = math.inf, -math.inf
    for chunk in _chunks(tensor):
        numbers = chunk[~chunk.isnan()]
        nans += chunk.numel() - numbers.numel()
        finite = numbers[numbers.isfinite()]
        infinities += numbers.numel() - finite.numel()
        count += numbers.numel()
        total += float(numbers.sum())
        if numbers.numel():
            least, largest = min(least, float(numbers.min())), max(largest, float(numbers.max()))
        if finite.numel():
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    if count == 0:
        return Statistics(math.nan, math.nan, math.nan, nans, infinities)
    counts, edges = _histogram(tensor, low, high)
    return Statistics(least, largest, total / count, nans, infinities, counts, edges)


def _histogram(
    tensor: torch.Tensor, low: float, high: float
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    if low > high:
        return (), ()
    width = high - low
    bins = _BINS if 0 < width < math.inf else 1
    counts = torch.zeros(bins, dtype=torch.int64)
    for chunk in _chunks(tensor):
        finite = chunk[chunk.isfinite()]
        place = (finite - low) * (bins / width) if bins > 1 else torch.zeros_like(finite)
        counts += torch.bincount(place.long().clamp(0, bins - 1), minlength=bins)
    edges = [low + width * number / bins for number in range(bins)]
    return tuple(counts.tolist()), (*edges, high)


def _chunks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The elements as float64, one axis."""
    flat = tensor.reshape(-1)
    for start in range(0, flat.numel(), _CHUNK):
        chunk = flat[start : start + _CHUNK]
        if chunk.is_complex():
            chunk = chunk.to(torch.complex128).abs()
        yield chunk.to(torch.float64)
