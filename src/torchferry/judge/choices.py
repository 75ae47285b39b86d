"""What PyTorch may choose otherwise: the order of equal numbers, memory that nothing wrote.

A call under `ChoosesOtherwise` gives another result that is as right: what moves is a choice.
No knowledge of the other side is needed, so that every command can ask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchferry.judge.arithmetic import Listener
from torchferry.judge.tolerance import Tolerance
from torchferry.judge.value import difference_of
from torchferry.seams.operators import aten
from torchferry.seams.pytorch import schema_of
from torchferry.values.difference import Discrepancy
from torchferry.values.source_line import line_here

__all__ = ["PLACES", "UNSET", "ChoosesOtherwise", "Places", "arguments", "as_good"]

PLACES: dict[Any, int | None] = {
    aten.argmax.default: None, aten.argmin.default: None, aten.argsort.default: None,
    aten.kthvalue.default: 1, aten.max.dim: 1, aten.median.dim: 1, aten.min.dim: 1,
    aten.mode.default: 1, aten.nanmedian.dim: 1, aten.sort.default: 1, aten.sort.stable: 1,
    aten.topk.default: 1,
}  # fmt: skip
"""Operators that tell at which places numbers stand, and which of their results does."""

UNSET = {
    aten.empty.memory_format, aten.empty_like.default, aten.empty_permuted.default,
    aten.empty_strided.default, aten.new_empty.default, aten.new_empty_strided.default,
}  # fmt: skip
"""Operators whose result nothing was written to."""

_FILLS = (1.0, -1e4, 1e4, -1.0)  # what memory may hold that nothing wrote
_COUNTS = {aten.mode.default, aten.nanmedian.dim}  # other places of one number are not other ranks


class ChoosesOtherwise(Listener):  # type: ignore[no-untyped-call]  # modes have none
    """Breaks ties otherwise than PyTorch does, and fills memory that nothing wrote.

    Numbers tie that are equal up to the tolerance for one value of their dtype. The first series
    takes the last of them first, the second the first, the others any.

    Attributes:
        ties: the operators at which numbers tied, each with the user's line.
        unset: the same of memory that nothing wrote.
    """

    def __init__(self, seed: int) -> None:
        """Begin a series of choices."""
        super().__init__()
        self.ties: dict[str, None] = {}
        self.unset: dict[str, None] = {}
        self._seed = seed
        self._generator = torch.Generator().manual_seed(seed)

    def hear(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], results: Any) -> Any:
        """Let the operator choose otherwise."""
        if func in UNSET:
            self.unset[_place(func)] = None
            floating = results.is_floating_point() or results.is_complex()
            return results.fill_(_FILLS[self._seed % 4] if floating else self._seed % 2)
        if func in PLACES and func not in _COUNTS:
            given = arguments(func, args, kwargs)
            if not given.get("stable"):
                return self._chosen(func, given, results)
        return results

    def _chosen(self, func: Any, given: dict[str, Any], results: Any) -> Any:
        numbers, dim = given.pop("self"), given.get("dim")
        if numbers.is_complex() or numbers.numel() < 2 or not numbers.ndim:
            return results
        flat = numbers.reshape(-1) if dim is None else numbers
        ranks = self._ranks(flat, -1 if dim is None else dim)
        if ranks is None:
            return results
        self.ties[_place(func)] = None
        index = PLACES[func]
        again = func(ranks.reshape(numbers.shape), **given)
        if index is None:
            return again
        kept = func in (aten.sort.default, aten.sort.stable, aten.topk.default)
        places = again[index]
        at = places if kept or given.get("keepdim") else places.unsqueeze(dim)
        values = numbers.gather(dim, at).reshape(places.shape)
        return type(again)((values, places)) if isinstance(again, tuple) else [values, places]

    def _ranks(self, numbers: torch.Tensor, dim: int) -> torch.Tensor | None:
        """Other numbers in the same order but for those that tie; None when none does."""
        ordered, places = numbers.detach().sort(dim=dim, stable=True)
        here, after = (
            ordered.narrow(dim, 0, ordered.shape[dim] - 1),
            ordered.narrow(dim, 1, -1 + ordered.shape[dim]),
        )
        if numbers.is_floating_point():
            size = numbers[numbers.isfinite() & (numbers != 0)].abs().double()
            scale = float(size.median()) if size.numel() else 0.0
            near = (after.double() - here.double()) <= Tolerance.inside(numbers.dtype).limit(scale)
            near = near | (here == after) | (here.isnan() & after.isnan())
        else:
            near = here == after
        if not bool(near.any()):
            return None
        first = torch.zeros_like(ordered.narrow(dim, 0, 1), dtype=torch.float64)
        ranks = torch.cat([first, (~near).double()], dim).cumsum(dim)
        ranks = torch.empty_like(ranks).scatter_(dim, places, ranks)
        return ranks + self._jitter(ranks, dim)

    def _jitter(self, ranks: torch.Tensor, dim: int) -> torch.Tensor:
        """Less than 1, more for what is to count as larger."""
        count = ranks.shape[dim]
        if self._seed > 1:
            return torch.rand(ranks.shape, generator=self._generator).to(ranks)
        step = torch.arange(count, device=ranks.device, dtype=ranks.dtype) / count
        step = step.flip(0) if self._seed else step
        return step.reshape([-1] + [1] * (ranks.ndim - 1 - dim % ranks.ndim))


def _place(func: Any) -> str:
    name = func.overloadpacket.__name__
    line = line_here()
    return f"{name}, {line}" if line else name


def arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of an operator by the names of its schema, defaults included."""
    said = schema_of(func).arguments
    given = {argument.name: argument.default_value for argument in said}
    return given | dict(zip((argument.name for argument in said), args, strict=False)) | kwargs


@dataclass(frozen=True)
class Places:
    """A value that tells where numbers stand: several places may be right.

    Attributes:
        numbers: name of the numbers.
        dim: along which they were looked at; ``None``: all of them in one row.
        kept: whether the places have that axis too.
        ordered: whether the places stand in the order of the numbers.
    """

    numbers: str
    dim: int | None
    kept: bool = True
    ordered: bool = True


def as_good(
    places: Places,
    numbers: torch.Tensor,
    expected: torch.Tensor,
    got: torch.Tensor,
    allows: Callable[[torch.Tensor, Discrepancy], bool],
) -> bool:
    """Whether at other places stand numbers that are equal, up to the tolerance for them.

    >>> found = Places("x", 0)
    >>> numbers, best = torch.tensor([1.0, 5.0, 5.0]), torch.tensor([1, 2])
    >>> equal = lambda _, difference: difference.abs == 0
    >>> as_good(found, numbers, best, torch.tensor([2, 1]), equal)
    True
    >>> as_good(found, numbers, best, torch.tensor([1, 1]), equal)
    False
    """
    if expected.shape != got.shape or got.is_floating_point() or got.is_complex():
        return False
    dim = places.dim
    if dim is None or numbers.ndim == 0:
        numbers, expected, got = (t.reshape(-1) for t in (numbers, expected, got))
        dim = 0
    elif not places.kept:
        expected, got = expected.unsqueeze(dim), got.unsqueeze(dim)
    if not got.numel():
        return True
    if int(got.min()) < 0 or int(got.max()) >= numbers.shape[dim]:
        return False
    if bool((got.sort(dim).values.diff(dim=dim) == 0).any()):
        return False
    one, other = (numbers.gather(dim, place.long()) for place in (expected, got))
    if not places.ordered:
        one, other = one.sort(dim).values, other.sort(dim).values
    return allows(one, difference_of(one, other))
