"""torch.export with the dimensions an observation calls dynamic."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from typing import Any

import torch
from torch.export import Dim as TorchDim
from torch.export import ExportedProgram

from torchferry.capturer.advice import advise, around
from torchferry.capturer.builtin import symbolic_builtins
from torchferry.capturer.constant import known_constants
from torchferry.capturer.draft import undecided_lines
from torchferry.capturer.entry import around_forward
from torchferry.capturer.fixed import find_fixed
from torchferry.capturer.huggingface import accept_aliases
from torchferry.capturer.input_observer import as_observation
from torchferry.capturer.lift import State, check_state, lift_state
from torchferry.capturer.lifted import name_lifted
from torchferry.capturer.patch import Patch
from torchferry.capturer.patches import PATCHES
from torchferry.capturer.patches.sliding_window import count_by_mask, sliding_layers
from torchferry.capturer.patching import Patching, apply_patches, torch_export_patches
from torchferry.capturer.registering import register_arguments, register_containers
from torchferry.capturer.result import Attempt, Captured, brief_error
from torchferry.capturer.rewrite import Rewriting, rewritten
from torchferry.capturer.rewriting import Rewrite, capture_rewritten
from torchferry.capturer.settle import settle_guards
from torchferry.capturer.shapes import export_arguments
from torchferry.capturer.state import Change, watch_state, written_buffers
from torchferry.capturer.watch import ShapeEvents, line_of_error, watch_shapes
from torchferry.dims import Dim
from torchferry.errors import CaptureError
from torchferry.observer import Observation
from torchferry.observer.conditions import guards_of_special_sizes
from torchferry.observer.guards import guard_lines
from torchferry.observer.keywords import explicit_keywords
from torchferry.progress import Progress, show_steps
from torchferry.values.fast_path import disable_fast_paths
from torchferry.values.oblivious import sizes_oblivious
from torchferry.values.randomness import random_kept

__all__ = ["capture"]


# A trace replaces what all threads share: methods, the standard streams, torch's loggers.
_LOCK = threading.RLock()


@dataclass(frozen=True)
class _Strategy:
    text: str
    strict: bool
    oblivious: bool
    hint: Any
    as_seen: bool = False
    patched: bool = False
    silenced: bool = True  # with the patches whose absence goes unnoticed
    checks: bool = False  # ``if ...: raise`` and ``assert`` on values are left to the run
    constants: bool = True  # the values of buffers may decide


_FIRST = _Strategy("non-strict, sizes 0 and 1 not special", False, True, TorchDim.DYNAMIC)
_STRATEGIES = (
    _FIRST,
    replace(_FIRST, text="the same with patches", patched=True),
    replace(_FIRST, text="the same, checks of values left to the run", checks=True),
    _Strategy("non-strict", False, False, TorchDim.DYNAMIC),
    _Strategy("strict", True, False, TorchDim.DYNAMIC),
    _Strategy(
        "non-strict, sizes of 0 and 1 as seen", False, False, TorchDim.DYNAMIC, as_seen=True
    ),
)
# Only to learn which dimensions the code fixes: what AUTO gives up is reported as a fault.
_DIAGNOSIS = _Strategy("non-strict, fixed sizes allowed", False, True, TorchDim.AUTO)

# What torch says when the code fixes a size, in general, and to 0 or 1.
_SYMBOLIC = "Change that line so that it does not need the number"
_FIXES = ("Constraints violated", "conflicts between user-specified ranges and inferred ranges")


@dataclass
class _Outcome:
    shapes: Any = None
    events: ShapeEvents = field(default_factory=ShapeEvents)
    program: ExportedProgram | None = None
    error: Exception | None = None
    hit: tuple[str, ...] = ()
    changed: list[Change] = field(default_factory=list)
    rewritten: str = ""
    joined: tuple[str, ...] = ()

    @property
    def fixes(self) -> bool:
        """Whether it failed because the code fixes a dynamic size."""
        return any(text in str(self.error) for text in _FIXES)


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
    progress: Progress = None,
) -> Captured:
    """Export ``model`` with the dimensions that vary in ``seen`` dynamic.

    The call exported is ``seen.best``. Strategies are tried in a fixed order: non-strict with
    sizes 0 and 1 like any other; the same with `torch_export_patches`; where values decide, the
    same with checks (``if ...: raise``, ``assert``) that only a run can make, left to it;
    non-strict; strict; non-strict with sizes 0 and 1 as seen. The first that works wins. A dynamic
    size that the code fixes is a constant of the program and listed in ``fixed``.

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
        progress: ``False`` shows no line on a terminal; or a function to call with each step.

    Raises:
        CaptureError: every strategy failed, and ``attempts`` says why; or a dimension that the
            user named (``seen.named``) is a constant. The message has the user's line if known.
        UsageError: no call was seen, or a custom patch fits nothing.
    """
    seen = as_observation(model, seen)
    if lifted := lift_state(model, seen) if check_state(state) == "lift" else None:
        model, seen = lifted.model, lifted.seen
    registered = register_arguments(seen)
    registered += register_containers([call.outputs for call in seen.calls])
    drive = partial(_Driver, model, seen, patch, custom_patches)
    with show_steps(progress) as begin, _LOCK, disable_fast_paths():
        captured = capture_rewritten(model, seen, lambda given: drive(given).run(begin), rewrite)
    program = captured.program.run_decompositions() if decompose else captured.program
    captured = replace(captured, program=program, registered=registered + captured.registered)
    captured = lifted.complete(captured) if lifted else captured
    _refuse_fixed(model, seen, captured)
    return settle_guards(model, seen, captured) if settle else captured


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
        rewriting: Rewriting | None,
    ) -> None:
        self.model = model
        self.seen = seen
        self.patch = patch
        self.custom_patches = custom_patches
        self.rewriting = rewriting  # None where nothing is to be rewritten
        self.attempts: list[Attempt] = []
        self.errors: list[Exception] = []
        self.registered: tuple[str, ...] = ()
        self.patched = False  # patches are hit, so later strategies have them too

    def run(self, begin: Callable[[str], object]) -> Captured:
        """Return what the first strategy that works gives, or raise `CaptureError`.

        Args:
            begin: called with the name of each strategy.
        """
        unpatched: Captured | None = None
        for strategy in self._order():
            begin(f"capture: {strategy.text}")
            outcome = self._attempt(strategy)
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
                if not _faults(found) or strategy is not _FIRST or not self.patch:
                    return found
                unpatched = found  # the patches come next and may do better
            # LSTM and GRU lose a dynamic length where sizes 0 and 1 are not special, only there.
            elif strategy.text == "non-strict" or strategy.as_seen or strategy.strict:
                found = self._diagnose(strategy) if outcome.fixes else None
                if found is not None:
                    return found
        raise self._failure()

    def _order(self) -> Iterator[_Strategy]:
        small = min(self.seen.sizes_of(self.seen.best).values(), default=2) < 2
        for strategy in _STRATEGIES:
            if strategy.as_seen and not small:
                continue  # that is what was tried first
            if strategy.checks and not self._stopped_by_checks():
                continue
            if not strategy.patched or self.patch:
                yield strategy

    def _stopped_by_checks(self) -> bool:
        """Whether values decided something, and checks are what may have asked for them."""
        if self.rewriting is not None or not any(
            "data-dependent" in str(error) for error in self.errors
        ):
            return False
        with rewritten(self.model, only_checks=True) as found:
            return bool(found.diff)

    def _attempt(self, strategy: _Strategy) -> _Outcome:
        strategy = replace(strategy, patched=strategy.patched or self.patched, silenced=self.patch)
        outcome = _try(self.model, self.seen, strategy, self.custom_patches)
        if "not a known type" in str(outcome.error) and not self.registered:
            # Outputs were not recorded: one run shows their classes.
            args, kwargs = self.seen.inputs_at(self.seen.sizes_of(self.seen.best))
            with torch.no_grad():
                result = self.model(*args, **accept_aliases(self.model, kwargs))
            self.registered = register_containers(result)
            if self.registered:
                outcome = _try(self.model, self.seen, strategy, self.custom_patches)
        error = None if outcome.error is None else brief_error(outcome.error)
        self.attempts.append(Attempt(strategy.text, error, outcome.hit))
        if outcome.error is not None:
            self.errors.append(outcome.error)
        return outcome

    def _diagnose(self, failed: _Strategy) -> Captured | None:
        # Where only a size of 0 or 1 works, it is fixed to that.
        diagnosis = replace(_DIAGNOSIS, as_seen=failed.as_seen, oblivious=not failed.as_seen)
        return self._captured(self._attempt(diagnosis))

    def _captured(self, outcome: _Outcome) -> Captured | None:
        if outcome.program is None:
            return None
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
            doubts=tuple(guards_of_special_sizes(outcome.program)),
            registered=self.registered,
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
        if "data-dependent" in str(error):
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
        with _silent(), explicit_keywords(self.model, names), torch.no_grad():
            args, kwargs, shapes = export_arguments(self.model, self.seen, TorchDim.DYNAMIC)
            return undecided_lines(self.model, args, kwargs, shapes)


def _faults(captured: Captured) -> int:
    """Fixed dimensions and buffers that are written to: what patches may avert."""
    return len(captured.fixed) + len(written_buffers(captured.program))


def _try(
    model: torch.nn.Module,
    seen: Observation,
    strategy: _Strategy,
    custom_patches: Sequence[Patch | type[Any]],
) -> _Outcome:
    outcome, names = _Outcome(), accept_aliases(model, seen.normalized(seen.best)[1])
    window = bool(sliding_layers(names))
    checks = rewritten(model, only_checks=True) if strategy.checks else nullcontext("")
    with (
        _patches(strategy, custom_patches) as patching,
        checks as diff,
        around_forward(model, _entered(model, outcome.changed, strategy.strict, window)),
        known_constants(model, strategy.constants and not strategy.strict) as written,
        symbolic_builtins(model, not strategy.strict),  # Dynamo knows them
        explicit_keywords(model, names),
        torch.no_grad(),
        random_kept(),  # Dynamo draws as it begins
        watch_shapes() as outcome.events,
        sizes_oblivious(strategy.oblivious),
        _silent(),
    ):
        args, kwargs, outcome.shapes = export_arguments(
            model, seen, strategy.hint, as_seen=strategy.as_seen
        )
        for layer in sliding_layers(kwargs):  # in the program's input spec; the mask tells it
            layer.cumulative_length = layer.keys.shape[-2]
        try:
            outcome.program = name_lifted(
                torch.export.export(
                    model, args, kwargs, dynamic_shapes=outcome.shapes, strict=strategy.strict
                )
            )
        # The driver's wrapper: torch.export lets any exception of the user's code through.
        except Exception as error:  # noqa: BLE001
            outcome.error = error
    if written:
        return _try(model, seen, replace(strategy, constants=False), custom_patches)
    outcome.hit, outcome.joined, outcome.rewritten = patching.hit, patching.joined, str(diff)
    return outcome


@contextmanager
def _patches(
    strategy: _Strategy, custom_patches: Sequence[Patch | type[Any]]
) -> Iterator[Patching]:
    if strategy.patched:
        with torch_export_patches(custom_patches=custom_patches) as patching:
            yield patching
    else:
        with apply_patches([p for p in PATCHES if p.silent and strategy.silenced]) as patching:
            yield patching


def _entered(
    model: torch.nn.Module, changed: list[Change], strict: bool, window: bool
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What is done around ``forward``: count tokens by the mask, notice changed attributes."""

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def entered(*args: Any, **kwargs: Any) -> Any:
            if window:
                count_by_mask(kwargs)
            if strict:  # Dynamo would trace the watching too
                return forward(*args, **kwargs)
            with watch_state(model) as found:
                result = forward(*args, **kwargs)
            changed[:] = found
            return result

        return entered

    return wrap


@contextmanager
def _silent() -> Iterator[None]:
    """No warnings, and nothing printed: torch prints the graph of a failed trace."""
    with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield
