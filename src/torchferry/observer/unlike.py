"""Other values for the tensors of a call: what the recorded ones have in common, they have not.

Code that treats one row or one token in another way often gives the same by chance: nothing is
masked in a mask of ones, and ``relu`` changes no positive number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch

from torchferry.observer.sets import Arguments
from torchferry.observer.tree import leaves_of, replace_leaves
from torchferry.values.flatten import Path

__all__ = ["raised", "scaled", "special_values", "unlike", "with_numbers"]

_SPREAD = (-3.0, 7.0)  # magnitudes, as powers of two, that numbers are multiplied by
_SPECIAL = (float("inf"), -float("inf"), float("nan"), 1e30, -1e30, 0.0)
_SCALES = (1e-7, 1e6)  # such as a bound or an epsilon makes a difference for
_FACTORS = (2, 4, 8, 16, 64)  # of the largest integer: a model may have few rows to look up
_ARGUMENTS = 8  # that are tried alone
_ZEROS = 0.1  # the share of numbers that become 0, and of a mask's that change


def unlike(inputs: Arguments) -> Iterator[Arguments]:
    """The same arguments with numbers of both signs and changed masks; then of one sign.

    The second time other integers change too, lengths and indices, to such as are no larger; those
    in rising order stay, as positions and offsets do.

    Args:
        inputs: positional and named arguments.
    """
    for signs in (True, False):
        change = partial(_changed, signs=signs, generator=torch.Generator().manual_seed(0))
        yield replace_leaves(*inputs, change=change)


def special_values(inputs: Arguments) -> Iterator[Arguments]:
    """The same arguments with one tensor of usual numbers, the others as they are; then special.

    Numbers that are all large hide a small one that is added, and a mask of zeros adds nothing.
    Floats become numbers of order 1, then infinities, NaN and others as far; integers lie about
    those they were, 0 and negative ones among them.

    Args:
        inputs: positional and named arguments.
    """
    for place, leaf in _numeric(inputs):
        rounds = -(-len(_SPECIAL) // _room(leaf)) if _is_real(leaf) else 1
        for turn in range(rounds + 1):
            generator = torch.Generator().manual_seed(0)
            change = partial(_special, generator=generator, turn=turn)
            yield _replaced(inputs, place, change)


def with_numbers(inputs: Arguments, numbers: Sequence[float]) -> Iterator[Arguments]:
    """The same arguments with some numbers in one tensor, every other element as it was.

    Args:
        inputs: positional and named arguments.
        numbers: what code compares with; a tensor of integers gets those that are whole, and the
            numbers next to them.
    """
    whole = [int(one) + step for one in numbers if float(one).is_integer() for step in (0, -1, 1)]

    for place, leaf in _numeric(inputs):
        limits = None if _is_real(leaf) else torch.iinfo(leaf.dtype)
        wanted = list(numbers) if limits is None else [
            one for one in dict.fromkeys(whole) if limits.min <= one <= limits.max
        ]  # fmt: skip
        room = _room(leaf)
        for first in range(0, len(wanted), room):
            some = torch.tensor(wanted[first : first + room]).to(leaf.device, leaf.dtype)
            yield _replaced(inputs, place, partial(_with_some, some=some))


def scaled(inputs: Arguments) -> Iterator[Arguments]:
    """The same arguments with all numbers tiny; then large. Every other one is negative.

    Args:
        inputs: positional and named arguments.
    """

    def change(_: Path, leaf: Any, *, scale: float) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        signs = 1 - 2 * (torch.arange(leaf.numel(), device=leaf.device) % 2).view(leaf.shape)
        return (leaf.detach().abs() * signs * scale).to(leaf.dtype)

    for scale in _SCALES:
        yield replace_leaves(*inputs, change=partial(change, scale=scale))


def raised(inputs: Arguments, recorded: Sequence[Arguments]) -> Iterator[Arguments]:
    """The same arguments with larger and larger integers: a model that looks them up fails soon.

    Args:
        inputs: positional and named arguments.
        recorded: those of calls that were recorded, which tell masks and how large integers are.
    """
    largest: dict[Path, int] = {}
    for path, leaf in (pair for one in recorded for pair in leaves_of(*one).items()):
        if _has_numbers(leaf) and not leaf.is_floating_point() and not leaf.is_complex():
            largest[path] = max(largest.get(path, 0), int(leaf.abs().max()))

    def change(path: Path, leaf: Any, *, factor: int) -> Any:
        if largest.get(path, 0) < 2:  # none, or a mask
            return leaf
        below = torch.arange(leaf.numel(), device=leaf.device).view(leaf.shape) % 2
        return (min(largest[path] * factor, torch.iinfo(leaf.dtype).max) - below).to(leaf.dtype)

    if any(most > 1 for most in largest.values()):
        for factor in _FACTORS:
            yield replace_leaves(*inputs, change=partial(change, factor=factor))


def _numeric(inputs: Arguments) -> list[tuple[Path, torch.Tensor]]:
    found = [(path, leaf) for path, leaf in leaves_of(*inputs).items() if _has_numbers(leaf)]
    return found[:_ARGUMENTS]


def _replaced(
    inputs: Arguments, place: Path, change: Callable[[torch.Tensor], torch.Tensor]
) -> Arguments:
    def apply(path: Path, leaf: Any) -> Any:
        return change(leaf) if path == place else leaf

    return replace_leaves(*inputs, change=apply)


def _is_real(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _room(tensor: torch.Tensor) -> int:
    """How many elements of a tensor may change so that others stay between them."""
    return -(-tensor.numel() // 2)


def _with_some(tensor: torch.Tensor, some: torch.Tensor) -> torch.Tensor:
    """A tensor with others' elements, from the first on, in the place of every other one."""
    copy = tensor.detach().clone(memory_format=torch.contiguous_format)
    copy.view(-1)[: 2 * len(some) : 2] = some
    return copy


def _has_numbers(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.numel() > 0 and leaf.dtype is not torch.bool


def _special(tensor: torch.Tensor, generator: torch.Generator, turn: int) -> torch.Tensor:
    """A tensor of usual numbers; from the first turn on with some of the special ones."""
    if _is_real(tensor):
        parts = (*tensor.shape, 2) if tensor.is_complex() else tensor.shape
        numbers = torch.randn(parts, generator=generator)
        whole = torch.view_as_complex(numbers) if tensor.is_complex() else numbers
        if turn and tensor.numel() > 4 * len(_SPECIAL):  # anywhere, and each of them
            chosen = torch.randint(0, len(_SPECIAL), tensor.shape, generator=generator)
            where = torch.rand(tensor.shape, generator=generator) < 2 * _ZEROS
            whole = torch.where(where, torch.tensor(_SPECIAL)[chosen], whole)
        usual = whole.to(tensor.device, tensor.dtype)
        special = torch.tensor(_SPECIAL).roll(-(turn - 1) * _room(tensor))[: _room(tensor)]
        return _with_some(usual, special.to(tensor.device, tensor.dtype)) if turn else usual
    most = int(tensor.max())
    low, high = (-most - 2, 4 * most + 3) if turn else (min(int(tensor.min()), 0), most + 1)
    limits = torch.iinfo(tensor.dtype)
    low, high = max(low, limits.min), max(min(high, limits.max), low + 1)
    drawn = torch.randint(low, high, tensor.shape, generator=generator)
    drawn.view(-1)[:: 2 + min(turn, 1)] = 0  # often what pads
    return drawn.to(tensor.device, tensor.dtype)


def _changed(_: Path, leaf: Any, *, signs: bool, generator: torch.Generator) -> Any:
    if not isinstance(leaf, torch.Tensor) or not leaf.numel() or leaf.is_complex():
        return leaf
    if leaf.is_floating_point():
        return _spread(leaf, generator, signs=signs)
    if _is_mask(leaf):
        return _flipped(leaf, generator)
    return leaf if signs or _rises(leaf) else _lowered(leaf, generator)


def _spread(tensor: torch.Tensor, generator: torch.Generator, *, signs: bool) -> torch.Tensor:
    low, high = _SPREAD
    powers = torch.rand(tensor.shape, generator=generator) * (high - low) + low
    factors = powers.exp2() * (torch.rand(tensor.shape, generator=generator) >= _ZEROS)
    if signs:
        factors *= torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    numbers = tensor.detach().to(torch.float64)
    numbers = torch.where(numbers == 0, torch.ones_like(numbers), numbers)  # a mask of floats
    spread = numbers * factors.to(numbers.device)
    return torch.where(numbers.isfinite(), spread, numbers).to(tensor.dtype)


def _is_mask(tensor: torch.Tensor) -> bool:
    if tensor.dtype is torch.bool:
        return True
    return bool(((tensor == 0) | (tensor == 1)).all())


def _rises(tensor: torch.Tensor) -> bool:
    return tensor.ndim > 0 and tensor.shape[-1] > 1 and bool((tensor.diff() > 0).all())


def _lowered(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    least, most = min(int(tensor.min()), 1), int(tensor.max())
    drawn = torch.randint(least, most + 1, tensor.shape, generator=generator)
    return drawn.to(tensor.dtype).to(tensor.device)


def _flipped(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A mask where some entries are the other; one at least."""
    where = torch.rand(tensor.shape, generator=generator) < _ZEROS
    where.view(-1)[int(torch.randint(0, tensor.numel(), (), generator=generator))] = True
    other = tensor.logical_not().to(tensor.dtype)
    return torch.where(where.to(tensor.device), other, tensor.detach())
