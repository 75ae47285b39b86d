"""Numbers that code reads out of tensors, as tensors of rank 0: a graph may ask what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchferry.capturer.rewrite.subgraph import is_graph, note_read

__all__ = ["as_bool", "as_float", "as_int", "item", "read"]


def read(value: Any, convert: Callable[[Any], Any] | None = None) -> Any:
    """``value.item()``, ``float(value)``, ``bool(value)``: a tensor if only the graph knows it."""
    if not isinstance(value, torch.Tensor) or not is_graph():
        return value.item() if convert is None else convert(value)
    number: Any = value.item()
    if type(number) is torch.SymInt:
        note_read(number)
    whole = type(number) is torch.SymInt and convert is None
    if type(number) in (torch.SymInt, torch.SymFloat, torch.SymBool) and not whole:
        ways: dict[Any, Callable[[Any], Any]] = {None: item, float: as_float, bool: as_bool}
        return ways[convert](value)
    return number if convert is None else convert(number)


def item(value: Any) -> Any:
    """``value.item()`` of a tensor as one of rank 0, in the widest type of its kind."""
    if not isinstance(value, torch.Tensor):
        return value.item()
    value = value.reshape(())
    if value.is_floating_point():
        return value.double()
    return value if value.dtype == torch.bool else value.long()


def as_int(value: Any) -> Any:
    """``int(value)``, of a tensor as one of rank 0."""
    return item(value).trunc().long() if isinstance(value, torch.Tensor) else int(value)


def as_float(value: Any) -> Any:
    """``float(value)``, of a tensor as one of rank 0."""
    return item(value).double() if isinstance(value, torch.Tensor) else float(value)


def as_bool(value: Any) -> Any:
    """``bool(value)``, of a tensor as one of rank 0."""
    return item(value).bool() if isinstance(value, torch.Tensor) else bool(value)
