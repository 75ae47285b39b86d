"""Which rewrites are made, in which order: stages as data."""

from __future__ import annotations

import difflib
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from torchferry.errors import RuleBroke, UsageError
from torchferry.graph.runtime import EMPTY_HEADS, Ability
from torchferry.optimizer.borrowed import fuse
from torchferry.optimizer.driver import Verifier, apply_rules, remove_dead
from torchferry.optimizer.equal import merge_equal
from torchferry.optimizer.folding import ConstantSize, Fold
from torchferry.optimizer.inference import infer_missing
from torchferry.optimizer.known_sizes import name_sizes
from torchferry.optimizer.lift import lift_constants
from torchferry.optimizer.place import all_nodes
from torchferry.optimizer.rule import Rule
from torchferry.optimizer.rules import (
    cast,
    gather,
    identity,
    join,
    reshape,
    scalar,
    size,
    transpose,
)
from torchferry.optimizer.rules.experimental import fuse_element_wise
from torchferry.optimizer.rules.onnxruntime import (
    attention,
    attention_form,
    gelu,
    moe,
    norm,
    packed,
    residual,
    rotary,
    sequence,
    skip_norm,
)
from torchferry.optimizer.rules.onnxruntime.opset import raise_opset
from torchferry.optimizer.tally import StageCount, Tally

__all__ = ["SETS", "STAGES", "Stage", "known_rules", "plan_of", "rule_named", "run_plan"]

_ROUNDS = 20  # a plan that still finds something then goes on for ever


@dataclass(frozen=True)
class Stage:
    """One step of a plan: rules that are applied until none applies, or one action.

    Attributes:
        name: of the stage; of an action, also what users call it.
        group: the set it belongs to.
        rules: in the order they are tried.
        act: is called with the model instead; returns how much it changed.
        once: it is not run again when a later stage changed something.
        last: it is run once, when the other stages find nothing any longer.
        processors: where an action pays; rules say so themselves.
        needs: what onnxruntime must be able to do for an action to be right; as `Rule.needs`.
    """

    name: str
    group: str
    rules: tuple[Rule, ...] = ()
    act: Callable[[ir.Model], int] | None = None
    once: bool = False
    last: bool = False
    processors: frozenset[str] = frozenset({"CPU", "CUDA"})
    needs: tuple[Ability, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """What can be left out of it by name."""
        return tuple(rule.name for rule in self.rules) if self.act is None else (self.name,)


CLEAN: tuple[Rule, ...] = (
    Fold(), ConstantSize(), *identity.RULES, *cast.RULES, *reshape.RULES, *transpose.RULES,
    *join.RULES, *scalar.RULES, *gather.RULES, *size.RULES,
)  # fmt: skip

FUSE: tuple[Rule, ...] = (
    *packed.RULES, *sequence.RULES, *gelu.RULES, *norm.RULES, *rotary.RULES, *attention.RULES,
    *attention_form.RULES, *skip_norm.RULES, *residual.RULES, *moe.RULES,
)  # fmt: skip

STAGES: tuple[Stage, ...] = (
    Stage("LiftConstants", "default", act=lift_constants, once=True),
    Stage("clean", "default", CLEAN),
    Stage("MergeEqual", "default", act=merge_equal),
    Stage("RaiseOpset", "onnxruntime", act=raise_opset, once=True),
    Stage("fuse", "onnxruntime", FUSE),
    Stage("onnxscript", "onnxruntime", act=fuse, once=True, processors=frozenset({"CUDA"}),
          needs=(EMPTY_HEADS,)),
    Stage("FuseElementwise", "experimental", act=fuse_element_wise, last=True,
          processors=frozenset({"CPU"})),
)  # fmt: skip
"""Every stage, in order. The stages are run again until none of them changes anything."""

SETS = ("default", "onnxruntime", "experimental")
"""Names of the sets: operators of ONNX itself, those of onnxruntime, those of our making."""


def known_rules() -> dict[str, str]:
    """Name of every rule and action to the set it belongs to."""
    return {name: stage.group for stage in STAGES for name in stage.names}


def rule_named(name: str) -> str:
    """The name of a rule, as it is counted.

    Args:
        name: the same, or with ``Pattern`` behind it.

    Raises:
        UsageError: there is no such rule; names the nearest. Or it has no pattern.
    """
    (found, *others) = _named(name, known_rules())
    if others or name in SETS:
        raise UsageError(f"{name} is a set of rules: name one of them")
    if any(stage.act is not None and stage.name == found for stage in STAGES):
        raise UsageError(f"{name} has no pattern: it looks at the model as a whole")
    return found


def plan_of(
    patterns: str | Sequence[str | Rule] | None,
    *,
    constant_folding: bool | Collection[str] = True,
    processor: str = "CPU",
) -> tuple[Stage, ...]:
    """The stages that a choice of patterns stands for.

    Args:
        patterns: sets and rules with ``+`` and ``-``, as ``"default-Cast+onnxruntime"``; or a list
            of their names and of rules; ``None`` for none.
        constant_folding: compute what is constant; or only these operators.
        processor: ``CPU``, ``CUDA`` or ``CPU,CUDA``: rules that do not pay on each are left out.

    Raises:
        UsageError: a name that nothing has.
    """
    names, own = _chosen(patterns)
    fold = Fold(None if isinstance(constant_folding, bool) else constant_folding)
    if constant_folding is False:
        names -= {fold.name}
    where = {part.strip().upper() for part in processor.split(",")}
    stages = (*STAGES, Stage("given", "given", own))
    names |= {rule.name for rule in own}
    chosen = []
    for stage in stages:
        rules = tuple(
            fold if rule.name == fold.name else rule
            for rule in stage.rules
            if rule.name in names and where <= rule.processors
        )
        acts = stage.act is not None and stage.name in names and where <= stage.processors
        if rules or acts:
            chosen.append(replace(stage, rules=rules))
    return tuple(chosen)


def _chosen(patterns: str | Sequence[str | Rule] | None) -> tuple[set[str], tuple[Rule, ...]]:
    """Names of what is chosen, and the rules that were given themselves."""
    if isinstance(patterns, str):
        items: Iterable[str | Rule] = re.findall(r"[+-]?[^+-]+", patterns)
    else:
        items = patterns or ()
    known = known_rules()
    names: set[str] = set()
    own = []
    for item in items:
        if isinstance(item, Rule):
            own.append(item)
            continue
        text = item.strip()
        found = _named(text.lstrip("+- "), known)
        names = names - found if text.startswith("-") else names | found
    return names, tuple(own)


def _named(name: str, known: dict[str, str]) -> set[str]:
    if name in SETS:
        return {rule for rule, group in known.items() if group == name}
    for spelled in (name, name.removesuffix("Pattern")):
        if spelled in known:
            return {spelled}
    near = difflib.get_close_matches(name, [*SETS, *known], 3) or list(SETS)
    raise UsageError(
        f"unknown patterns {name!r}: choose {' or '.join(near)}; sets and rules are put together "
        "with + and -, as in default-Cast"
    )


def run_plan(
    model: ir.Model,
    plan: Sequence[Stage],
    tally: Tally | None = None,
    *,
    verify: Verifier | None = None,
    max_iter: int = -1,
) -> Tally:
    """Run the stages over a model, again and again until nothing changes.

    Args:
        model: is changed in place.
        plan: the stages.
        tally: is told what was done.
        verify: is called after every rewrite.
        max_iter: how often the stages are run at most; -1 for as often as it takes.

    Returns:
        The tally.

    Raises:
        RuleBroke: a rule made what no rule may, or the stages undo one another for ever.
    """
    tally = tally or Tally()
    if not plan or max_iter == 0:
        return tally
    infer_missing(model, all_nodes(model))
    _settle(model, [stage for stage in plan if not stage.last], tally, verify, max_iter)
    for stage in plan:
        if stage.last:
            _run_stage(model, stage, tally, verify)
    remove_dead(model)
    return tally


def _settle(
    model: ir.Model, plan: Sequence[Stage], tally: Tally, verify: Verifier | None, max_iter: int
) -> None:
    """Run stages again and again until nothing changes."""
    quiet = 0  # how many stages in a row changed nothing
    for turn in range(_ROUNDS if max_iter < 0 else max_iter):
        stages = [stage for stage in plan if turn == 0 or not stage.once]
        if not stages:
            break
        if name_sizes(model):
            quiet = 0
        for stage in stages:
            quiet = 0 if _run_stage(model, stage, tally, verify) else quiet + 1
            if turn and quiet >= len(plan) - 1:
                break
        else:
            continue
        break
    else:
        if max_iter < 0:
            (worst, times), *_ = tally.applied.most_common(1)
            raise RuleBroke(f"the rewrites never end; {worst}: {times} times", rule=worst)


def _run_stage(model: ir.Model, stage: Stage, tally: Tally, verify: Verifier | None) -> bool:
    start = time.perf_counter()
    if stage.act is None:
        done = apply_rules(model, stage.rules, tally, verify)
    elif lacking := tally.missing(stage.needs):
        done = 0
        tally.declined.setdefault(stage.name, Counter())[lacking] += 1
    else:
        done = stage.act(model)
        if done:
            tally.needs.update(stage.needs)
            tally.applied[stage.name] += done
            remove_dead(model)
            if verify is not None:
                verify(stage.name, ())
    nodes = sum(1 for _ in all_nodes(model))
    tally.stages.append(StageCount(stage.name, nodes, done, time.perf_counter() - start))
    return done > 0
