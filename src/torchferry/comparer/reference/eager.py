"""What eager mode itself has to do with a difference: the capture's errors, and eager's own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from torchferry.comparer.explain.judge import Allows
from torchferry.comparer.reference.modules import called, numbers_of
from torchferry.comparer.setting import Setting
from torchferry.comparer.whole import output_nodes
from torchferry.errors import UsageError
from torchferry.judge import Reference, Verdict, worst_verdict
from torchferry.judge.reference import BAKED
from torchferry.judge.value import difference_of
from torchferry.values.fast_path import has_fast_path
from torchferry.values.randomness import random_kept

__all__ = ["explain_eager"]

_RANDOM = "it computes something random"
_WAY = "that is the fast path of torch.nn.TransformerEncoder, which zeroes padded positions"


def explain_eager(setting: Setting, allows: Allows) -> tuple[list[str], Verdict]:
    """Compare a module with the program captured from it, and explain what differs.

    Returns:
        Sentences: that the capture is wrong, that eager mode takes another path (the fast path of
        ``nn.TransformerEncoder``) or does not agree with itself; none when all is equal, or there
        is no module. And the verdict on the capture.
    """
    module = setting.module
    if module is None:
        return [], Verdict("equal")
    with random_kept():
        return _explained(module, setting, allows)


def _explained(
    module: torch.nn.Module, setting: Setting, allows: Allows
) -> tuple[list[str], Verdict]:
    program = setting.reference.plain
    if program is None:
        outputs = _run(module, setting)
        return _other_path(module, setting, outputs, allows), Verdict("equal")
    names = output_nodes(program)
    captured = dict(setting.reference.values(set(names)))
    expected = [captured[name] for name in names if name in captured]
    outputs = _run(module, setting)  # begins with the same random numbers
    if len(outputs) != len(expected) or _agree(outputs, expected, allows):
        return [], Verdict("equal")
    said = f"eager mode differs from the captured program by {_apart(outputs, expected)}"
    if not _agree(outputs, _run(module, setting), allows):
        verdict, why = _judged(setting, module), _RANDOM
        if verdict.evidence == BAKED:
            why = _why_random(setting, module, allows)
            verdict = verdict if why == _RANDOM else Verdict("random", evidence=why)
        if verdict.kind == "differs":
            return [f"{said}: {verdict.evidence or why}"], verdict
        return [f"{said}, and from itself: {why}"], verdict
    if has_fast_path(module) and _agree(_run(module, setting, fast=False), expected, allows):
        return [f"{said}: {_WAY}; without it (torch.backends.mha) they agree"], Verdict("equal")
    verdict = _judged(setting, module)
    if verdict.kind == "differs":
        return [f"{said}: the capture is wrong, and so is every model made from it"], verdict
    return [f"{said}: {verdict.evidence or 'within the limits for outputs'}"], verdict


def _judged(setting: Setting, module: torch.nn.Module) -> Verdict:
    """The verdict on the captured program, by the module in eager mode."""
    names = output_nodes(setting.reference.plain) if setting.reference.plain else []

    def run(model: torch.nn.Module, given: Any) -> list[torch.Tensor]:
        return numbers_of(model(*given[0], **given[1]))

    def captured() -> list[torch.Tensor]:
        values = dict(setting.reference.values(set(names)))
        return [values[name] for name in names]

    verdicts = Reference(run, module, setting.call).judge(captured(), captured)
    return worst_verdict(verdict for _, verdict in verdicts)


def _other_path(
    module: torch.nn.Module, setting: Setting, outputs: list[torch.Tensor], allows: Allows
) -> list[str]:
    """What eager mode does otherwise where it is the reference itself."""
    again = _run(module, setting)
    if not _agree(outputs, again, allows):
        said = f"eager mode differs from itself by {_apart(outputs, again)}"
        return [f"{said}: {_why_random(setting, module, allows)}"]
    slow = _run(module, setting, fast=False) if has_fast_path(module) else outputs
    if _agree(outputs, slow, allows):
        return []
    said = f"eager mode differs by {_apart(outputs, slow)} from what any capture of it computes"
    return [f"{said}: {_WAY}; the reference is eager mode without it (torch.backends.mha)"]


def _why_random(setting: Setting, module: torch.nn.Module, allows: Allows) -> str:
    """Numbers that are drawn, or sums whose order is not fixed, as with atomic additions."""
    if setting.reference.chance.drawn:
        return _RANDOM
    strict = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        fixed = _agree(_run(module, setting), _run(module, setting), allows)
    except UsageError as error:  # names the operator that has only an unordered form
        told = str(error.__cause__).strip().splitlines()[0][:200]
        return f"it adds up in no fixed order ({told})" if "deterministic" in told else _RANDOM
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warns)
    way = "it adds up in no fixed order, as atomic additions do"
    return (
        f"{way}; under torch.use_deterministic_algorithms it repeats itself" if fixed else _RANDOM
    )


def _apart(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> str:
    return f"{max(difference_of(*pair).abs for pair in zip(expected, got, strict=True)):.3g}"


def _run(module: torch.nn.Module, setting: Setting, *, fast: bool = True) -> list[torch.Tensor]:
    """What the module returns; from one call to the next it draws other random numbers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nested tensors being a prototype
        return numbers_of(called(module, *setting.call, fast=fast))


def _agree(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor], allows: Allows) -> bool:
    pairs = zip(expected, got, strict=True)
    return len(expected) == len(got) and all(allows(e, difference_of(e, g)) for e, g in pairs)
