"""Whether onnxruntime's outputs are eager's: values, values open to choice, distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["compare", "distributed", "nearer", "same_elements"]

TOLERANCE = {
    torch.float16: (1e-2, 1e-2), torch.float32: (1e-4, 1e-4), torch.float64: (1e-6, 1e-6),
}  # fmt: skip
RUNS = 64  # of a random operator
KOLMOGOROV = 2.23  # two samples of one distribution are further apart in 1 of 10,000 cases


def compare(expected: list[Any], got: list[torch.Tensor], random: bool) -> tuple[str, str]:
    if len(expected) != len(got):
        return "wrong", f"{len(got)} outputs instead of {len(expected)}"
    for index, (other, value) in enumerate(zip(expected, got, strict=True)):
        # a Python float is a double
        double = torch.float64 if isinstance(other, float) else None
        tensor = other if isinstance(other, torch.Tensor) else torch.tensor(other, dtype=double)
        pairs = tensor.dtype.is_complex and value.shape[-1:] == (2,)
        mine = complex_of(value) if pairs else value
        if mine.dtype != tensor.dtype or mine.shape != tensor.shape:
            return "wrong", (f"output {index} is {mine.dtype} {tuple(mine.shape)}, not "
                             f"{tensor.dtype} {tuple(tensor.shape)}")  # fmt: skip
        if random:
            continue
        rtol, atol = TOLERANCE.get(tensor.dtype, (1e-4, 1e-4))
        if not torch.allclose(mine, tensor, rtol=rtol, atol=atol, equal_nan=True):
            return "wrong", f"output {index}: {worst(tensor, mine)}"
    return ("random" if random else "pass"), ""


def same_elements(x: torch.Tensor, expected: list[Any], got: list[torch.Tensor]) -> bool:
    """Whether the indices point at equal elements, where the values agree: which of them is open.

    Eager's own choice among equal elements changes with the size and the dtype.
    """
    *values, other = expected
    *mine, indices = got
    if not all(torch.equal(a, b) for a, b in zip(values, mine, strict=True)):
        return False
    if indices.dtype != torch.int64:
        return False  # msort gives the values only
    if indices.shape != other.shape or x.ndim - indices.ndim not in (0, 1):
        return False
    if not indices.numel():
        return True
    for axis in range(x.ndim):
        kept = indices.ndim == x.ndim
        pair = [i if kept else i.unsqueeze(axis) for i in (indices, other)]
        if max(i.max().item() for i in pair) < x.shape[axis]:
            first, second = (torch.gather(x, axis, i) for i in pair)
            if torch.equal(first, second):
                return True
    return False


def complex_of(pairs: torch.Tensor) -> torch.Tensor:
    # numpy's strides of an empty array are not those that view_as_complex wants
    return torch.view_as_complex(torch.empty(pairs.shape, dtype=pairs.dtype).copy_(pairs))


def worst(expected: torch.Tensor, got: torch.Tensor) -> str:
    difference = (expected.to(torch.complex128) - got.to(torch.complex128)).abs()
    return f"max abs {difference.nan_to_num(torch.inf).max():.3g}"


def nearer(exact: Any, expected: Any, got: Any) -> tuple[str, str] | None:
    """A pass, when every output is at least as near to float64 as eager's."""
    for e, x, g in zip(exact, expected, got, strict=True):
        if not isinstance(e, torch.Tensor) or g.dtype != x.dtype or g.shape != x.shape:
            return None
        if _error(e, g) > _error(e, x):
            return None
    return "pass", ""


def _error(exact: torch.Tensor, value: torch.Tensor) -> float:
    """Largest difference; what the dtype cannot hold is infinite on both sides."""
    same = value == exact.to(value.dtype)
    difference = (exact - value.double()).abs().nan_to_num(torch.inf)
    return float(difference.masked_fill(same, 0).max()) if value.numel() else 0.0


def distributed(
    eager: Callable[[], list[Any]], run: Callable[[], list[torch.Tensor]]
) -> tuple[str, str]:
    """Whether the values of many runs have one distribution, by Kolmogorov and Smirnov's test."""
    columns = [zip(*(side() for _ in range(RUNS)), strict=True) for side in (eager, run)]
    for index, (ours, theirs) in enumerate(zip(*reversed(columns), strict=True)):
        pair = [
            torch.stack(list(side)).flatten().double().sort().values for side in (ours, theirs)
        ]
        if not pair[0].numel():
            continue
        both = torch.cat(pair)
        first, second = (torch.searchsorted(p, both, right=True) / p.numel() for p in pair)
        apart = (first - second).abs().max().item()
        if apart > KOLMOGOROV * (2 / pair[0].numel()) ** 0.5:
            return "wrong", f"output {index} is distributed differently: {apart:.3g} apart"
    return "random", ""
