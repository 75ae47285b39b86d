"""Which rewrites a graph goes through, in the words users of compile backends know."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from torchferry.errors import UsageError
from torchferry.graph.runtime import check_version, store_least
from torchferry.optimizer.applied import AppliedRewrites
from torchferry.optimizer.place import all_nodes
from torchferry.optimizer.plan import Stage, plan_of, run_plan
from torchferry.optimizer.rule import Rule
from torchferry.optimizer.tally import Tally
from torchferry.optimizer.verifier import verifier

__all__ = ["OptimizationOptions"]

_log = logging.getLogger("torchferry")

_PROCESSORS = ("CPU", "CUDA")
_CONSTANTS_SINCE = 4  # the IR version in which an initializer need not be an input


@dataclass(frozen=True)
class OptimizationOptions:
    """How a graph is rewritten before onnxruntime loads it.

    >>> [stage.name for stage in OptimizationOptions("default-MergeEqual").plan]
    ['LiftConstants', 'clean']

    Attributes:
        patterns: sets and rules, put together with ``+`` and ``-``. ``default`` keeps to standard
            operators, ``onnxruntime`` fuses into onnxruntime's own, ``experimental`` into kernels
            of our making, see `fuse_element_wise`; ``default-Cast`` leaves one rule out. Or a list
            of names and of `Rule` objects. ``None`` or ``""`` rewrites nothing.
        constant_folding: compute what depends on no input once; or a set of the operators that
            may be computed.
        processor: ``CPU``, ``CUDA`` or ``CPU,CUDA``: where the rewritten graph will run.
        verbose: 1 logs how many nodes there were and are, and what was applied.
        max_iter: how often the stages are run; -1 is until nothing changes.
        verifies: check the model after every rewrite and name the rule at fault.
        dump_applied_patterns: a folder for every rewrite that is made, as small models of what was
            found and of what took its place.
        onnxruntime: the version that will run the graph, as ``"1.28"``; the installed one when
            ``None``. What an older one computes wrong is not fused, and the model's metadata say
            which version it needs at least.

    Raises:
        UsageError: an unknown set, rule, processor or version, or a number of runs below -1.
    """

    patterns: str | Sequence[str | Rule] | None = "default+onnxruntime"
    constant_folding: bool | Collection[str] = True
    processor: str = "CPU"
    verbose: int = 0
    max_iter: int = -1
    verifies: bool = False
    dump_applied_patterns: str | Path | None = None
    onnxruntime: str | None = None

    def __post_init__(self) -> None:
        unknown = [p for p in self.processor.split(",") if p.strip().upper() not in _PROCESSORS]
        if unknown:
            raise UsageError(f"unknown processor {unknown[0]!r}: choose {', '.join(_PROCESSORS)}")
        if self.max_iter < -1:
            raise UsageError(
                f"max_iter={self.max_iter}: give a number of runs, or -1 for no limit"
            )
        check_version(self.onnxruntime)
        _ = self.plan  # names are looked up now, not when a model has been translated

    @property
    def plan(self) -> tuple[Stage, ...]:
        """The stages that a model goes through."""
        return plan_of(
            self.patterns, constant_folding=self.constant_folding, processor=self.processor
        )

    def apply(self, model: ir.Model, tally: Tally | None = None) -> ir.Model:
        """Rewrite a model, which is changed in place.

        Args:
            model: the model.
            tally: is told what was done.

        Returns:
            The model.

        Raises:
            RuleBroke: a rewrite made an invalid graph.
        """
        plan = self.plan
        if not plan:
            return model
        if isinstance(self.patterns, str) and "+experimental" in self.patterns:
            _tell_if_left_out(self.processor)
        _separate_weights(model)
        before = sum(1 for _ in all_nodes(model))
        verify = verifier(model) if self.verifies else None
        tally = tally or Tally()
        tally.onnxruntime = check_version(self.onnxruntime)
        if self.dump_applied_patterns is not None:
            tally.dump = AppliedRewrites(Path(self.dump_applied_patterns))
        tally = run_plan(model, plan, tally, verify=verify, max_iter=self.max_iter)
        store_least(model, tally.needs)
        level = logging.INFO if self.verbose else logging.DEBUG
        after = sum(1 for _ in all_nodes(model))
        _log.log(level, "patterns %r: %d nodes became %d", self.patterns, before, after)
        for rule, times in tally.applied.most_common():
            _log.log(level, "%s: %d", rule, times)
        return model


def _tell_if_left_out(processor: str) -> None:
    if processor.strip().upper() != "CPU":
        _log.warning("patterns 'experimental': the kernels are for the CPU, and are left out")


def _separate_weights(model: ir.Model) -> None:
    """Make the initializers of a model of IR 3 constant, as onnxruntime takes them.

    Before IR 4 each of them had to be an input too; since then that means a default value, and no
    other initializer may be added to such a model.
    """
    if model.ir_version >= _CONSTANTS_SINCE:
        return
    model.ir_version = _CONSTANTS_SINCE
    for graph in model.graphs():
        for index in reversed(range(len(graph.inputs))):
            if graph.inputs[index].is_initializer():
                graph.inputs.pop(index)
