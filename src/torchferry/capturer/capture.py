"""torch.export with the dimensions an observation calls dynamic."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch.export import Dim as TorchDim

from torchferry.capturer.advice import advise, around
from torchferry.capturer.constant import find_kept_tensors
from torchferry.capturer.draft import undecided_lines
from torchferry.capturer.fixed import find_fixed
from torchferry.capturer.input_observer import as_observation
from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.patching.patch import Patch
from torchferry.capturer.patching.registering import register_arguments, register_containers
from torchferry.capturer.result import Attempt, Captured, brief_error
from torchferry.capturer.rewrite.rewrite import Rewriting, rewritten
from torchferry.capturer.rewrite.rewriting import Rewrite, capture_rewritten
from torchferry.capturer.shapes import export_arguments
from torchferry.capturer.state.lift import State, check_state, lift_state
from torchferry.capturer.state.memo import carries_nothing
from torchferry.capturer.state.outside import DRAWN, trace_kept
from torchferry.capturer.state.places import Place
from torchferry.capturer.state.state import written_buffers
from torchferry.capturer.state.warm import find_first_values, set_values
from torchferry.capturer.strategies import DIAGNOSIS, FIRST, STRATEGIES, Strategy
from torchferry.capturer.tracing import Outcome, silent, trace_model
from torchferry.capturer.trial.reliance import hangs_on_draws
from torchferry.capturer.trial.settle import settle_guards
from torchferry.capturer.watch import line_of_error
from torchferry.dims import Dim
from torchferry.errors import CaptureError
from torchferry.observer import Observation
from torchferry.observer.conditions import missing_guards
from torchferry.observer.guards import guard_lines, note_choices
from torchferry.observer.keywords import explicit_keywords
from torchferry.observer.module import check_module, prepare_module
from torchferry.progress import Progress, show_steps
from torchferry.seams.traces import traced
from torchferry.values.fast_path import disable_fast_paths

__all__ = ["capture"]


# A trace replaces what all threads share: methods, the standard streams, torch's loggers.
_LOCK = threading.RLock()

_LARGE = 40  # modules: a trace takes seconds
_TRACES = 2  # of a large model, before it is refused where values decide

_SYMBOLIC = "Change that line so that it does not need the number"


def capture(
    model: torch.nn.Module,
    seen: Observation | Any,
    *,
    patch: bool = True,
    custom_patches: Sequence[Patch | type[Any]] = (),
    rewrite: Rewrite = "auto",
    decompose: bool = False,
    settle: bool = True,
    state: State = "refuse",
    repeat: bool = True,
    progress: Progress = None,
) -> Captured:
    """Export ``model`` with the dimensions that vary in ``seen`` dynamic.

    The call exported is ``seen.best``. Strategies are tried in a fixed order, and the first that
    works wins: non-strict with sizes 0 and 1 like any other; with `torch_export_patches`; where
    values decide, with checks (``if ...: raise``, ``assert``) left to the run; non-strict; strict;
    non-strict with sizes 0 and 1 as seen. A size that the code fixes is listed in ``fixed``.

    Args:
        model: the module that was observed.
        seen: one call or more; an `Observation` or a ``torch.onnx.InputObserver``.
        patch: whether patches may be used.
        custom_patches: further ones, as `torch_export_patches` takes them.
        rewrite: rewrite ifs and loops on tensors, never, first, or (``auto``) where they ask for
            values or fix sizes, if the result computes what the model does; see ``rewritten``.
        decompose: take operators apart to ATen's core, as ``run_decompositions`` does.
        settle: drop guards against 0 and 1 if model and program agree there; see `settle`.
        state: ``lift`` makes what ``forward`` keeps for later calls an argument and a result.
        repeat: whether layers that do what another one does are copied of it, and not traced.
        progress: ``False`` shows no line on a terminal; or a function to call with each step.

    Raises:
        CaptureError: every strategy failed, and ``attempts`` says why; or a dimension that the
            user named (``seen.named``) is a constant. The message has the user's line if known.
        UsageError: no call was seen, or a custom patch fits nothing.
    """
    check_module(model, "capture")
    seen = as_observation(model, seen)
    for call in seen.calls[:1]:
        prepare_module(model, "capture", call.args, call.kwargs)
    run = partial(
        _captured, model, seen, patch=patch, custom_patches=custom_patches,
        rewrite=rewrite, decompose=decompose, settle=settle, state=state, progress=progress,
    )  # fmt: skip
    found = run(repeat=repeat)
    # Numbers have the last word: a whole trace takes no layer for another.
    return run(repeat=False) if found.unproven and found.repeated.like else found


def _captured(
    model: torch.nn.Module,
    seen: Observation,
    *,
    patch: bool,
    custom_patches: Sequence[Patch | type[Any]],
    rewrite: Rewrite,
    decompose: bool,
    settle: bool,
    state: State,
    repeat: bool,
    progress: Progress,
) -> Captured:
    """Capture once."""
    if lifted := lift_state(model, seen) if check_state(state) == "lift" else None:
        model, seen = lifted.model, lifted.seen
    registered = register_arguments(seen) + register_containers([c.outputs for c in seen.calls])
    with show_steps(progress) as begin, _LOCK, disable_fast_paths():
        make = partial(_Driver, model, seen, patch, custom_patches, begin, repeat=repeat)
        captured = capture_rewritten(model, seen, _runs(make), rewrite)
    if any(one.name == DRAWN for one in captured.changed) and not hangs_on_draws(model, seen):
        kept = tuple(one for one in captured.changed if one.name != DRAWN)
        captured = replace(captured, changed=kept)
    if any(not one.outside for one in captured.changed) and carries_nothing(model, seen):
        kept = tuple(one for one in captured.changed if one.outside)
        captured = replace(captured, changed=kept)
    program = captured.program.run_decompositions() if decompose else captured.program
    captured = replace(captured, program=program, registered=registered + captured.registered)
    captured = lifted.complete(captured) if lifted else captured
    _refuse_fixed(model, seen, captured)
    return settle_guards(model, seen, captured) if settle else captured


def _runs(make: Callable[..., _Driver]) -> Callable[[Rewriting | None], Captured]:
    """Captures with code rewritten; where none is, what was found without it still holds."""
    plain: list[_Driver] = []  # of the code as it is

    def run(rewriting: Rewriting | None) -> Captured:
        if rewriting and rewriting.diff:
            return make(rewriting=rewriting).result()
        if not plain:
            plain.append(make(rewriting=rewriting))
        plain[0].rewriting = rewriting
        return plain[0].result()

    return run


def _refuse_fixed(model: torch.nn.Module, seen: Observation, captured: Captured) -> None:
    asked = {place for place, size in seen.named.items() if isinstance(size, Dim)}
    broken = [f for f in captured.fixed if (f.argument, f.axis) in asked]
    if broken:
        raise CaptureError(
            f"{type(model).__name__} cannot be exported with the dimensions asked for:\n"
            + "\n".join(f"  {one}" for one in broken[:8])
            + "".join(f"\n  not rewritten: {one}" for one in captured.declined[:2])
            + f"\n{around(broken[0].line, _SYMBOLIC)}, "
            "or leave the dimension out of the dynamic ones",
            [(a.strategy, a.error or "") for a in captured.attempts],
        )


class _Driver:
    """The strategies one after the other, and what was learnt on the way."""

    def __init__(
        self,
        model: torch.nn.Module,
        seen: Observation,
        patch: bool,
        custom_patches: Sequence[Patch | type[Any]],
        begin: Callable[[str], object],
        *,
        rewriting: Rewriting | None,
        repeat: bool = True,
    ) -> None:
        """Prepare.

        Args:
            model: as `capture` has it, and so the rest.
            seen: its calls.
            patch: whether patches may be used.
            custom_patches: further ones.
            begin: called with the name of each strategy.
            rewriting: what is rewritten; ``None`` where nothing is to be.
            repeat: as `capture` has it.
        """
        self.model = model
        self.seen = seen
        self.patch = patch
        self.custom_patches = custom_patches
        self.begin = begin
        self.rewriting = rewriting
        self.repeat = repeat
        # The strategy that failed while layers were left out, and the line it failed at.
        self.partial: tuple[Strategy, str | None] | None = None
        self.large = sum(1 for _ in model.modules()) > _LARGE
        self.attempts: list[Attempt] = []
        self.errors: list[Exception] = []
        self.registered: tuple[str, ...] = ()
        self.patched = False  # patches are hit, so later strategies have them too
        self.attributes = False  # the same of tensors that the model keeps in attributes

    def result(self) -> Captured:
        """Return what the first strategy that works gives, or raise `CaptureError`."""
        if self.first_capture is None:
            raise self._failure()
        return self.first_capture

    @cached_property
    def first_capture(self) -> Captured | None:
        """The capture of the first strategy that works; ``None`` if none does."""
        with ExitStack() as undo:
            found = self._tried(undo)
            if found is not None:
                undo.pop_all()  # the model keeps what a first call sets, as it does after one
            return found

    def _tried(self, undo: ExitStack) -> Captured | None:
        unpatched: Captured | None = None
        for strategy in self._order():
            outcome = self._attempt(strategy)
            lacks = outcome.error or any(one.before in {"None", "0"} for one in outcome.changed)
            if lacks and len(self.attempts) == 1 and (said := self._learn(undo)):
                self.errors.clear()
                outcome = self._attempt(replace(strategy, text=f"the same {said}"))
            found = self._captured(outcome)
            if strategy.patched:
                self.patched = bool(outcome.hit)
            if unpatched is not None:
                better = found is not None and _faults(found) < _faults(unpatched)
                return (
                    found
                    if found and better
                    else replace(unpatched, attempts=tuple(self.attempts))
                )
            if found is not None:
                if not _faults(found) or strategy is not FIRST or not self.patch:
                    return found
                unpatched = found  # the patches come next and may do better
            # LSTM and GRU lose a dynamic length where sizes 0 and 1 are not special, only there.
            elif strategy.text == "non-strict" or strategy.as_seen or strategy.strict:
                found = self._diagnose(strategy) if outcome.fixes else None
                if found is not None:
                    return found
        return None

    def _learn(self, undo: ExitStack) -> str:
        """Let the next traces know more of what the model keeps; say what, if anything."""
        values = find_first_values(self.model, self.seen)
        undo.callback(set_values(self.model, values))
        names = ", ".join(f"self.{Place(*owner)}" for owner in values)
        said = [f"after a first call, which sets {names}"] * bool(names)
        self.attributes = self._undecided_values() and bool(find_kept_tensors(self.model))
        said += ["knowing the tensors in attributes"] * self.attributes
        return ", ".join(said)

    def _order(self) -> Iterator[Strategy]:
        small = min(self.seen.sizes_of(self.seen.best).values(), default=2) < 2
        for strategy in STRATEGIES:
            again = self.large and self.patch and self.rewriting is not None
            if again and strategy is FIRST:
                continue  # without rewriting, it was traced twice
            enough = self.large and len(self.errors) >= (1 if again else _TRACES)
            if enough and "data-dependent" in str(self.errors[-1]):
                return
            if strategy.as_seen and not small:
                continue  # that is what was tried first
            if strategy.checks and not self._stopped_by_checks():
                continue
            if not strategy.patched or self.patch:
                yield strategy

    def _stopped_by_checks(self) -> bool:
        """Whether values decided something, and checks are what may have asked for them."""
        if self.rewriting is not None or not self._undecided_values():
            return False
        with rewritten(self.model, only_checks=True) as found:
            return bool(found.diff)

    def _undecided_values(self) -> bool:
        """Whether values decided something in a trace that failed."""
        return any("data-dependent" in str(error) for error in self.errors)

    def _attempt(self, strategy: Strategy) -> Outcome:
        strategy = replace(
            strategy, patched=strategy.patched or self.patched, silenced=self.patch,
            attributes=self.attributes,
        )  # fmt: skip
        number = len(self.attempts) + 1
        count = f" (trace {number} of at most {_TRACES})" if self.large else ""
        count = count or f" (trace {number})" * (number > 1)
        self.begin(f"capture: {strategy.text}{count}")
        outcome = self._trace(strategy)
        if "not a known type" in str(outcome.error) and not self.registered:
            # Outputs were not recorded: one run shows their classes.
            args, kwargs = self.seen.inputs_at(self.seen.sizes_of(self.seen.best))
            with torch.no_grad():
                result = self.model(*args, **accept_aliases(self.model, kwargs))
            self.registered = register_containers(result)
            if self.registered:
                outcome = self._trace(strategy)
        error = None if outcome.error is None else brief_error(outcome.error)
        self.attempts.append(Attempt(strategy.text, error, outcome.hit))
        if outcome.error is not None:
            self.errors.append(outcome.error)
        return outcome

    def _trace(self, strategy: Strategy) -> Outcome:
        trace = partial(trace_model, self.model, self.seen, custom_patches=self.custom_patches)
        outcome = trace(strategy=strategy, repeat=self.repeat, hasty=self.large)
        line = None if outcome.error is None else line_of_error(outcome.error)
        if not outcome.whole:  # the next trace leaves nothing out, and mostly ends there too
            self.repeat, self.partial = False, (strategy, line)
        elif self.partial is not None:
            (before, stopped), self.partial = self.partial, None
            if outcome.error is None or line != stopped:
                again = trace(strategy=before, repeat=False)
                outcome = again if again.error is None else outcome
        return outcome

    def _diagnose(self, failed: Strategy) -> Captured | None:
        # Where only a size of 0 or 1 works, it is fixed to that.
        diagnosis = replace(DIAGNOSIS, as_seen=failed.as_seen, oblivious=not failed.as_seen)
        return self._captured(self._attempt(diagnosis))

    def _captured(self, outcome: Outcome) -> Captured | None:
        if outcome.program is None:
            return None
        note_choices(outcome.program, outcome.events.choices)
        return Captured(
            outcome.program,
            outcome.shapes,
            tuple(self.attempts),
            find_fixed(outcome.program, self.seen, outcome.events),
            patches=outcome.hit,
            changed=tuple(outcome.changed),
            rewritten=outcome.rewritten,
            joined=outcome.joined,
            lines=guard_lines(outcome.program, outcome.events.guards),
            doubts=tuple(missing_guards(outcome.program)),
            registered=self.registered,
            traced=frozenset(outcome.traced),
            repeated=outcome.repeated,
        )

    def _failure(self) -> CaptureError:
        error = self.errors[0]
        line = line_of_error(error)
        # Only Dynamo tells a module of torch.jit by name.
        said = [a.error for a in self.attempts if a.error and "torch.jit." in a.error]
        advice = advise(line, error, "\n".join(said))
        where = f", at {line}" if line else ""
        declined = self.rewriting.why(line) if self.rewriting is not None else ()
        if declined:
            where += f"; not rewritten, as {declined[-1].reason}"
        told = [
            f"torch.export cannot capture {type(self.model).__name__}: {advice.reason}{where}.",
            f"{advice.rewrite}. What each strategy said:",
            *(f"  {a.strategy}: {a.error}" for a in self.attempts),
        ]
        if "data-dependent" in str(error) and not self.large:  # that traces once more
            others = [at for at in self._undecided() if at != line]
            told += ["Other lines like it:"] * bool(others) + [f"  {at}" for at in others[:3]]
        failure = CaptureError(
            "\n".join(told), [(a.strategy, a.error or "") for a in self.attempts],
            line=line, declined=tuple(str(one) for one in declined),
        )  # fmt: skip
        failure.__cause__ = error
        return failure

    def _undecided(self) -> tuple[str, ...]:
        names = accept_aliases(self.model, self.seen.normalized(self.seen.best)[1])
        kept = trace_kept(self.model)
        with silent(), explicit_keywords(self.model, names), torch.no_grad(), traced(), kept:
            args, kwargs, shapes = export_arguments(self.model, self.seen, TorchDim.DYNAMIC)
            return undecided_lines(self.model, args, kwargs, shapes)


def _faults(captured: Captured) -> int:
    """Fixed dimensions and buffers that are written to: what patches may avert."""
    return len(captured.fixed) + len(written_buffers(captured.program))
