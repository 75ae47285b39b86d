"""How the numbers of two values are spread, over one range, so that both can be looked at."""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Histogram", "finite_of", "histogram_of"]

_BINS = 24
_SAMPLE = 2**16  # elements that are counted; of more, every so-many-th


@dataclass(frozen=True)
class Histogram:
    """Counts of the finite elements of both sides in equal parts of one range.

    Attributes:
        low: the least element of either side.
        high: the largest.
        expected: of the reference, one count a part; of large tensors every so-many-th element.
        got: of the ONNX model; empty where it has no value.
    """

    low: float
    high: float
    expected: tuple[int, ...]
    got: tuple[int, ...] = ()


def finite_of(tensor: torch.Tensor, most: int | None = None) -> torch.Tensor:
    """The finite elements as real floating numbers, one axis; of many, at most about ``most``.

    >>> finite_of(torch.tensor([[1, 2]]))
    tensor([1., 2.], dtype=torch.float64)
    """
    flat = tensor.detach().reshape(-1)
    if most is not None and flat.numel() > most:
        flat = flat[:: -(-flat.numel() // most)]
    if flat.is_complex():
        flat = flat.abs()
    if not flat.is_floating_point():
        return flat.double()
    flat = flat.float() if flat.element_size() < 4 else flat
    finite = flat.isfinite()
    return flat if bool(finite.all()) else flat[finite]


def histogram_of(expected: torch.Tensor, got: torch.Tensor | None) -> Histogram | None:
    """Count both sides; ``None`` where neither has a finite element.

    >>> found = histogram_of(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 0.0]))
    >>> (found.low, found.high, found.expected[0], found.got[0])
    (0.0, 1.0, 1, 2)
    """
    sides = [finite_of(tensor, _SAMPLE) for tensor in (expected, got) if tensor is not None]
    ranges = [torch.aminmax(side) for side in sides if side.numel()]
    if not ranges:
        return None
    low = min(float(pair.min) for pair in ranges)
    high = max(float(pair.max) for pair in ranges)
    return Histogram(low, high, *(_counts(side, low, high) for side in sides))


def _counts(side: torch.Tensor, low: float, high: float) -> tuple[int, ...]:
    width = high - low
    if not 0 < width < float("inf"):
        return (side.numel(),)
    place = ((side.double() - low) * (_BINS / width)).long().clamp_(0, _BINS - 1)
    return tuple(torch.bincount(place, minlength=_BINS).tolist())
