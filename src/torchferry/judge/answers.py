"""The runs of a model on some inputs, each made once and only when a question needs it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from torchferry.judge.arithmetic import ComputesInFloat64, RoundsOtherwise, WatchesDtypes, moved
from torchferry.judge.choices import ChoosesOtherwise
from torchferry.judge.rounding import doubled, to_double
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import Path, flatten, map_leaves
from torchferry.values.kinds import attempt
from torchferry.values.randomness import random_kept

__all__ = ["Answers", "Chosen", "Leaves", "Run", "flat"]

_PROCESS = os.getpid()

Run = Callable[[torch.nn.Module, Any], Any]
"""Calls a module, or a copy of it, on inputs, which it may write into."""
Leaves = Callable[[Any], list[tuple[Path, Any]]]
"""Takes outputs apart, with the path of each leaf."""

_CHOICES = 5


def flat(outputs: Any) -> list[tuple[Path, Any]]:
    """The leaves of nested outputs."""
    return flatten(outputs)[0]


@dataclass(frozen=True)
class Chosen:
    """Other results that are as right, and where they come apart.

    Attributes:
        leaves: of each result.
        ties: operators at which numbers tied, with the user's lines.
        unset: the same of memory that nothing wrote.
    """

    leaves: Sequence[dict[Path, Any]] = ()
    ties: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()

    @property
    def evidence(self) -> str:
        """Why they are as right, as a sentence."""
        if self.ties:
            return f"equal scores (a tie) at {'; '.join(self.ties[:3])}: either order is right"
        return f"nothing was written to its memory ({'; '.join(self.unset[:3])})"


class Answers:
    """What a model returns on some inputs, under this and that.

    Attributes:
        draws: whether the first run drew random numbers of torch; False before it.
    """

    def __init__(
        self, run: Run, model: torch.nn.Module, inputs: Any, leaves: Leaves, recorded: Any
    ) -> None:
        """Prepare to run; see `Reference`."""
        self._run, self._model, self._inputs, self._leaves = run, model, inputs, leaves
        self._recorded = recorded
        self.draws = False
        self._seeds: list[dict[Path, Any]] = []
        self._roundings: list[dict[Path, Any]] = []

    @cached_property
    def expected(self) -> Any:
        """What the model returns, or has returned.

        Raises:
            Exception: whatever the model raises.
        """
        return self._first if self._recorded is None else self._recorded

    @cached_property
    def _first(self) -> Any:
        outputs, self.draws = self._call(self._model, clone(self._inputs))
        return outputs

    def _call(
        self,
        model: torch.nn.Module,
        inputs: Any,
        seed: int = 0,
        mode: AbstractContextManager[Any] | None = None,
    ) -> tuple[Any, bool]:
        """The outputs, and whether random numbers were drawn."""
        with (
            random_kept(), buffers_kept(model), torch.no_grad(), warnings.catch_warnings(),
            disable_fast_paths(),
            # Under a mode Dynamo would trace what PyTorch compiles on its own, as torch.cond.
            (torch.compiler.set_stance("force_eager") if mode else nullcontext()),
            (mode or nullcontext()),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            before = _random_states()
            outputs = clone(self._run(model, inputs))
            return outputs, not all(map(torch.equal, before, _random_states()))

    def otherwise(
        self, seed: int = 0, mode: AbstractContextManager[Any] | None = None, inputs: Any = None
    ) -> dict[Path, Any]:
        """The leaves of another run; none where the model cannot be run so.

        Args:
            seed: of torch's random numbers.
            mode: within which it runs.
            inputs: others, which it may write into.
        """
        given = clone(self._inputs) if inputs is None else inputs
        found, _ = attempt(lambda: self._call(self._model, given, seed, mode)[0])
        return self.by_path(found)

    def by_path(self, outputs: Any) -> dict[Path, Any]:
        """The leaves of outputs of either side; none of outputs that are not there."""
        return {} if outputs is None else dict(self._leaves(outputs))

    @cached_property
    def right(self) -> dict[Path, Any]:
        """The leaves of `expected`."""
        return self.by_path(self.expected)

    @cached_property
    def seeded(self) -> dict[Path, Any]:
        """The leaves with seed 0."""
        return self.by_path(attempt(lambda: self._first)[0])

    @cached_property
    def same_seed(self) -> dict[Path, Any]:
        """The same once more."""
        return self.otherwise(0)

    def seeds(self, count: int) -> list[dict[Path, Any]]:
        """The leaves with so many other seeds, from 1."""
        self._seeds += [self.otherwise(seed + 1) for seed in range(len(self._seeds), count)]
        return self._seeds[:count]

    @cached_property
    def exact(self) -> dict[Path, Any]:
        """The leaves in float64; none where the model cannot be run so, and neither can a copy."""
        inputs = to_double(self._inputs)
        found = self.otherwise(0, ComputesInFloat64(), inputs)
        if found and all(map(_is_exact, found.values())):
            return found
        twin, _ = attempt(doubled, self._model)
        if twin is None:
            return {}
        found, _ = attempt(lambda: self._call(twin, to_double(self._inputs))[0])
        return self.by_path(found)

    def rounded(self, count: int) -> list[dict[Path, Any]]:
        """The leaves of so many runs whose inputs and results are rounded otherwise."""
        for seed in range(len(self._roundings), count):
            generator = torch.Generator().manual_seed(seed)
            inputs = map_leaves(partial(_moved, generator=generator), self._inputs)
            self._roundings.append(self.otherwise(0, RoundsOtherwise(seed), inputs))
        return self._roundings[:count]

    @cached_property
    def chosen(self) -> Chosen:
        """The leaves where ties are broken otherwise and unset memory holds other numbers."""
        leaves = []
        for seed in range(_CHOICES):
            mode = ChoosesOtherwise(seed)
            leaves.append(self.otherwise(0, mode))
            if not mode.ties and not mode.unset:
                return Chosen()
        return Chosen(leaves, tuple(mode.ties), tuple(mode.unset))

    @cached_property
    def coarse(self) -> set[torch.dtype]:
        """The dtypes of less precision than float32 that the call computes in."""
        watch = WatchesDtypes()
        self.otherwise(0, watch)
        return watch.coarse

    @cached_property
    def other_threads(self) -> dict[Path, Any]:
        """The leaves with another number of threads; none in a forked copy of the process.

        There OpenMP waits for threads that were not copied as soon as it is to use more than one.
        """
        if os.getpid() != _PROCESS:
            return {}
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if threads > 1 else 2)
        try:
            return self.otherwise(0)
        finally:
            torch.set_num_threads(threads)


def _is_exact(leaf: Any) -> bool:
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return not floating or leaf.dtype == torch.float64


def _random_states() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


def _moved(leaf: Any, generator: torch.Generator) -> Any:
    return moved(leaf, generator) if isinstance(leaf, torch.Tensor) else clone(leaf)
