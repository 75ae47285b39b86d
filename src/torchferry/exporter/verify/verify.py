"""Compare the exported model with the PyTorch model, at recorded sizes and at others."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer import accept_aliases
from torchferry.capturer.rewrite.joined import joined_leaves
from torchferry.capturer.trial.trial import Trial
from torchferry.dims import Condition
from torchferry.errors import FerryError, RunError, UsageError
from torchferry.exporter.memory import weight_bytes
from torchferry.exporter.verify.sizes import Sizes, further_sizes, other_sizes
from torchferry.exporter.verify.trials import Budget, Trials
from torchferry.judge import Kind, Reference, Tolerance, Verdict, worst_verdict
from torchferry.judge.apart import can_fork
from torchferry.judge.reference import Again
from torchferry.observer import Observation
from torchferry.observer.tree import leaves_of
from torchferry.observer.unlike import unlike
from torchferry.runner import Session
from torchferry.values.clone import clone
from torchferry.values.difference import Discrepancy, max_diff
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.flatten import Path as ValuePath
from torchferry.values.flatten import flatten, path_text

__all__ = [
    "Check",
    "Compared",
    "ForeignSides",
    "Sides",
    "changed_arguments",
    "try_running",
    "verify",
]

_LARGE = 2**27  # bytes of weights that are loaded again rather than kept beside a trial
_OTHER_VALUES = "it was right there for values like those recorded, and is not for others"


@dataclass(frozen=True)
class Compared:
    """One output at one set of sizes.

    Attributes:
        name: of the graph's output, or the place of a constant among the outputs.
        verdict: on the exported model's.
    """

    name: str
    verdict: Verdict

    @property
    def kind(self) -> Kind:
        """Of the verdict."""
        return self.verdict.kind

    @property
    def difference(self) -> Discrepancy:
        """Between PyTorch and the exported model."""
        return self.verdict.difference


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
        declined: whether the exported model itself refuses such a call, which is the error.
        changed: arguments that PyTorch changed in place without returning what it made of them.
        blame: which step brought a difference in, as a sentence.
        breaks: the condition of the captured program that the sizes do not fulfil.
        untried: why nothing was run, or not to its end: ``beyond the budget of 60 s``.
        unproven: why it is right there, and says nothing of other values and sizes like these.
    """

    sizes: Sizes
    made: bool
    outputs: tuple[Compared, ...] = ()
    refused: str | None = None
    error: str | None = None
    declined: bool = False
    blame: str | None = None
    changed: tuple[str, ...] = ()
    breaks: Condition | None = None
    untried: str | None = None
    unproven: str = ""

    @property
    def failed(self) -> bool:
        """Whether the exported model is wrong there."""
        return self.error is not None or any(o.kind in ("differs", "failed") for o in self.outputs)

    @property
    def ok(self) -> bool:
        """Whether one output at least was compared and none differs."""
        return not self.failed and any(o.verdict.ok for o in self.outputs)

    @property
    def proves(self) -> bool:
        """Whether the exported model is right, also for other values, as far as one knows."""
        return self.ok and not self.unproven


def verify(
    model: torch.nn.Module,
    seen: Observation,
    session: Session | Any,
    *,
    tolerance: Tolerance,
    program: ExportedProgram | None = None,
    fixed: Mapping[str, int] | None = None,
    bounds: Mapping[str, tuple[int, int | None]] | None = None,
    conditions: Sequence[Condition] = (),
    joined: Collection[str] = (),
    decided: Collection[tuple[str, int]] = (),
    budget: float | None = None,
    sides: type[Sides] | None = None,
) -> list[Check]:
    """Run both models on the recorded inputs, then on inputs of other sizes.

    Args:
        model: the original.
        seen: its observation.
        session: the exported model, or one that ``sides`` knows how to run.
        tolerance: what passes.
        program: the captured program, to tell whether the capture or the conversion is wrong.
        fixed: dimensions that the exported model holds constant: no other size is tried.
        bounds: the sizes it was traced for: those next to them are tried too.
        conditions: what it took for granted of the sizes: some that break each are tried too.
        joined: as `torchferry.capturer.Captured` has it.
        decided: the same.
        budget: seconds that all sizes that are made may take; see `Budget`.
        sides: how both are run; as wholes when ``None``.

    Returns: one check a set of sizes, of those too that the original model refuses.
    """
    given: Any = {"program": program, "joined": joined, "conditions": conditions}
    runner = (sides or Sides)(model, seen, session, tolerance, **given, decided=decided)
    begin, began = time.process_time(), time.monotonic()
    calls = [(seen.normalized(call), seen.sizes_of(call)) for call in seen.calls]
    checks = [runner.check(inputs, sizes, made=False) for inputs, sizes in calls]
    took, waited = time.process_time() - begin, time.monotonic() - began
    groups = other_sizes(seen, keep=fixed, bounds=bounds, conditions=conditions)
    trials = Trials(
        runner, seen, Budget.of(budget, took, waited), row=Check, forks=can_fork(model),
        doubt=runner.doubt,
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


class Sides:
    """PyTorch and the exported model, run and compared at one set of sizes after the other."""

    def __init__(
        self,
        model: torch.nn.Module,
        seen: Observation,
        session: Any,
        tolerance: Tolerance,
        *,
        program: ExportedProgram | None,
        joined: Collection[str],
        decided: Collection[tuple[str, int]],
        conditions: Sequence[Condition],
    ) -> None:
        """Prepare; the arguments are those of `verify`."""
        self.model = model
        self.seen = seen
        self.program = program
        self.session = session
        self.tolerance = tolerance
        self.joined = joined
        self.decided = decided
        self.conditions = conditions

    def reference(self, inputs: tuple[Any, Any], changed: list[tuple[str, ...]]) -> Reference:
        """The model on inputs; the first call tells which arguments it changed."""

        def call(model: torch.nn.Module, given: tuple[Any, Any]) -> Any:
            args, kwargs = given
            outputs = model(*args, **accept_aliases(self.model, kwargs))
            if not changed:
                changed.append(changed_arguments(inputs, given, outputs))
            return outputs

        return Reference(call, self.model, inputs, tolerance=self.tolerance, leaves=self.flat)

    def doubt(self, inputs: tuple[Any, Any]) -> str | None:
        """Why made inputs count for nothing, though PyTorch takes them."""
        said = self.reference(inputs, []).contradicts()
        return None if said is None else f"PyTorch contradicts itself: {said}"

    def check(self, inputs: tuple[Any, Any], sizes: Sizes, *, made: bool) -> Check:
        """Run both on inputs of some sizes, and compare all outputs."""
        changed: list[tuple[str, ...]] = []

        def run() -> Any:
            args, kwargs = clone(inputs)
            return self.session(*args, **kwargs)

        reference = self.reference(inputs, changed)
        _, refused = try_running(lambda: reference.expected)
        if refused is not None:
            return Check(sizes, made, refused=refused)
        try:
            got = run()
        except (RunError, UsageError) as error:
            declined = isinstance(error, UsageError)
            return Check(sizes, made, error=_brief(error), declined=declined)
        outputs = tuple(self._compared(reference, got, run))
        wrong = any(one.kind == "differs" and not one.verdict.evidence for one in outputs)
        blame = self._blame(reference, inputs) if wrong else None
        check = Check(sizes, made, outputs, blame=blame, changed=changed[0])
        others = check.ok and any(condition.broken_by(sizes) for condition in self.conditions)
        return self.with_other_values(check, inputs) if others else check

    def with_other_values(self, check: Check, inputs: tuple[Any, Any]) -> Check:
        """The check, or a failed one: whether both sides agreed only since values are alike.

        The captured program is asked, which computes in PyTorch as the model does.
        """
        trial = self.trial
        if trial is None or try_running(lambda: trial.run_program(inputs))[1] is not None:
            return check
        if weight_bytes(self.model) > _LARGE:
            self.session.unload()  # it is not asked: its memory is for what the trial returns
        verdict = trial.of(inputs, check.sizes)
        if verdict.kind == "differs":
            outputs = (Compared("the outputs", verdict),)
            return replace(check, outputs=outputs, blame=_OTHER_VALUES)
        return replace(check, unproven=verdict.evidence if verdict.kind == "failed" else "")

    @cached_property
    def trial(self) -> Trial | None:
        """The model beside its program, with values unlike those recorded."""
        if self.program is None:
            return None
        return Trial(
            self.model, self.seen, self.program, self.conditions,
            joined=self.joined, decided=self.decided,
        )  # fmt: skip

    def _compared(self, reference: Reference, got: Any, run: Again) -> Iterator[Compared]:
        names = [leaf[0] if isinstance(leaf, list) else None for leaf in self._leaves]
        verdicts = reference.judge(got, run)
        if len(verdicts) != len(names):
            yield Compared("structure", worst_verdict(verdict for _, verdict in verdicts))
            return
        for name, (path, verdict) in zip(names, verdicts, strict=True):
            if name is None and verdict.difference.abs == 0 and verdict.ok:
                continue  # a constant, and the same one
            yield Compared(name or path_text(path) or "output", verdict)

    def _blame(self, reference: Reference, inputs: tuple[Any, Any]) -> str | None:
        """Whether the captured program is wrong already."""
        if self.program is None:
            return None
        module = self.program.module()

        def run() -> Any:
            args, kwargs = clone(inputs)
            with torch.no_grad():
                return module(*args, **accept_aliases(self.model, kwargs))

        captured, error = try_running(run)
        if error is not None:
            return f"the program that torch.export made does not hold there ({error})"
        if any(verdict.kind == "differs" for _, verdict in reference.judge(captured, run)):
            return "the captured program is wrong there already, so torch.export is at fault"
        return "the captured program is right there, so the conversion to ONNX is at fault"

    def flat(self, outputs: Any) -> list[tuple[ValuePath, Any]]:
        """The leaves of what PyTorch returns, as the exported model has them."""
        return joined_leaves(outputs, self.joined)

    @property
    def _leaves(self) -> Sequence[Any]:
        leaves: Sequence[Any] = self.session.signature.leaves
        return leaves


class ForeignSides(Sides):
    """The same for operators that another library wrote, of which nothing is known.

    Values unlike those recorded are tried too.
    """

    def check(self, inputs: tuple[Any, Any], sizes: Sizes, *, made: bool) -> Check:
        """Run both on inputs of some sizes, and on others of the same sizes."""
        check = super().check(inputs, sizes, made=made)
        others = unlike(inputs) if check.ok else ()
        tried = (super(ForeignSides, self).check(given, sizes, made=made) for given in others)
        wrong = next((one for one in tried if one.failed), None)
        return check if wrong is None else replace(wrong, blame=_OTHER_VALUES)


def changed_arguments(
    before: tuple[Any, Any], after: tuple[Any, Any], outputs: Any
) -> tuple[str, ...]:
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


def try_running(run: Callable[[], Any]) -> tuple[Any, str | None]:
    """What a run of PyTorch gives, or what it raised.

    Sizes that were made up may be wrong for the user's code in any way it can fail, and a captured
    program says by many exceptions what it assumes.
    """
    try:
        with disable_fast_paths(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(), None
    except Exception as error:  # noqa: BLE001  (the driver's wrapper, see above)
        return None, _brief(error)


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    kind = "" if isinstance(error, FerryError) else f"{type(error).__name__}: "
    return f"{kind}{lines[0]}"[:300]
