"""What eager mode itself has to do with a difference: the capture's errors, and eager's own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch.export.graph_signature import OutputKind, TensorArgument

from torchferry.comparer.comparison import difference_of
from torchferry.comparer.judge import Allows
from torchferry.comparer.modules import called, numbers_of
from torchferry.comparer.setting import Setting
from torchferry.errors import UsageError
from torchferry.values.fast_path import has_fast_path
from torchferry.values.randomness import random_kept

__all__ = ["explain_eager"]

_WAY = "that is the fast path of torch.nn.TransformerEncoder, which zeroes padded positions"


def explain_eager(setting: Setting, allows: Allows) -> tuple[list[str], bool]:
    """Compare a module with the program captured from it, and explain what differs.

    Returns:
        Sentences: that the capture is wrong, that eager mode takes another path (the fast path of
        ``nn.TransformerEncoder``) or does not agree with itself; none when all is equal, or there
        is no module. And whether the capture is right.
    """
    module = setting.module
    if module is None:
        return [], True
    with random_kept():
        return _explained(module, setting, allows)


def _explained(
    module: torch.nn.Module, setting: Setting, allows: Allows
) -> tuple[list[str], bool]:
    program = setting.reference.plain
    if program is None:
        outputs = _run(module, setting)
        return _other_path(module, setting, outputs, allows), True
    names = [
        str(spec.arg.name)
        for spec in program.graph_signature.output_specs
        if spec.kind is OutputKind.USER_OUTPUT and isinstance(spec.arg, TensorArgument)
    ]
    captured = dict(setting.reference.values(set(names)))
    expected = [captured[name] for name in names if name in captured]
    outputs = _run(module, setting)  # begins with the same random numbers
    if len(outputs) != len(expected) or _agree(outputs, expected, allows):
        return [], True
    said = f"eager mode differs from the captured program by {_apart(outputs, expected)}"
    if not _agree(outputs, _run(module, setting), allows):
        return [f"{said}, and from itself: {_why_random(setting, module, allows)}"], True
    if has_fast_path(module) and _agree(_run(module, setting, fast=False), expected, allows):
        return [f"{said}: {_WAY}; without it (torch.backends.mha) they agree"], True
    return [f"{said}: the capture is wrong, and so is every model made from it"], False


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
    drawn = "it computes something random"
    if setting.reference.chance.drawn:
        return drawn
    strict = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        fixed = _agree(_run(module, setting), _run(module, setting), allows)
    except UsageError as error:  # names the operator that has only an unordered form
        told = str(error.__cause__).strip().splitlines()[0][:200]
        return f"it adds up in no fixed order ({told})" if "deterministic" in told else drawn
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=warns)
    way = "it adds up in no fixed order, as atomic additions do"
    return f"{way}; under torch.use_deterministic_algorithms it repeats itself" if fixed else drawn


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
