"""Compare the exported model with the PyTorch model, at recorded sizes and at others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any, Literal

import torch
from torch.export import ExportedProgram

from torchferry.capturer import accept_aliases
from torchferry.capturer.joined import joined_leaves
from torchferry.dims import Condition
from torchferry.errors import FerryError, RunError, UsageError
from torchferry.exporter.apart import can_fork
from torchferry.exporter.rounding import doubled, nudged, rounding_error, settled, to_double
from torchferry.exporter.sizes import Sizes, further_sizes, other_sizes
from torchferry.exporter.trials import Budget, Trials
from torchferry.observer import Observation
from torchferry.observer.tree import leaves_of
from torchferry.runner import Session
from torchferry.values.clone import clone
from torchferry.values.difference import Discrepancy, max_diff
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.flatten import flatten, path_text
from torchferry.values.tolerance import Tolerance

__all__ = ["ROUNDING", "Check", "Compared", "Verdict", "verify"]

Verdict = Literal["ok", "differs", "random"]

_NUDGES = 4  # one shows most choices that hang on a rounding
ROUNDING = 10
"""How often the tolerance may be reached where PyTorch's own rounding is the reason."""


@dataclass(frozen=True)
class Compared:
    """One output at one set of sizes.

    Attributes:
        name: of the graph's output, or the place of a constant among the outputs.
        difference: between PyTorch and the exported model.
        verdict: ``random`` when PyTorch does not agree with itself, so that nothing can be said.
        rounding: PyTorch's own largest difference from float64, where it is the reason why an
            output beyond the tolerance is ``ok``: the exported model is as near to float64. Or
            from itself with weights rounded otherwise, where that moves the same numbers as far.
    """

    name: str
    difference: Discrepancy
    verdict: Verdict
    rounding: float | None = None


@dataclass(frozen=True)
class Check:
    """One set of sizes.

    Attributes:
        sizes: value of every dynamic dimension.
        made: whether the inputs were made for the check; otherwise they were recorded.
        outputs: one a tensor output; empty when a side failed. One called ``structure`` when the
            two sides do not nest their outputs alike.
        refused: what PyTorch itself said, when the original model takes no such sizes.
        error: what went wrong on onnxruntime's side.
        changed: arguments that PyTorch changed in place without returning what it made of them.
        blame: which step brought a difference in, as a sentence.
        breaks: the condition of the captured program that the sizes do not fulfil.
        untried: why nothing was run, or not to its end: ``beyond the budget of 60 s``.
    """

    sizes: Sizes
    made: bool
    outputs: tuple[Compared, ...] = ()
    refused: str | None = None
    error: str | None = None
    blame: str | None = None
    changed: tuple[str, ...] = ()
    breaks: Condition | None = None
    untried: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the exported model is wrong there."""
        return self.error is not None or any(o.verdict == "differs" for o in self.outputs)

    @property
    def ok(self) -> bool:
        """Whether one output at least was compared and none differs."""
        return not self.failed and any(o.verdict == "ok" for o in self.outputs)


def verify(
    model: torch.nn.Module,
    seen: Observation,
    session: Session,
    *,
    tolerance: Tolerance,
    program: ExportedProgram | None = None,
    fixed: Mapping[str, int] | None = None,
    bounds: Mapping[str, tuple[int, int | None]] | None = None,
    conditions: Sequence[Condition] = (),
    joined: Collection[str] = (),
    budget: float | None = None,
) -> list[Check]:
    """Run both models on the recorded inputs, then on inputs of other sizes.

    Args:
        model: the original.
        seen: its observation.
        session: the exported model.
        tolerance: what passes.
        program: the captured program, to tell whether the capture or the conversion is wrong.
        fixed: dimensions that the exported model holds constant: no other size is tried.
        bounds: the sizes it was traced for: those next to them are tried too.
        conditions: what it took for granted of the sizes: some that break each are tried too.
        joined: fields of the outputs that it has in one tensor, as
            `torchferry.capturer.Captured` says.
        budget: seconds that all sizes that are made may take; see `Budget`.

    Returns:
        One check a set of sizes. Sizes that the original model refuses are listed as such.
    """
    runner = _Runner(model, seen, session, tolerance, program=program, joined=joined)
    begin = time.process_time()
    checks = [
        runner.check(seen.normalized(call), seen.sizes_of(call), made=False) for call in seen.calls
    ]
    took = time.process_time() - begin
    groups = other_sizes(seen, keep=fixed, bounds=bounds, conditions=conditions)
    trials = Trials(
        runner, seen, Budget.of(budget, took), row=Check,
        forks=can_fork(model),
    )  # fmt: skip
    rows = trials.run(groups)
    left = _never_accepted(seen, fixed or {}, [check for _, check in rows], checks)
    further = trials.run(further_sizes(seen, left, keep=fixed, conditions=conditions))
    rows += [(group, check) for group, check in further if check.refused is None]
    return checks + [replace(check, breaks=group.breaks) for group, check in rows]


def _never_accepted(
    seen: Observation, fixed: Mapping[str, int], made: Sequence[Check], recorded: Sequence[Check]
) -> list[str]:
    """The dynamic names of which PyTorch accepted no size but those recorded."""
    if any(check.untried is not None for check in made):
        return []  # there is no time or memory for more
    known = {(name, size) for check in recorded for name, size in check.sizes.items()}
    accepted = {
        name
        for check in made
        if check.refused is None
        for name, size in check.sizes.items()
        if (name, size) not in known
    }
    return [name for name in seen.free_names if name not in {*accepted, *fixed}]


class _Runner:
    def __init__(
        self,
        model: torch.nn.Module,
        seen: Observation,
        session: Session,
        tolerance: Tolerance,
        *,
        program: ExportedProgram | None,
        joined: Collection[str],
    ) -> None:
        self.model = model
        self.seen = seen
        self.program = program
        self.session = session
        self.tolerance = tolerance
        self.joined = joined
        self.random: frozenset[str] | None = None

    def check(self, inputs: tuple[Any, Any], sizes: Sizes, *, made: bool) -> Check:
        given = clone(inputs)
        expected, refused = _attempt(self.model, self.model, given, copied=True)
        if refused is not None:
            return Check(sizes, made, refused=refused)
        if self.random is None:
            self.random = self._random(expected, _attempt(self.model, self.model, inputs)[0])
        args, kwargs = clone(inputs)
        try:
            got = self.session(*args, **kwargs)
        except (RunError, UsageError) as error:
            return Check(sizes, made, error=_brief(error))
        outputs = tuple(self._compare(expected, got))
        if any(output.verdict == "differs" for output in outputs):
            exact = self._in_double(doubled(self.model), inputs)
            others = cache(partial(self._nudged, inputs))  # only where float64 is no excuse
            outputs = tuple(self._compare(expected, got, exact, others))
        wrong = any(output.verdict == "differs" for output in outputs)
        blame = self._blame(inputs, expected) if wrong else None
        return Check(sizes, made, outputs, None, None, blame, _changed(inputs, given, expected))

    def _in_double(self, model: torch.nn.Module | None, inputs: tuple[Any, Any]) -> Any:
        """PyTorch's outputs in float64, or ``None`` where it has none; of the `doubled` model."""
        if model is None:
            return None
        return _attempt(model, self.model, to_double(inputs), copied=True)[0]

    def _unsteady(self, expected: Any, got: Any, others: list[Any]) -> float | None:
        """How far PyTorch moves by its own rounding, when it stands still where ``got`` is off."""
        if not _is_float(expected) or not _is_float(got):
            return None
        if not self._allows(max_diff(expected, settled(expected, got, others)), expected):
            return None
        return max(max_diff(expected, one).abs for one in others if _is_float(one))

    def _usual_at(self, path: ValuePath) -> float:
        return self._usual.get(path, 0.0)

    @cached_property
    def _usual(self) -> dict[ValuePath, float]:
        """PyTorch's largest distance from float64 in the calls that were seen, by output."""
        found: dict[ValuePath, float] = {}
        model = doubled(self.model)
        for call in self.seen.calls:
            inputs = self.seen.normalized(call)
            exact = dict(self._flat(self._in_double(model, inputs)))
            for path, leaf in self._flat(_attempt(self.model, self.model, inputs)[0]):
                own = max_diff(exact.get(path), leaf.double()) if _is_float(leaf) else None
                if own is not None and own.reason is None:
                    found[path] = max(found.get(path, 0.0), own.abs)
        return found

    def _blame(self, inputs: tuple[Any, Any], expected: Any) -> str | None:
        """Whether the captured program is wrong already."""
        if self.program is None:
            return None
        captured, error = _attempt(self.program.module(), self.model, inputs)
        if error is not None:
            return f"the program that torch.export made does not hold there ({error})"
        if any(output.verdict == "differs" for output in self._compare(expected, captured)):
            return "the captured program is wrong there already, so torch.export is at fault"
        return "the captured program is right there, so the conversion to ONNX is at fault"

    def _nudged(self, inputs: tuple[Any, Any]) -> list[dict[ValuePath, Any]]:
        """PyTorch's outputs with weights rounded otherwise; none but in half precision."""
        models = (nudged(self.model, seed) for seed in range(_NUDGES))
        return [
            dict(self._flat(_attempt(model, self.model, inputs)[0]))
            for model in models
            if model is not None
        ]

    def _compare(
        self,
        expected: Any,
        got: Any,
        exact: Any = None,
        others: Callable[[], Sequence[Mapping[ValuePath, Any]]] = tuple,
    ) -> list[Compared]:
        names = [leaf[0] if isinstance(leaf, list) else None for leaf in self._leaves]
        left, right = self._flat(expected), self._flat(got)
        if [path for path, _ in left] != [path for path, _ in right]:
            return [Compared("structure", max_diff(expected, got), "differs")]
        doubles = dict(self._flat(exact))
        compared = []
        for name, (path, e), (_, g) in zip(names, left, right, strict=True):
            label = name or path_text(path) or "output"
            difference = max_diff(e, g)
            if name is None and difference.abs == 0 and difference.reason is None:
                continue  # a constant, and the same one
            verdict = self._verdict(label, difference, e)
            rounding = None
            if verdict == "differs" and self._allows(difference, e, ROUNDING):
                usual = partial(self._usual_at, path)
                rounding = rounding_error(doubles.get(path), e, g, usual)
            if verdict == "differs" and rounding is None and (moved := others()):
                rounding = self._unsteady(e, g, [one.get(path) for one in moved])
            compared.append(
                Compared(label, difference, verdict)
                if rounding is None
                else Compared(label, difference, "ok", rounding)
            )
        return compared

    def _verdict(self, name: str, difference: Discrepancy, expected: Any) -> Verdict:
        if self.random and name in self.random:
            return "random" if difference.reason is None else "differs"
        return "ok" if self._allows(difference, expected) else "differs"

    def _allows(self, difference: Discrepancy, expected: Any, times: float = 1) -> bool:
        tolerance = self.tolerance.widened(getattr(expected, "dtype", None))
        return tolerance.allows(difference, expected, times=times)

    def _random(self, first: Any, second: Any) -> frozenset[str]:
        """Names of the outputs in which PyTorch does not agree with itself."""
        names = [leaf[0] if isinstance(leaf, list) else "" for leaf in self._leaves]
        pairs = zip(names, self._flat(first), self._flat(second), strict=False)
        return frozenset(
            name for name, (_, a), (_, b) in pairs if not self._allows(max_diff(a, b), a)
        )

    def _flat(self, outputs: Any) -> list[tuple[ValuePath, Any]]:
        return joined_leaves(outputs, self.joined)

    @property
    def _leaves(self) -> Sequence[Any]:
        return self.session.signature.leaves


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


def _changed(before: tuple[Any, Any], after: tuple[Any, Any], outputs: Any) -> tuple[str, ...]:
    """Names of the arguments that a call changed, unless what it made of them is an output."""
    returned = {id(leaf) for _, leaf in flatten(outputs)[0]}
    old, new = leaves_of(*before), leaves_of(*after)
    changed = {
        str(path[0])
        for path in {**old, **new}
        if id(new.get(path)) not in returned
        and (path not in old or path not in new or max_diff(old[path], new[path]).abs > 0)
    }
    return tuple(sorted(changed))


def _attempt(
    module: torch.nn.Module,
    model: torch.nn.Module,
    inputs: tuple[Any, Any],
    *,
    copied: bool = False,
) -> tuple[Any, str | None]:
    """Outputs of a module on inputs named as the model names them, or what it raised.

    Sizes that were made up may be wrong for the user's code in any way it can fail, and a captured
    program says by many exceptions what it assumes.
    """
    args, kwargs = inputs if copied else clone(inputs)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return module(*args, **accept_aliases(model, kwargs)), None
    except Exception as error:  # noqa: BLE001  (the driver's wrapper, see above)
        return None, _brief(error)


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    kind = "" if isinstance(error, FerryError) else f"{type(error).__name__}: "
    return f"{kind}{lines[0]}"[:300]
