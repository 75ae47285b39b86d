"""The ways to trace a model, in the order they are tried."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch.export import Dim

__all__ = ["DIAGNOSIS", "FIRST", "STRATEGIES", "Strategy"]


@dataclass(frozen=True)
class Strategy:
    """How a model is traced.

    Attributes:
        text: what reports call it.
        strict: whether Dynamo reads the code.
        oblivious: whether sizes 0 and 1 are like any other.
        hint: what torch.export hears of a dynamic size.
        as_seen: whether sizes of 0 and 1 are constants.
        patched: whether all patches are applied.
        silenced: whether those are whose absence goes unnoticed.
        checks: whether ``if ...: raise`` and ``assert`` on values are left to the run.
        constants: whether the values of buffers may decide.
        attributes: whether those of other tensors that the model keeps may, too.
    """

    text: str
    strict: bool
    oblivious: bool
    hint: Any
    as_seen: bool = False
    patched: bool = False
    silenced: bool = True
    checks: bool = False
    constants: bool = True
    attributes: bool = False


FIRST = Strategy("non-strict, sizes 0 and 1 not special", False, True, Dim.DYNAMIC)
STRATEGIES = (
    FIRST,
    replace(FIRST, text="the same with patches", patched=True),
    replace(FIRST, text="the same, checks of values left to the run", checks=True),
    Strategy("non-strict", False, False, Dim.DYNAMIC),
    Strategy("strict", True, False, Dim.DYNAMIC),
    Strategy("non-strict, sizes of 0 and 1 as seen", False, False, Dim.DYNAMIC, as_seen=True),
)
# Only to learn which dimensions the code fixes: what AUTO gives up is reported as a fault.
DIAGNOSIS = Strategy("non-strict, fixed sizes allowed", False, True, Dim.AUTO)
