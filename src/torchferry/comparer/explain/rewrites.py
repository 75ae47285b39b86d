"""Which rewrite of the optimizer makes a right model wrong: a bisection over their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from torchferry.optimizer.driver import remove_dead
from torchferry.optimizer.plan import Stage, plan_of, run_plan

__all__ = ["Rewrite", "first_wrong", "rewritten"]


@dataclass(frozen=True)
class Rewrite:
    """One rewrite of a run.

    Attributes:
        number: which it is, from 1.
        rule: its name.
        nodes: names of the nodes that it made; none for an action on the whole model.
    """

    number: int
    rule: str
    nodes: tuple[str, ...]

    def __str__(self) -> str:
        made = f", which made {', '.join(self.nodes[:4])}" if self.nodes else ""
        return f"{self.rule}, rewrite {self.number}{made}"


class _Enough(Exception):  # noqa: N818  (it ends a run, and is no error)
    """The rewrites that were asked for are done."""


@dataclass
class _Count:
    """Counts rewrites, and ends the run after some; -1 for none."""

    most: int
    done: list[Rewrite] = field(default_factory=list)

    def __call__(self, rule: str, nodes: Sequence[ir.Node]) -> None:
        names = tuple(str(node.name) for node in nodes)
        self.done.append(Rewrite(len(self.done) + 1, rule, names))
        if len(self.done) == self.most:
            raise _Enough


def rewritten(model: ir.Model, patterns: str, most: int = -1) -> tuple[ir.Model, list[Rewrite]]:
    """A copy of a model after some rewrites, and what they were.

    Args:
        model: stays as it is.
        patterns: the optimizer's, as ``default+onnxruntime``.
        most: how many rewrites are made; all of them if -1.
    """
    plan: tuple[Stage, ...] = plan_of(patterns)
    made = model.clone()
    count = _Count(most)
    if most != 0:
        try:
            run_plan(made, plan, verify=count)
        except _Enough:
            remove_dead(made)
    return made, count.done


def first_wrong(
    model: ir.Model, patterns: str, right: Callable[[ir.Model], bool]
) -> Rewrite | None:
    """The rewrite before which a model is right and after which it is wrong.

    Args:
        model: right as it is.
        patterns: the optimizer's, with which it becomes wrong.
        right: runs a model and tells.

    Returns:
        The rewrite; ``None`` when the model stays right, or was wrong before.
    """
    whole, rewrites = rewritten(model, patterns)
    if right(whole) or not right(model):
        return None
    good, bad = 0, len(rewrites)
    while bad - good > 1:
        middle = (good + bad) // 2
        if right(rewritten(model, patterns, middle)[0]):
            good = middle
        else:
            bad = middle
    return rewrites[bad - 1] if rewrites else None
