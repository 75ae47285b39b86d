"""PyTorch on some inputs: what it returns, and what it may return as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import torch

from torchferry.judge.answers import Answers, Leaves, Run, flat
from torchferry.judge.draws import same_moments
from torchferry.judge.rounding import ROUNDING, rounding_error, settled
from torchferry.judge.tolerance import Limits, Tolerance
from torchferry.judge.verdict import Verdict
from torchferry.values.difference import Discrepancy, max_diff
from torchferry.values.flatten import Path, path_text
from torchferry.values.kinds import attempt
from torchferry.values.measure import is_numeric
from torchferry.values.randomness import random_kept

__all__ = ["BAKED", "OWN_DRAWS", "Again", "Reference"]

Again = Callable[[], Any]
"""Runs the other side once more, with torch's random numbers as they stand."""

_ROUNDINGS = (3, 12)  # runs: most differences of rounding show in few, choices in more
_DRAWS = 12
_GLANCES = 3  # draws that show nearly always whether a leaf depends on any
_GROSS = 0.1  # of the scale: results that far apart have nothing in common
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
        leaves: Leaves = flat,
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
        self.tolerance = tolerance or Tolerance.usual(model, inputs)
        self._recorded = expected
        self._answers = Answers(run, model, inputs, leaves, expected)

    @property
    def expected(self) -> Any:
        """What the model returns, or has returned.

        Raises:
            Exception: whatever the model raises.
        """
        return self._answers.expected

    def judge(self, got: Any, again: Again | None = None) -> list[tuple[Path, Verdict]]:
        """The verdict on each leaf of the outputs of the other side; one of all of another shape.

        Args:
            got: nested as the model's outputs, or with the same leaves.
            again: runs the other side once more; without it nothing is said of random numbers
                but that PyTorch draws them.

        Raises:
            Exception: what the model raises.
        """
        leaves = dict(self._answers.by_path(got))
        if [*leaves] != [*self._answers.right]:
            return [((), Verdict("differs", max_diff(self._answers.expected, got)))]
        draws = _Draws(self, self._answers, again)
        return [(path, self._judge(path, leaf, draws)) for path, leaf in leaves.items()]

    def _judge(self, path: Path, got: Any, draws: _Draws) -> Verdict:
        right = self._answers.right[path]
        difference = max_diff(right, got)
        tolerance = self.tolerance.widened(getattr(right, "dtype", None))
        limit = f"{tolerance.limit(difference.scale):.2g} ({tolerance.basis or 'as set'})"
        if difference.reason is not None:
            return Verdict("differs", difference)
        passes = _permits(tolerance, right, difference)
        if passes and not self._answers.draws:
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
        for dtype in self._answers.coarse:
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
        found = self._choice(path, got, tolerance) if self._answers.chosen.unset else None
        return found or Verdict("differs", max_diff(self._answers.right[path], got), BAKED)

    def _choice(self, path: Path, got: Any, tolerance: Tolerance | Limits) -> Verdict | None:
        """The verdict where PyTorch may choose otherwise, and the other side does."""
        right, chosen = self._answers.right[path], self._answers.chosen
        values = [other.get(path) for other in chosen.leaves]
        options: dict[str, Any] = {"typical": False, "times": _SPREAD}
        if settled(*_tensors(right, got, values), tolerance, **options) is None:
            return None
        return Verdict("random", max_diff(right, got), chosen.evidence, chosen=True)

    def repeats(self, path: Path) -> bool:
        """Whether a leaf is the same in another run with equal random numbers of torch."""
        if path not in self._answers.seeded:
            return True  # nobody knows
        return _allows(
            self._widened(path), self._answers.seeded[path], self._answers.same_seed.get(path)
        )

    def _widened(self, path: Path) -> Tolerance | Limits:
        return self.tolerance.widened(getattr(self._answers.right[path], "dtype", None))

    def _rounding(
        self, path: Path, got: Any, tolerance: Tolerance | Limits, limit: str
    ) -> Verdict | None:
        """Whether PyTorch's own rounding is as large."""
        if not tolerance.basis:
            return None
        right = self._answers.right[path]
        difference = max_diff(right, got)
        if tolerance.allows(difference, right, times=ROUNDING):
            own = rounding_error(self._answers.exact.get(path), right, got)
            if own is not None:
                said = f"it is as near to float64 as PyTorch, which is off by {own:.2g}"
                return Verdict("rounding", difference, said, limit, own)
        for count in _ROUNDINGS:
            others = [other.get(path) for other in self._answers.rounded(count)]
            own = settled(*_tensors(right, got, others), tolerance)
            if own is not None:
                said = f"PyTorch itself moves by {own:.2g} there when it rounds otherwise"
                return Verdict("rounding", difference, said, limit, own)
        return None

    def is_no_measure(self, got: Any, paths: Sequence[Path]) -> bool:
        """Whether PyTorch contradicts itself, or is off float64 by what the other side differs.

        Args:
            got: of the other side, as `judge` takes it.
            paths: of the leaves that differ.
        """
        leaves, answers = dict(self._answers.by_path(got)), self._answers

        def is_rounding(path: Path) -> bool:
            exact, right = answers.exact.get(path), answers.right.get(path)
            if not isinstance(exact, torch.Tensor) or not isinstance(right, torch.Tensor):
                return False
            own, found = max_diff(exact, right.double()), max_diff(right, leaves.get(path))
            unlike = own.reason or found.reason or own.dnan or found.dnan
            return not unlike and found.abs <= _SPREAD * own.abs

        return self.contradicts() is not None or all(map(is_rounding, paths))

    def contradicts(self) -> str | None:
        """Why PyTorch's own results on these inputs are no measure, though it draws nothing.

        Returns:
            ``None`` when two runs, another number of threads and float64 say the same.
        """
        answers = self._answers
        if self._recorded is None and answers.draws:
            return None
        for path, leaf in answers.right.items():
            where = path_text(path) or "the output"
            for words, leaves in (
                ("two runs on the same inputs", answers.same_seed),
                ("runs with other numbers of threads", answers.other_threads),
            ):
                if leaves and not _allows(self._widened(path), leaf, leaves.get(path)):
                    return f"{words} differ in {where}"
            exact = answers.exact.get(path)
            if isinstance(exact, torch.Tensor) and exact.is_floating_point():
                found = max_diff(exact, leaf.double())
                if found.reason or found.dnan or found.abs > _GROSS * max(found.scale, 1e-6):
                    return f"float32 and float64 have nothing in common in {where}"
        return None


class _Draws:
    """What random numbers explain, with the other side at hand."""

    def __init__(self, reference: Reference, answers: Answers, again: Again | None) -> None:
        self._of, self._answers, self._again = reference, answers, again

    @cached_property
    def _theirs(self) -> list[dict[Path, Any]]:
        """The other side's leaves in several runs, the first with seed 0; none where it fails."""
        runs: list[dict[Path, Any]] = []
        if self._again is None:
            return runs
        for seed in range(_DRAWS):
            with random_kept(), torch.no_grad():
                torch.manual_seed(seed)
                runs.append(self._answers.by_path(attempt(self._again)[0]))
        return runs

    def verdict(self, path: Path, difference: Discrepancy, passes: bool) -> Verdict | None:
        """The verdict on a leaf that PyTorch draws at random; None on any other.

        A reference that was recorded is the draw of a seed that nobody knows.
        """
        of, answers = self._of, self._answers
        tolerance, right, seeded = of._widened(path), answers.right[path], answers.seeded.get(path)
        steady = seeded is None or _allows(tolerance, right, seeded)
        if (steady and not answers.draws) or not of.repeats(path):
            return None

        def ours(count: int) -> list[Any]:
            return [seeded, *(run.get(path) for run in answers.seeds(count - 1))]

        if steady and _all_equal(ours(_GLANCES)) and (passes or _all_equal(ours(_DRAWS))):
            return None
        theirs = [run.get(path) for run in self._theirs]
        if theirs and _allows(tolerance, seeded, theirs[0]):
            said = _SAME_SEED if answers.draws else _EARLIER
            return Verdict("random", difference, said)
        if not answers.draws or not theirs:
            return Verdict("random", difference, _DRAWN) if answers.draws else None
        if _all_equal(theirs):
            return None if passes else Verdict("differs", difference, _CONSTANT)
        return self._drawn(difference, ours(_DRAWS), theirs)

    @staticmethod
    def _drawn(
        difference: Discrepancy, ours: Sequence[Any], theirs: Sequence[Any]
    ) -> Verdict | None:
        """The verdict where both sides draw."""
        if difference.abs > _SPREAD * max(max_diff(ours[0], other).abs for other in ours):
            return None  # no draw explains it
        if all(map(is_numeric, [*ours, *theirs])) and same_moments(ours, theirs):
            return Verdict("random", difference, OWN_DRAWS)
        return Verdict("differs", difference, _OTHER_DRAWS)


def _all_equal(values: Sequence[Any]) -> bool:
    return all(max_diff(values[0], value).abs == 0 for value in values[1:])


def _allows(tolerance: Tolerance | Limits, right: Any, got: Any) -> bool:
    return _permits(tolerance, right, max_diff(right, got))


def _permits(tolerance: Tolerance | Limits, right: Any, found: Discrepancy) -> bool:
    if not isinstance(right, torch.Tensor | float):  # neither numbers of Python nor constants
        return found.reason is None and found.abs == 0
    return tolerance.allows(found, right)


def _tensors(right: Any, got: Any, others: Sequence[Any]) -> tuple[Any, Any, list[Any]]:
    """Numbers of Python as tensors."""

    def as_tensor(value: Any) -> Any:
        return torch.as_tensor(value) if is_numeric(value) else value

    return as_tensor(right), as_tensor(got), [as_tensor(other) for other in others]
