"""Whether an exported piece computes what the piece does, and why not.

The recorded outputs are what is right. Where the program gives others, the piece is called again:
with equal random numbers of torch and equal buffers it has to repeat itself. A piece that does
not depends on what no program can hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchferry.capturer.state import watch_state
from torchferry.diagnoser.divergence import line_of_change
from torchferry.diagnoser.made import tensors_of
from torchferry.diagnoser.option import Options
from torchferry.diagnoser.tree import Piece, Record
from torchferry.observer.observation import Call
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.difference import Discrepancy, max_diff
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import flatten, map_leaves
from torchferry.values.randomness import random_kept
from torchferry.values.tolerance import Tolerance

__all__ = ["baked", "changing_line", "difference", "is_random", "is_rounding", "repeats"]

_SPREAD = 10  # times what other random numbers change, which no difference by them exceeds
_NUDGES = 3
_CHANGES = (
    "PyTorch computes something else each time it is called, also with equal random numbers of "
    "torch: what that comes from (Python's or NumPy's random numbers, a clock, a counter) is a "
    "constant in what was exported"
)

Run = Callable[[Call], Any]


def difference(piece: Piece, expected: Any, got: Any, options: Options) -> Discrepancy | None:
    """How far two outputs of a piece are apart; None when that is no difference.

    Args:
        piece: its dtypes say what passes where the options set no limit.
        expected: what is right.
        got: nested alike.
        options: the limits.
    """
    whole = max_diff(expected, got)
    if whole.reason is not None or whole.dnan:
        return whole
    if options.atol is not None or options.rtol is not None:
        over = (options.atol is not None and whole.abs > options.atol) or (
            options.rtol is not None and whole.rel > options.rtol
        )
        return whole if over else None
    dtypes = _dtypes(piece)
    for (_, right), (_, other) in zip(flatten(expected)[0], flatten(got)[0], strict=True):
        found = max_diff(right, other)
        if isinstance(right, torch.Tensor):
            if not Tolerance.of(*dtypes, _floating(right)).allows(found, right):
                return whole
        elif found.abs > 0:
            return whole
    return None


def _dtypes(piece: Piece) -> set[torch.dtype]:
    """What a piece computes in: the dtypes of its weights and of what it is given."""
    given = [leaf for call in piece.calls[:1] for _, leaf in flatten((call.args, call.kwargs))[0]]
    tensors = (*piece.model.parameters(), *piece.model.buffers(), *given)
    found = {_floating(one) for one in tensors if isinstance(one, torch.Tensor)}
    return {dtype for dtype in found if dtype is not None}


def _floating(tensor: torch.Tensor) -> torch.dtype | None:
    return tensor.dtype if tensor.is_floating_point() else None


@contextmanager
def _seeded(piece: Piece, seed: int = 0) -> Iterator[None]:
    """Random numbers of torch, buffers and gradients as in any other such block."""
    with random_kept(), buffers_kept(piece.model), disable_fast_paths(), torch.no_grad():
        torch.manual_seed(seed)
        yield


def _again(piece: Piece, call: Record, seed: int = 0) -> Any:
    args, kwargs = clone((call.args, call.kwargs))
    with _seeded(piece, seed):
        return clone(piece.run(*args, **kwargs))


def is_rounding(piece: Piece, call: Record, got: Any, options: Options, *, flat: bool) -> bool:
    """Whether outputs differ by no more than rounding its inputs otherwise would change them.

    So does what is left of numbers that cancel each other out, and what was rounded on the way.

    Args:
        piece: it repeats itself.
        call: as it was recorded.
        got: the outputs of a program.
        options: limits that are given hold as they are.
        flat: whether they are a list of tensors.
    """
    if options.atol is not None or options.rtol is not None:
        return False
    expected = tensors_of(call.outputs)
    nudged = [tensors_of(_nudged(piece, call, seed)) for seed in range(_NUDGES)]
    dtypes = _dtypes(piece) | _computed(piece, call)
    for number, (right, other) in enumerate(zip(expected, tensors_of(got), strict=True)):
        found = max_diff(right, other)
        spread = max(max_diff(right, one[number]).abs for one in nudged)
        allowed = Tolerance.of(*dtypes, _floating(right)).allows(found, right)
        if not allowed and (found.reason is not None or found.abs > _SPREAD * spread):
            return False
    return flat or max_diff(call.outputs, got).reason is None


def _computed(piece: Piece, call: Record) -> set[torch.dtype]:
    """The dtypes of what a call computes on its way, as within ``torch.autocast``."""
    watch = _Watch()
    with watch:
        _again(piece, call)
    return watch.dtypes


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # modes have no annotations
    """Notes the dtypes of the tensors that operators make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        made = func(*args, **(kwargs or {}))
        self.dtypes |= {one.dtype for one in tensors_of(made) if one.is_floating_point()}
        return made


def _nudged(piece: Piece, call: Record, seed: int) -> Any:
    """What a call gives where each number it is given is the next one, above or below."""
    generator = torch.Generator().manual_seed(seed)

    def nudge(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point():
            return leaf
        signs = torch.randint(2, leaf.shape, generator=generator) * 2 - 1
        return leaf * (1 + signs.to(leaf) * torch.finfo(leaf.dtype).eps)

    args, kwargs = map_leaves(nudge, clone((call.args, call.kwargs)))
    with _seeded(piece):
        return clone(piece.run(*args, **kwargs))


def repeats(piece: Piece, call: Record, options: Options) -> bool:
    """Whether PyTorch gives the recorded outputs when the call is made again."""
    return difference(piece, call.outputs, _again(piece, call), options) is None


def baked(piece: Piece, call: Record, options: Options) -> str:
    """Why a piece does not repeat itself, though torch's random numbers are equal; or nothing."""
    first = _again(piece, call)
    with watch_state(piece.model) as changes:
        second = _again(piece, call)
    if difference(piece, first, second, options) is None:
        return ""
    return str(changes[0]) if changes else _CHANGES


def changing_line(piece: Piece, call: Record) -> str | None:
    """The user's ``file:line`` from which on a call computes something else each time."""
    return line_of_change(lambda: _again(piece, call))


def is_random(
    piece: Piece, call: Record, run: Run, options: Options, *, flat: bool, alike: bool = False
) -> bool:
    """Whether a program differs from what was recorded by random numbers or buffers only.

    Args:
        piece: it repeats itself where they are equal.
        call: one that differs.
        run: the program.
        options: the limits.
        flat: whether it gives a list of tensors.
        alike: it has to give the same where both draw the same random numbers.
    """

    def again(seed: int) -> Any:
        outputs = _again(piece, call, seed)
        return tensors_of(outputs) if flat else outputs

    expected = again(0)
    with _seeded(piece):
        got = run(call)
    found = difference(piece, expected, got, options)
    if found is None or alike:
        return found is None
    # The exporters to ONNX draw numbers of their own.
    spread = max_diff(expected, again(1))
    return found.reason is None and not found.dnan and found.abs <= _SPREAD * spread.abs
