"""Which ATen overloads convert, and by whose lowering."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch

from torchferry.converter.driver import handled
from torchferry.converter.lowering import absent, find_lowering
from torchferry.converter.program.functional import decomposition
from torchferry.converter.torchlib import borrowed
from torchferry.seams.pytorch import operator_names, schema_of

__all__ = ["By", "Coverage", "coverage", "is_ours"]

By = Literal["ours", "decomposed", "borrowed", "none", "absent"]
"""``ours``: a lowering of torchferry. ``decomposed``: torch makes it of simpler operators.
``borrowed``: a lowering of onnxscript. ``absent``: torchferry has a lowering, and this torch does
not have the operator."""


@dataclass(frozen=True)
class Coverage:
    """One overload.

    Attributes:
        operator: ``aten.add.Tensor``.
        by: who converts it.
        place: module and function of our lowering; empty otherwise.
        complex: whether ours takes complex tensors.
    """

    operator: str
    by: By
    place: str = ""
    complex: bool = False


def is_ours(target: Any) -> bool:
    """Whether the driver or a lowering of ours writes what an FX node calls."""
    return handled(target) or any(
        find_lowering(target, complex=numbers) is not None for numbers in (False, True)
    )


def coverage() -> list[Coverage]:
    """Every functional ATen overload, sorted by name.

    What writes in place or into ``out`` is left out: a program is made functional first.
    """
    rows = [*map(_covered, _overloads())]
    rows += [Coverage(name, "absent", _place(write)) for name, write in absent().items()]
    return sorted(rows, key=lambda row: row.operator)


def _overloads() -> Iterator[Any]:
    for qualified in operator_names():
        namespace, _, rest = qualified.partition("::")
        name, _, overload = rest.partition(".")
        if namespace != "aten" or name.startswith("_backward"):
            continue
        packet = getattr(torch.ops.aten, name, None)
        found = getattr(packet, overload or "default", None)
        if found is not None and not schema_of(found).is_mutable:
            yield found


def _covered(target: Any) -> Coverage:
    lowering = find_lowering(target)
    pairs = find_lowering(target, complex=True)
    found = lowering or pairs
    if found is not None:
        return Coverage(str(target), "ours", _place(found.write), pairs is not None)
    if decomposition(target) is not None:
        return Coverage(str(target), "decomposed")
    return Coverage(str(target), "borrowed" if borrowed(target) else "none")


def _place(write: Callable[..., Any]) -> str:
    return f"{write.__module__.rsplit('.', 1)[-1]}.{write.__qualname__.split('.')[0]}"
