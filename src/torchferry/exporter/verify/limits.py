"""Where an exported model is right: conditions that make a difference, and what is proven."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from torchferry.capturer.trial.trial import other_line
from torchferry.dims import Condition
from torchferry.exporter.verify.verify import Check
from torchferry.values.signature import Signature

__all__ = ["Limits", "find_limits"]


@dataclass(frozen=True)
class Limits:
    """What is known of the conditions that a program was captured under.

    Attributes:
        kept: conditions of the capture that calls of the exported model must meet.
        limits: those of them that the PyTorch model does not need: it does something else where
            they do not hold, or nobody could try. That nothing is empty is no limit.
        agreed: sizes at which the exported model was right, of dimensions where it is wrong at
            others.
        unproven: why no call of the exported model was found right; ``""`` if one was.
    """

    kept: tuple[Condition, ...] = ()
    limits: tuple[Condition, ...] = ()
    agreed: tuple[Condition, ...] = ()
    unproven: str = ""

    def meets(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes meet the conditions that the program was captured under."""
        return not any(condition.broken_by(sizes) for condition in self.kept)

    def on(self, name: str) -> tuple[Condition, ...]:
        """The limits of one dimension."""
        return tuple(limit for limit in self.limits if name in limit.names)

    def applied(self, signature: Signature) -> Signature:
        """A signature whose model refuses calls that nothing was proven of."""
        conditions = tuple(one.stored for one in (*self.kept, *self.agreed))
        return replace(signature, conditions=conditions, unproven=self.unproven)


def find_limits(
    conditions: Sequence[Condition],
    checks: Sequence[Check],
    fixed: Mapping[str, int] | None = None,
) -> Limits:
    """Tell conditions that make a difference from those that make none.

    A condition that only sizes of 0 or 1 break, or an operator's choice, is dropped if the
    exported model agreed with PyTorch wherever it was run at sizes that break it, and it was run
    there. Of others a few sizes that agree prove nothing: ``x * max(1, n / 40)`` does not tell 21
    from 22.

    Args:
        conditions: what the program took for granted.
        checks: comparisons with PyTorch, at sizes that meet the conditions and at others.
        fixed: sizes that are constants of the exported model, which refuses others anyway.
    """
    checks = [
        check
        for check in checks
        if all(check.sizes.get(name, size) == size for name, size in (fixed or {}).items())
    ]
    kept: dict[Condition, None] = {}
    limits = []
    idle = [one for one in conditions if _is_idle(one, _tried(one, conditions, checks))]
    telling = [one for one in conditions if one not in idle]
    for condition in telling:
        tried = _tried(condition, telling, checks)
        needed = _unless_empty(_with_line(condition, tried), tried)
        kept[needed] = None
        broken = any(condition.broken_by(check.sizes) for check in checks)
        if (tried or not broken) and not needed.of_empty:
            limits.append(needed)
    right = [{*_broken(conditions, check)} for check in checks if check.proves]
    for check in checks:
        # Each alone makes no difference, but together they do.
        together = _broken(conditions, check)
        known = check.untried is not None and any({*together} <= one for one in right)
        if check.refused is None and not check.proves and not (_broken(kept, check) or known):
            together = _joined(together, right)
            kept |= dict.fromkeys(together)
            limits += together
    found = Limits(tuple(kept), tuple(limits))
    return _with_failures(found, checks)


def _joined(together: list[Condition], right: Sequence[set[Condition]]) -> list[Condition]:
    """One condition, that one of some holds, if the model is right where any one of them does.

    Args:
        together: broken where the model is wrong.
        right: the conditions that are broken at each set of sizes where it is right.
    """
    if len(together) < 2 or not all({*together} - {one} in right for one in together):
        return together
    sizes: list[str] = []
    tests = []
    for one in together:
        test = one.test
        for number in reversed(range(len(one.sizes))):
            test = re.sub(rf"\bn{number}\b", f"n{number + len(sizes)}", test)
        tests.append(f"({test})")
        sizes += one.sizes
    line = next((one.line for one in together if one.line), "")
    return [Condition(" or ".join(tests), tuple(sizes), line)]


def _tried(
    condition: Condition, conditions: Sequence[Condition], checks: Sequence[Check]
) -> list[Check]:
    """The checks that ran at sizes that break a condition, and no other if there are such.

    Of a check that the budget left no time for nothing is known, which counts as a failure; unless
    another check ran at the same sizes of the condition's dimensions.
    """
    ran = [check for check in checks if check.refused is None and condition.broken_by(check.sizes)]
    known = {_at(condition, check) for check in ran if check.untried is None}
    ran = [check for check in ran if check.untried is None or _at(condition, check) not in known]
    return [check for check in ran if _broken(conditions, check) == [condition]] or ran


def _at(condition: Condition, check: Check) -> tuple[int | None, ...]:
    """The sizes of the dimensions that a condition is about."""
    return tuple(check.sizes.get(name) for name in sorted(condition.names))


def _is_idle(condition: Condition, tried: Sequence[Check]) -> bool:
    """Whether a condition makes no difference."""
    is_provable = condition.choice or not condition.matters
    return bool(tried) and all(check.proves for check in tried) and is_provable


def _broken(conditions: Iterable[Condition], check: Check) -> list[Condition]:
    return [condition for condition in conditions if condition.broken_by(check.sizes)]


def _with_line(condition: Condition, tried: Sequence[Check]) -> Condition:
    """The condition with the line that runs only where it is broken, if torch noted none."""
    line = next(filter(None, (other_line(check.unproven) for check in tried)), "")
    return condition if condition.line else replace(condition, line=line)


def _unless_empty(condition: Condition, ran: Sequence[Check]) -> Condition:
    """That a size is not 0, where ``n > 1`` makes a difference only for that."""
    wrong = [check for check in ran if not check.proves]
    empty = Condition("n0 > 0", condition.sizes, condition.line)  # an integer may be negative
    if len(condition.sizes) != 1 or condition.matters or len(wrong) == len(ran):
        return condition
    return empty if all(empty.broken_by(check.sizes) for check in wrong) else condition


def _with_failures(found: Limits, checks: Sequence[Check]) -> Limits:
    """Refuse the sizes of a dimension at which nothing was found right, where others were."""
    inside = [check for check in checks if check.refused is None and found.meets(check.sizes)]
    right = [check for check in inside if check.ok and not _is_empty(check)]
    if not right:
        return replace(found, unproven=_why(inside))
    agreed: dict[Condition, None] = {}
    for failing in (check for check in inside if check.failed and not check.declined):
        if any(condition.broken_by(failing.sizes) for condition in agreed):
            continue
        names = [
            name
            for name, size in failing.sizes.items()
            if all(check.sizes.get(name) != size for check in right)
        ]
        if not names:  # no dimension alone tells it from the others
            return replace(found, unproven=_why([failing]))
        for name in names:
            sizes = sorted({check.sizes[name] for check in right if name in check.sizes})
            agreed.setdefault(Condition(f"n0 in {(*sizes,)}", (name,), _why([failing])))
    return replace(found, agreed=tuple(agreed))


def _is_empty(check: Check) -> bool:
    """Whether outputs agree since there is nothing in them."""
    empty = not any(output.difference.n for output in check.outputs)
    return empty and 0 in check.sizes.values()


def _why(checks: Sequence[Check]) -> str:
    """Why nothing that was compared is right, in a sentence."""
    for check in checks:
        if check.error is not None:
            return f"onnxruntime failed: {check.error}"
        for output in check.outputs:
            if output.kind in ("differs", "failed") or output.verdict.chosen:
                return output.verdict.about(f"output {output.name}")
    return ""
