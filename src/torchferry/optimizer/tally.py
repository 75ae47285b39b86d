"""What a run of the optimizer did: how often each rule was applied, and why it declined."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import onnx_ir as ir

from torchferry.graph.runtime import Ability, has, installed
from torchferry.optimizer.applied import AppliedRewrites
from torchferry.optimizer.matcher import Miss

__all__ = ["StageCount", "Tally"]


@dataclass(frozen=True)
class StageCount:
    """One run of one stage.

    Attributes:
        name: of the stage.
        nodes: in the model after it, those of subgraphs and functions included.
        applied: how many rewrites it made.
        seconds: it took.
    """

    name: str
    nodes: int
    applied: int
    seconds: float


@dataclass
class Tally:
    """Counts of one run.

    Attributes:
        explain: the rule whose nearest misses are kept.
        applied: rule to how often.
        declined: rule to reason to how often.
        misses: for `explain`, operator and reason to the nearest miss, deepest first.
        stages: what each stage did, in order.
        dump: writes each rewrite that is made.
        onnxruntime: the version that will run the model.
        needs: what the rewrites rely on that not every version can do.
    """

    explain: str | None = None
    applied: Counter[str] = field(default_factory=Counter)
    declined: dict[str, Counter[str]] = field(default_factory=dict)
    misses: list[Miss] = field(default_factory=list)
    stages: list[StageCount] = field(default_factory=list)
    dump: AppliedRewrites | None = None
    onnxruntime: str = field(default_factory=installed)
    needs: set[Ability] = field(default_factory=set)

    def decline(self, rule: str, reason: str, node: ir.Node, matched: int) -> None:
        """Count that a rule found its pattern and left it."""
        self.declined.setdefault(rule, Counter())[reason] += 1
        if rule == self.explain:
            self.misses.append(Miss(matched, f"declined: {reason}", node))

    def missing(self, needs: Iterable[Ability]) -> str:
        """What the onnxruntime that will run the model does instead; empty if it has all."""
        lacking = (ability.before for ability in needs if not has(self.onnxruntime, ability))
        return next(lacking, "")

    def nearest(self, most: int = 10) -> list[Miss]:
        """The places where the explained rule came furthest, the furthest first."""
        kinds: dict[tuple[int, str], Miss] = {}
        for miss in self.misses:
            kinds.setdefault((miss.matched, miss.reason), miss)
        return sorted(kinds.values(), key=lambda miss: -miss.matched)[:most]
