"""PyTorch on some inputs: what it returns, and what it may return as well."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch

from torchferry.judge.arithmetic import RoundsOtherwise, WatchesDtypes, moved
from torchferry.judge.choices import ChoosesOtherwise
from torchferry.judge.draws import same_moments
from torchferry.judge.rounding import ROUNDING, doubled, rounding_error, settled, to_double
from torchferry.judge.tolerance import Limits, Tolerance
from torchferry.judge.verdict import Kind, Verdict
from torchferry.values.buffers import buffers_kept
from torchferry.values.clone import clone
from torchferry.values.difference import max_diff
from torchferry.values.flatten import Path, flatten, map_leaves, path_text
from torchferry.values.kinds import attempt
from torchferry.values.measure import is_numeric
from torchferry.values.randomness import random_kept

__all__ = ["BAKED", "OWN_DRAWS", "Again", "Leaves", "Reference", "Run"]

Run = Callable[[torch.nn.Module, Any], Any]
"""Calls a module, or a copy of it, on inputs, which it may write into."""
Leaves = Callable[[Any], list[tuple[Path, Any]]]
Again = Callable[[], Any]
"""Runs the other side once more, with torch's random numbers as they stand."""

_ROUNDINGS = (3, 12)  # runs: most differences of rounding show in few, choices in more
_CHOICES = 5
_DRAWS = 12
_SPREAD = 10  # times what other choices change, which no difference by them exceeds
BAKED = (
    "PyTorch computes something else each time it is called, also with equal random numbers of "
    "torch: what that comes from (Python's or NumPy's random numbers, a clock, a counter) is a "
    "constant in what was exported"
)
_CONSTANT = "PyTorch draws it at random, and the exported model returns the same in every run"
_OTHER_DRAWS = "both sides draw random numbers, but not from the same distribution"
_DRAWN = "PyTorch draws random numbers for it"
_EARLIER = "PyTorch itself returns another value now: it depends on earlier calls"
_SAME_SEED = "PyTorch draws random numbers; with the same seed both sides agree"
OWN_DRAWS = "both sides draw random numbers for it, each its own"


def _flat(outputs: Any) -> list[tuple[Path, Any]]:
    return flatten(outputs)[0]


@dataclass(frozen=True)
class _Chosen:
    """Other results that are as right, and at which operators they come apart."""

    leaves: Sequence[dict[Path, Any]] = ()
    ties: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        if self.ties:
            return f"equal scores (a tie) at {'; '.join(self.ties[:3])}: either order is right"
        return f"nothing was written to its memory ({'; '.join(self.unset[:3])})"


class Reference:
    """A model on some inputs, run again in other ways when a question needs it.

    Attributes:
        tolerance: for outputs; limits that a user sets hold as they are.
    """

    def __init__(
        self,
        run: Run,
        model: torch.nn.Module,
        inputs: Any,
        *,
        tolerance: Tolerance | Limits | None = None,
        leaves: Leaves = _flat,
        expected: Any = None,
    ) -> None:
        """Prepare to run.

        Args:
            run: calls the model on a copy of the inputs.
            model: for copies in float64; its buffers are kept.
            inputs: nested.
            tolerance: what passes; by the model's dtype when ``None``.
            leaves: takes outputs apart, with the path of each leaf.
            expected: what the model returned when these inputs were recorded; ``None`` runs it.
        """
        self._run, self._model, self._inputs, self._leaves = run, model, inputs, leaves
        self.tolerance = tolerance or Tolerance.usual(model, inputs)
        self._recorded = expected
        self._draws = False
        self._roundings: list[dict[Path, Any]] = []

    # Answers, each computed once and only when it is needed ------------------------------------

    @cached_property
    def expected(self) -> Any:
        """What the model returns, or has returned.

        Raises:
            Exception: whatever the model raises.
        """
        return self._first if self._recorded is None else self._recorded

    @cached_property
    def _first(self) -> Any:
        """The outputs with seed 0; also learns whether the call draws random numbers of torch."""
        return self._call(self._model, clone(self._inputs), watch=True)

    def _call(
        self,
        model: torch.nn.Module,
        inputs: Any,
        seed: int = 0,
        mode: AbstractContextManager[Any] | None = None,
        *,
        watch: bool = False,
    ) -> Any:
        with (
            random_kept(), buffers_kept(model), torch.no_grad(), warnings.catch_warnings(),
            (torch.compiler.set_stance("force_eager") if mode else nullcontext()),
            (mode or nullcontext()),
        ):  # fmt: skip
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            before = _random_states()
            outputs = clone(self._run(model, inputs))
            if watch:
                self._draws = not all(map(torch.equal, before, _random_states()))
            return outputs

    def _otherwise(
        self, seed: int = 0, mode: AbstractContextManager[Any] | None = None, inputs: Any = None
    ) -> dict[Path, Any]:
        """The leaves of another run; nothing where the model cannot be run so."""
        given = clone(self._inputs) if inputs is None else inputs
        outputs, _ = attempt(lambda: self._call(self._model, given, seed, mode))
        return self._by_path(outputs)

    def _by_path(self, outputs: Any) -> dict[Path, Any]:
        return {} if outputs is None else dict(self._leaves(outputs))

    @cached_property
    def _right(self) -> dict[Path, Any]:
        return self._by_path(self.expected)

    @cached_property
    def _seeded(self) -> dict[Path, Any]:
        return self._by_path(attempt(lambda: self._first)[0])

    @cached_property
    def _same_seed(self) -> dict[Path, Any]:
        return self._otherwise(0)

    @cached_property
    def _other_seeds(self) -> list[dict[Path, Any]]:
        return [self._otherwise(seed) for seed in range(1, _DRAWS)]

    @cached_property
    def _exact(self) -> dict[Path, Any]:
        """The leaves in float64; nothing where a copy cannot be made or run."""
        twin, _ = attempt(doubled, self._model)
        if twin is None:
            return {}
        return self._by_path(attempt(lambda: self._call(twin, to_double(self._inputs)))[0])

    def _rounded(self, count: int) -> list[dict[Path, Any]]:
        """The leaves of so many runs whose inputs and results are rounded otherwise."""
        for seed in range(len(self._roundings), count):
            generator = torch.Generator().manual_seed(seed)
            inputs = map_leaves(partial(_moved, generator=generator), self._inputs)
            self._roundings.append(self._otherwise(0, RoundsOtherwise(seed), inputs))
        return self._roundings

    @cached_property
    def _chosen(self) -> _Chosen:
        """The leaves where ties are broken otherwise and unset memory holds other numbers."""
        leaves = []
        for seed in range(_CHOICES):
            mode = ChoosesOtherwise(seed)
            leaves.append(self._otherwise(0, mode))
            if not mode.ties and not mode.unset:
                return _Chosen()
        return _Chosen(leaves, tuple(mode.ties), tuple(mode.unset))

    @cached_property
    def _coarse(self) -> set[torch.dtype]:
        """The dtypes of less precision than float32 that the call computes in."""
        watch = WatchesDtypes()
        self._otherwise(0, watch)
        return watch.coarse

    # Questions ---------------------------------------------------------------------------------

    def judge(self, got: Any, again: Again | None = None) -> list[tuple[Path, Verdict]]:
        """The verdict on each leaf of the outputs of the other side; one of all of another shape.

        Args:
            got: nested as the model's outputs, or with the same leaves.
            again: runs the other side once more; without it nothing is said of random numbers
                but that PyTorch draws them.

        Raises:
            Exception: what the model raises.
        """
        leaves = dict(self._leaves(got))
        if [*leaves] != [*self._right]:
            return [((), Verdict("differs", max_diff(self.expected, got)))]
        draws = _Draws(self, again)
        return [(path, self._judge(path, leaf, draws)) for path, leaf in leaves.items()]

    def _judge(self, path: Path, got: Any, draws: _Draws) -> Verdict:
        right = self._right[path]
        difference = max_diff(right, got)
        tolerance = self.tolerance.widened(getattr(right, "dtype", None))
        limit = f"{tolerance.limit(difference.scale):.2g} ({tolerance.basis or 'as set'})"
        if difference.reason is not None:
            return Verdict("differs", difference)
        passes = _allows(tolerance, right, got)
        if passes and not self._draws:
            return Verdict("equal", difference, limit=limit)
        random = draws.verdict(path, difference, passes)
        if random is not None:
            return random
        if passes:
            return Verdict("equal", difference, limit=limit)
        return (
            self._inside(right, got)
            or self._baked(path, got, tolerance)
            or self._choice(path, got, tolerance)
            or self._rounding(path, got, tolerance, limit)
            or Verdict("differs", difference, limit=limit)
        )

    def _inside(self, right: Any, got: Any) -> Verdict | None:
        """Whether the limits of the narrowest arithmetic inside allow it."""
        if not self.tolerance.basis:
            return None
        for dtype in self._coarse:
            tolerance = self.tolerance.widened(dtype)
            if tolerance is not self.tolerance and _allows(tolerance, right, got):
                difference = max_diff(right, got)
                limit = f"{tolerance.limit(difference.scale):.2g} ({tolerance.basis})"
                said = f"the model computes in {tolerance.basis} inside"
                return Verdict("equal", difference, said, limit)
        return None

    def _baked(self, path: Path, got: Any, tolerance: Tolerance | Limits) -> Verdict | None:
        """The verdict where PyTorch does not repeat itself though random numbers are equal."""
        if self.repeats(path):
            return None
        found = self._choice(path, got, tolerance) if self._chosen.unset else None
        return found or Verdict("differs", max_diff(self._right[path], got), BAKED)

    def _choice(self, path: Path, got: Any, tolerance: Tolerance | Limits) -> Verdict | None:
        """The verdict where PyTorch may choose otherwise, and the other side does."""
        right, chosen = self._right[path], self._chosen
        values = [other.get(path) for other in chosen.leaves]
        options: dict[str, Any] = {"typical": False, "times": _SPREAD}
        if settled(*_tensors(right, got, values), tolerance, **options) is None:
            return None
        return Verdict("random", max_diff(right, got), chosen.said, chosen=True)

    def repeats(self, path: Path) -> bool:
        """Whether a leaf is the same in another run with equal random numbers of torch."""
        if path not in self._seeded:
            return True  # nobody knows
        return _allows(self._widened(path), self._seeded[path], self._same_seed.get(path))

    def _widened(self, path: Path) -> Tolerance | Limits:
        return self.tolerance.widened(getattr(self._right[path], "dtype", None))

    def _rounding(
        self, path: Path, got: Any, tolerance: Tolerance | Limits, limit: str
    ) -> Verdict | None:
        """Whether PyTorch's own rounding is as large."""
        if not tolerance.basis:
            return None
        right = self._right[path]
        difference = max_diff(right, got)
        if tolerance.allows(difference, right, times=ROUNDING):
            own = rounding_error(self._exact.get(path), right, got)
            if own is not None:
                said = f"it is as near to float64 as PyTorch, which is off by {own:.2g}"
                return Verdict("rounding", difference, said, limit, own)
        for count in _ROUNDINGS:
            others = [other.get(path) for other in self._rounded(count)]
            own = settled(*_tensors(right, got, others), tolerance)
            if own is not None:
                said = f"PyTorch itself moves by {own:.2g} there when it rounds otherwise"
                return Verdict("rounding", difference, said, limit, own)
        return None

    def contradicts(self) -> str | None:
        """Why PyTorch's own results on these inputs are no measure, though it draws nothing.

        Returns:
            ``None`` when two runs, another number of threads and float64 say the same.
        """
        right = self._right
        if self._recorded is None and self._draws:
            return None
        threads = torch.get_num_threads()
        torch.set_num_threads(1 if threads > 1 else 2)
        try:
            other = self._otherwise(0)
        finally:
            torch.set_num_threads(threads)
        for path, leaf in right.items():
            for words, leaves in (
                ("two runs on the same inputs", self._same_seed),
                ("runs with other numbers of threads", other),
            ):
                if leaves and not _allows(self._widened(path), leaf, leaves.get(path)):
                    return f"{words} differ in {path_text(path) or 'the output'}"
            exact = self._exact.get(path)
            if isinstance(exact, torch.Tensor) and exact.is_floating_point():
                found = max_diff(exact, leaf.double())
                if found.reason or found.dnan or found.abs > 0.1 * max(found.scale, 1e-6):
                    said = path_text(path) or "the output"
                    return f"float32 and float64 have nothing in common in {said}"
        return None


def _random_states() -> list[torch.Tensor]:
    return [torch.get_rng_state(), *torch.cuda.get_rng_state_all()]


class _Draws:
    """What random numbers explain, with the other side at hand."""

    def __init__(self, reference: Reference, again: Again | None) -> None:
        self._of, self._again = reference, again

    @cached_property
    def _theirs(self) -> list[dict[Path, Any]]:
        """The other side's leaves in several runs, the first with seed 0; fewer where it fails."""
        runs: list[dict[Path, Any]] = []
        if self._again is None:
            return runs
        for seed in range(_DRAWS):
            with random_kept(), torch.no_grad():
                torch.manual_seed(seed)
                runs.append(self._of._by_path(attempt(self._again)[0]))
        return runs

    def verdict(self, path: Path, difference: Any, passes: bool) -> Verdict | None:
        """The verdict on a leaf that PyTorch draws at random; None on any other.

        A reference that was recorded is the draw of a seed that nobody knows.
        """
        of, tolerance = self._of, self._of._widened(path)
        seeded, right = of._seeded.get(path), of._right[path]
        again = seeded is None or _allows(tolerance, right, seeded)
        if (again and not of._draws) or not of.repeats(path):
            return None
        ours = [seeded, *(run.get(path) for run in of._other_seeds)] if of._draws else []
        if ours and again and _all_equal(ours):
            return None
        theirs = [run.get(path) for run in self._theirs]
        if theirs and _allows(tolerance, seeded, theirs[0]):
            return Verdict("random", difference, _SAME_SEED if ours else _EARLIER)
        if not ours or not theirs:
            return Verdict("random", difference, _DRAWN) if ours else None
        if _all_equal(theirs):
            return None if passes else Verdict("differs", difference, _CONSTANT)
        if difference.abs > _SPREAD * max(max_diff(seeded, other).abs for other in ours):
            return None  # no draw explains it
        fair = all(is_numeric(one) for one in ours + theirs) and same_moments(ours, theirs)
        kind: Kind = "random" if fair else "differs"
        return Verdict(kind, difference, OWN_DRAWS if fair else _OTHER_DRAWS)


def _all_equal(values: Sequence[Any]) -> bool:
    return all(max_diff(values[0], value).abs == 0 for value in values[1:])


def _allows(tolerance: Tolerance | Limits, right: Any, got: Any) -> bool:
    found = max_diff(right, got)
    if not isinstance(right, torch.Tensor | float):  # neither numbers of Python nor constants
        return found.reason is None and found.abs == 0
    return tolerance.allows(found, right)


def _tensors(right: Any, got: Any, others: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
    """Numbers of Python as tensors."""

    def as_tensor(value: Any) -> Any:
        return torch.as_tensor(value) if is_numeric(value) else value

    return as_tensor(right), as_tensor(got), [as_tensor(other) for other in others]


def _moved(leaf: Any, generator: torch.Generator) -> Any:
    return moved(leaf, generator) if isinstance(leaf, torch.Tensor) else clone(leaf)
