"""The functions of torch that the user's code calls: from which lines, with which constants.

``x != self.pad[len(x) == 1]`` runs the same instructions at all sizes, and other values show the
difference only where one of them is a padding. So the calls themselves are compared.
"""

from __future__ import annotations

import math
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode, resolve_name

from torchferry.capturer.trial.instructions import Instruction, is_watched
from torchferry.values.source_line import is_own, package_of

__all__ = ["Asked", "Calls", "asked_otherwise"]

_MODULES = str(Path(torch.nn.modules.__file__).parent) + os.sep

Calls = Mapping[tuple[Instruction, ...], list[tuple[Any, ...]]]
"""By the user's instructions that are on their way: each function and the constants it gets."""

_COMPARE = frozenset(
    ("bucketize", "clamp", "clip", "eq", "equal", "ge", "greater", "gt", "isclose", "isin", "le",
     "less", "lt", "masked_fill", "ne", "not_equal", "searchsorted", "tensor", "where")
)  # fmt: skip
"""Functions that compare values with numbers: only a few values show which numbers."""
_SIMPLE = (str, bool, int, float, complex, torch.dtype, torch.memory_format, type(None))
_FEW = 16  # numbers of a tensor that the model keeps
_CALLS = 3  # that tell whether an integer follows a size


class Asked(TorchFunctionMode):
    """Notes the calls that a model's code makes of torch while the block runs.

    Calls that torch's modules and libraries make are theirs: they ask for sizes to save time.

    Attributes:
        calls: what was asked.
        numbers: those that values may be compared with.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Prepare.

        Args:
            model: the module that runs; which of its own tensors a call gets is noted.
        """
        super().__init__()
        self.calls: defaultdict[tuple[Instruction, ...], list[tuple[Any, ...]]] = defaultdict(list)
        self.numbers: set[float] = set()
        self._kept = {id(one) for one in _tensors_of(model)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if where := self._way(sys._getframe(1)):
            name = resolve_name(func) or repr(func)
            given = tuple(self._constants([args, kwargs or {}]))
            if name.rpartition(".")[2].strip("_") in _COMPARE:
                self.numbers.update(one for one in given if type(one) in (int, float))
                self.numbers.update(self._numbers_kept([*args, *(kwargs or {}).values()]))
            exempt = func is scaled_dot_product_attention  # any values show what it masks
            self.calls[where].append((name, *given) if not exempt else (name,))
        return func(*args, **(kwargs or {}))

    def _way(self, frame: FrameType | None) -> tuple[Instruction, ...]:
        """The instructions of the user's code from a call of torch up to the model's call."""
        found: list[Instruction] = []
        while frame is not None and not is_own(frame.f_code.co_filename):
            file = frame.f_code.co_filename
            if is_watched(file):
                found.append((frame.f_code, frame.f_lasti))
            elif not found and (package_of(file) != "torch" or file.startswith(_MODULES)):
                return ()
            frame = frame.f_back
        return tuple(found)

    def _constants(self, given: Any) -> Iterator[Any]:
        if isinstance(given, torch.Tensor):
            yield ("kept", id(given)) if id(given) in self._kept else "a tensor"
        elif isinstance(given, (tuple, list)):
            for one in given:
                yield from self._constants(one)
        elif isinstance(given, dict):
            for key, one in given.items():
                yield key
                yield from self._constants(one)
        elif isinstance(given, slice):
            yield from self._constants([given.start, given.stop, given.step])
        elif isinstance(given, float) and math.isnan(given):  # no equal of itself
            yield "NaN"
        else:
            yield given if isinstance(given, _SIMPLE) else type(given)

    def _numbers_kept(self, given: Sequence[Any]) -> Iterator[float]:
        for one in given:
            if isinstance(one, torch.Tensor) and id(one) in self._kept and not one.is_complex():
                yield from one.detach().flatten()[:_FEW].tolist()


def asked_otherwise(
    calls: Calls,
    others: Sequence[Calls],
    follows: Callable[[int, Mapping[int, int]], bool] = lambda *_: False,
) -> Instruction | None:
    """The first instruction that asks torch for what it asks in none of the other calls.

    A constant counts that is the same in all others: one that varies among them follows sizes. An
    integer counts only where some calls tell that it does not.

    Args:
        calls: at the sizes in question.
        others: at other sizes, of which each dimension has two or more.
        follows: whether an integer is a size, given what it is in some of the others.
    """
    for where, said in calls.items():
        known = {n: other[where] for n, other in enumerate(others) if where in other}
        if not known:
            return where[0]
        if {one[0] for one in said} - {one[0] for other in known.values() for one in other}:
            return where[0]
        columns = {n: tuple(part for one in other for part in one) for n, other in known.items()}
        row = tuple(part for one in said for part in one)
        for at, part in enumerate(row):
            seen = {n: one[at] for n, one in columns.items() if len(one) == len(row)}
            if len({*seen.values()}) != 1 or part in seen.values():
                continue
            if type(part) is int and (len(seen) < _CALLS or follows(part, seen)):
                continue
            return where[0]
    return None


def _tensors_of(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the tensors that a model keeps: parameters, buffers, attributes and tables of them."""
    for module in model.modules():
        inside = [*module.parameters(recurse=False), *module.buffers(recurse=False)]
        for value in [*inside, *vars(module).values()]:
            found = [*value.values()] if isinstance(value, dict) else value
            for one in found if isinstance(found, (tuple, list)) else [found]:
                if isinstance(one, torch.Tensor):
                    yield one
