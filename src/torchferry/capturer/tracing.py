"""One trace of a model by torch.export, with what is done around it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any

import torch
from torch.export import ExportedProgram

from torchferry.capturer.builtin import symbolic_builtins
from torchferry.capturer.constant import known_constants
from torchferry.capturer.depth.named_sizes import share_named_sizes
from torchferry.capturer.depth.repeat import Repeated, Repeats
from torchferry.capturer.depth.stamp import stamp_layers
from torchferry.capturer.entry import around_forward
from torchferry.capturer.patches import PATCHES
from torchferry.capturer.patches.sliding_window import count_by_mask, sliding_layers
from torchferry.capturer.patching.huggingface import accept_aliases
from torchferry.capturer.patching.patch import Patch
from torchferry.capturer.patching.patching import Patching, apply_patches, torch_export_patches
from torchferry.capturer.rewrite.rewrite import rewritten
from torchferry.capturer.shapes import export_arguments
from torchferry.capturer.state.lifted import name_lifted
from torchferry.capturer.state.outside import trace_kept
from torchferry.capturer.state.state import Change, watch_state
from torchferry.capturer.strategies import Strategy
from torchferry.capturer.trial.instructions import Instruction, model_instructions
from torchferry.capturer.watch import ShapeEvents, watch_shapes
from torchferry.observer import Observation
from torchferry.observer.keywords import explicit_keywords
from torchferry.seams.traces import traced
from torchferry.values.oblivious import sizes_oblivious
from torchferry.values.randomness import random_kept

__all__ = ["Outcome", "silent", "trace_model"]

_FIXES = ("Constraints violated", "conflicts between user-specified ranges and inferred ranges")


@dataclass
class Outcome:
    """The result of a trace.

    Attributes:
        shapes: what torch.export heard of sizes.
        events: what torch decided about sizes, and where.
        program: the exported program, unless it failed.
        error: why it failed.
        hit: subjects of the patches that were called.
        changed: attributes that ``forward`` changes.
        rewritten: a diff of the checks that are left to the run.
        joined: as `torchferry.capturer.Captured` has it.
        traced: the instructions of the user's code that ran.
        repeated: how much was left out, as other layers do the same.
        whole: ``False`` if it failed with layers left out, and was not tried without that.
    """

    shapes: Any = None
    events: ShapeEvents = field(default_factory=ShapeEvents)
    program: ExportedProgram | None = None
    error: Exception | None = None
    hit: tuple[str, ...] = ()
    changed: list[Change] = field(default_factory=list)
    rewritten: str = ""
    joined: tuple[str, ...] = ()
    traced: set[Instruction] = field(default_factory=set)
    repeated: Repeated = field(default_factory=Repeated)
    whole: bool = True

    @property
    def fixes(self) -> bool:
        """Whether it failed because the code fixes a dynamic size."""
        return any(text in str(self.error) for text in _FIXES)


def trace_model(
    model: torch.nn.Module,
    seen: Observation,
    strategy: Strategy,
    custom_patches: Sequence[Patch | type[Any]],
    repeat: bool = True,
    *,
    hasty: bool = False,
) -> Outcome:
    """Have torch.export trace a model once; twice if it writes to a buffer whose values it knew.

    Args:
        model: any module.
        seen: its calls; the best is traced.
        strategy: how.
        custom_patches: beside those of the house.
        repeat: whether layers that repeat others are left out, and copied afterwards. If that
            fails, the model is traced again.
        hasty: do not trace again where the failure is that values decide something: leaving
            layers out is hardly ever the reason.
    """
    repeats = Repeats(model, repeat and not strategy.strict)  # Dynamo would trace the comparing
    outcome, written = _trace_once(model, seen, strategy, custom_patches, repeats)
    if repeats.lost or (repeats.used and outcome.error):
        if hasty and not repeats.lost and "data-dependent" in str(outcome.error):
            return replace(outcome, whole=False)
        plain = trace_model(model, seen, strategy, custom_patches, repeat=False)
        plain.repeated = repeats.given_up(outcome.error)
        return plain
    if written:
        strategy = replace(strategy, constants=False)
        return trace_model(model, seen, strategy, custom_patches, repeat)
    outcome.repeated = repeats.found
    return outcome


def _trace_once(
    model: torch.nn.Module,
    seen: Observation,
    strategy: Strategy,
    custom_patches: Sequence[Patch | type[Any]],
    repeats: Repeats,
) -> tuple[Outcome, list[str]]:
    """The result, and buffers that the trace writes to though it knew their values."""
    outcome, names = Outcome(), accept_aliases(model, seen.normalized(seen.best)[1])
    window = bool(sliding_layers(names))
    checks = rewritten(model, only_checks=True) if strategy.checks else nullcontext("")
    with (
        _patches(strategy, custom_patches) as patching,
        checks as diff,
        around_forward(model, _entered(model, outcome.changed, strategy.strict, window)),
        known_constants(
            model, strategy.constants and not strategy.strict, attributes=strategy.attributes
        ) as written,
        symbolic_builtins(model, not strategy.strict),  # Dynamo knows them
        explicit_keywords(model, names),
        torch.no_grad(),
        traced(),
        trace_kept(model),
        random_kept(),  # Dynamo draws as it begins
        watch_shapes() as outcome.events,
        sizes_oblivious(strategy.oblivious),
        silent(),
    ):
        args, kwargs, outcome.shapes = export_arguments(
            model, seen, strategy.hint, as_seen=strategy.as_seen
        )
        for layer in sliding_layers(kwargs):  # in the program's input spec; the mask tells it
            layer.cumulative_length = layer.keys.shape[-2]
        try:
            ran = nullcontext(outcome.traced) if strategy.strict else model_instructions(model)
            with (
                share_named_sizes(seen, args, kwargs, outcome.events),
                repeats.watching(),
                ran as outcome.traced,
            ):
                program = torch.export.export(
                    model, args, kwargs, dynamic_shapes=outcome.shapes, strict=strategy.strict
                )
            stamp_layers(program)
            outcome.program = name_lifted(program)
        # The driver's wrapper: torch.export lets any exception of the user's code through.
        except Exception as error:  # noqa: BLE001
            outcome.error = error
    outcome.hit, outcome.joined, outcome.rewritten = patching.hit, patching.joined, str(diff)
    return outcome, written


@contextmanager
def _patches(
    strategy: Strategy, custom_patches: Sequence[Patch | type[Any]]
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
    """Wrap ``forward``: count tokens by the mask, notice attributes that change."""

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
def silent() -> Iterator[None]:
    """No warnings, and nothing printed: torch prints the graph of a failed trace."""
    with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield
