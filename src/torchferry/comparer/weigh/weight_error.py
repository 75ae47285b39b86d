"""How far an initializer is from what it should hold, read once and in slices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.comparer.weigh.dequantize import Stored
from torchferry.values.dtype import tensor_of

__all__ = ["Error", "channel_scales", "measure"]

_AT_ONCE = 2**22  # elements
_SCALED_AT_MOST = 2**26  # elements of a weight whose channels are looked at
_FEWEST = 4  # elements of a channel that show by what it is multiplied
_FINE = 1e-6  # eps of dtypes in which a constant may have been computed again, not only rounded
_ULPS = 8
_HALF_LEAST, _HALF_MOST = 1e-7, 1e4  # float16 converters move numbers beyond these to them


@dataclass(frozen=True)
class Error:
    """The difference of two tensors of one shape.

    Attributes:
        wrong: how many elements differ by more than rounding.
        size: of how many.
        position: of the largest difference.
        expected: the number there.
        got: what the file has there.
        abs: the largest difference; infinite if one side alone is NaN there.
        cosine: of the angle between the two.
    """

    wrong: int
    size: int
    position: tuple[int, ...]
    expected: float
    got: float
    abs: float
    cosine: float

    @property
    def similar(self) -> bool:
        """Whether these are two states of one weight: most elements agree, or the direction."""
        return 2 * self.wrong <= self.size or self.cosine > 0.9


def measure(
    expected: torch.Tensor, stored: Any, *, atol: float = 0.0, rtol: float = 0.0
) -> Error | None:
    """Compare a parameter with what a file has; ``None`` if they agree.

    A number may differ by its rounding to the coarser of the two dtypes.

    Args:
        expected: the parameter, in the shape of the initializer.
        stored: a `Stored`, or the initializer's array, which may be mapped from a file.
        atol: what may differ besides.
        rtol: the same, as a share of the parameter's element.
    """
    shape = tuple(expected.shape)
    one, other = (p.reshape(-1) if not shape else p for p in (expected, _values(stored)))
    slack = stored.slack if isinstance(stored, Stored) else None
    wrong, worst = 0, (-1.0, 0, 0.0, 0.0)
    sums = torch.zeros(3, dtype=torch.float64)
    for begin, end in _slices(one.shape):
        want, got = one[begin:end].cpu(), _tensor(other[begin:end])
        if want.dtype == got.dtype and slack is None and torch.equal(want, got):
            sums += _products(want, got)
            continue
        given = atol + rtol * want.double().abs().nan_to_num(nan=0.0, posinf=0.0)
        limit = given + (_rounding(want, got) if slack is None else slack[begin:end])
        want, got = want.double(), got.double()
        far = _distance(want, got)
        wrong += int((far > limit).sum())
        place = int(far.argmax())
        if float(far.view(-1)[place]) > worst[0]:
            numbers = float(want.reshape(-1)[place]), float(got.reshape(-1)[place])
            start = begin * (one[0].numel() if begin else 0)
            worst = float(far.view(-1)[place]), start + place, *numbers
        sums += _products(want, got)
    if not wrong:
        return None
    product, square, other_square = sums.tolist()
    norm = math.sqrt(square * other_square)
    position = torch.unravel_index(torch.tensor(worst[1]), shape) if shape else ()
    return Error(
        wrong, expected.numel(), tuple(map(int, position)), worst[2], worst[3], worst[0],
        product / norm if norm else 0.0,
    )  # fmt: skip


def _values(stored: Any) -> Any:
    return stored.values if isinstance(stored, Stored) else stored


def _tensor(part: Any) -> torch.Tensor:
    return part if isinstance(part, torch.Tensor) else tensor_of(part)


def _slices(shape: torch.Size) -> Iterator[tuple[int, int]]:
    """Beginnings and ends along the first axis, of parts that fit into memory beside others."""
    step = max(1, _AT_ONCE // max(1, shape[1:].numel()))
    for begin in range(0, shape[0] if shape.numel() else 0, step):
        yield begin, min(begin + step, shape[0])


def _distance(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    far = (want - got).abs()
    same = (want == got) | (want.isnan() & got.isnan())
    return far.where(~same, 0.0).nan_to_num(nan=math.inf, posinf=math.inf).contiguous()


def _products(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    one, other = (part.double().nan_to_num(0, 0, 0).reshape(-1) for part in (want, got))
    return torch.stack([one @ other, one @ one, other @ other])


def _rounding(want: torch.Tensor, got: torch.Tensor) -> torch.Tensor | float:
    """What rounding to the coarser dtype may move each number by."""
    if not (want.is_floating_point() and got.is_floating_point()):
        return 0.0
    kinds = [torch.finfo(part.dtype) for part in (want, got)]
    coarse = max(kinds, key=lambda kind: kind.eps)
    size = want.double().abs().nan_to_num(nan=0.0, posinf=0.0)
    limit = size * coarse.eps * (_ULPS if coarse.eps < _FINE else 1)
    limit += coarse.smallest_normal * coarse.eps
    if coarse.dtype == "float16":
        limit += _HALF_LEAST
        clipped = (
            (want.double().abs() >= _HALF_MOST)
            & (got.double().abs() >= _HALF_MOST)
            & (want * got > 0)
        )
        limit = limit.where(~clipped, math.inf)
    return limit


def channel_scales(expected: torch.Tensor, stored: Any) -> torch.Tensor | None:
    """The numbers that the channels of a weight are multiplied by, if most of it is no other.

    A normalization that is part of a convolution's weights does that, and so do scales that an
    optimizer moves from one operator into another.

    Args:
        expected: at least a matrix.
        stored: see `measure`.

    Returns:
        Scales that broadcast over the weight, along its first or second axis.
    """
    if expected.ndim < 2 or not 0 < expected.numel() <= _SCALED_AT_MOST:
        return None
    want, got = expected.cpu().double(), _tensor(_values(stored)).double()
    for axis in (0, 1):
        one, other = (t.movedim(axis, 0).reshape(t.shape[axis], -1) for t in (want, got))
        if one.shape[1] < _FEWEST:
            continue
        scale = (other / one.where(one != 0, math.nan)).nanmedian(dim=1, keepdim=True).values
        slack = 0.0
        if isinstance(stored, Stored) and stored.slack is not None:
            slack = float(stored.slack.max())
        close = (other - one * scale).abs() <= 1e-3 * (one * scale).abs() + slack + 1e-12
        if 2 * int(close.sum()) > close.numel():
            sizes = [-1 if place == axis else 1 for place in range(want.ndim)]
            return scale.nan_to_num(1.0).reshape(sizes)
    return None
