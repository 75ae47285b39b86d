"""Which numbers the user's code gives to PyTorch's functions.

Code that runs the same instructions at every size may take a number from a table there:
``x.clamp(max=LIMITS[bool(x.shape[0] > 1)])``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

from torchferry.capturer.instructions import is_watched
from torchferry.dims import Condition
from torchferry.observer import Observation
from torchferry.observer.sets import Arguments
from torchferry.seams.pytorch import pytree
from torchferry.values.source_line import is_library, shown_line

__all__ = ["Numbers", "UsualNumbers", "changed_number", "record_numbers"]


class UsualNumbers:
    """The numbers of a model's recorded calls."""

    def __init__(
        self, seen: Observation, run: Callable[[Arguments], Any], packages: frozenset[str]
    ) -> None:
        """Prepare.

        Args:
            seen: the recorded calls.
            run: calls the model with copies of arguments.
            packages: installed ones whose code counts.
        """
        self._seen = seen
        self._run = run
        self._packages = packages

    def changed_line(self, inputs: Arguments, broken: Sequence[Condition]) -> str:
        """The user's line that gives PyTorch another number than at all usual sizes, or ``""``.

        What does not depend on a size stays the same where it differs: the sizes that break
        the conditions must differ between the usual calls.
        """
        names = {name for one in broken for name in one.names}
        usual = [(sizes, calls) for sizes, calls in self._recorded
                 if not any(one.broken_by(sizes) for one in broken)]  # fmt: skip
        if any(len({sizes.get(name) for sizes, _ in usual}) < 2 for name in names):
            return ""
        return changed_number(self._given(inputs), [calls for _, calls in usual])

    @cached_property
    def _recorded(self) -> list[tuple[dict[str, int], list[Numbers]]]:
        """Sizes and numbers of each recorded call."""
        seen = self._seen
        return [(seen.sizes_of(call), self._given(seen.normalized(call))) for call in seen.calls]

    def _given(self, inputs: Arguments) -> list[Numbers]:
        with record_numbers(self._packages) as found:
            self._run(inputs)
        return found


@dataclass(frozen=True)
class Numbers:
    """One call of a function of PyTorch's.

    Attributes:
        function: it.
        place: file and number of the user's line.
        values: numbers and strings among the arguments; flags, which choose a way, are left out.
    """

    function: Callable[..., Any]
    place: tuple[str, int]
    values: tuple[Any, ...]

    @property
    def line(self) -> str:
        """``file:line: code``."""
        return shown_line(*self.place)


@contextmanager
def record_numbers(packages: frozenset[str] = frozenset()) -> Iterator[list[Numbers]]:
    """Collect the calls of PyTorch's functions inside the block, but for those of packages.

    Args:
        packages: those that count all the same.
    """
    with _Recorder(packages) as recorder:
        yield recorder.calls


class _Recorder(TorchFunctionMode):
    def __init__(self, packages: frozenset[str]) -> None:
        super().__init__()
        self.calls: list[Numbers] = []
        self._packages = packages

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        frame = _outside_torch(sys._getframe(1))
        if frame is not None and is_watched(frame.f_code.co_filename, self._packages):
            leaves = [part for leaf in pytree.tree_leaves((args, named)) for part in _parts(leaf)]
            values = tuple(one for one in leaves if type(one) in (int, float, complex, str))
            place = frame.f_code.co_filename, frame.f_lineno
            self.calls.append(Numbers(func, place, values))
        return func(*args, **named)


def _parts(leaf: Any) -> tuple[Any, ...]:
    return (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)


def _outside_torch(frame: FrameType | None) -> FrameType | None:
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def changed_number(calls: Sequence[Numbers], usual: Sequence[Sequence[Numbers]]) -> str:
    """``file:line: code`` of a call that has the same numbers at all usual sizes, here others.

    ``""`` if there is none, or if not all runs call the same functions.

    Args:
        calls: at the sizes in question.
        usual: at others, each list at different ones.
    """
    alike = [(one.function, one.place, len(one.values)) for one in calls]
    if any([(one.function, one.place, len(one.values)) for one in run] != alike for run in usual):
        return ""
    for place, call in enumerate(calls):
        for value, *known in zip(call.values, *(run[place].values for run in usual), strict=True):
            if len(set(known)) == 1 and value != known[0]:
                return call.line
    return ""
