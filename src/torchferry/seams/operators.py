"""Operators by name, as ``torch.ops`` has them, also those that this version of torch lacks.

>>> aten.relu.default is torch.ops.aten.relu.default, aten.no_such.default
(True, Absent(name='aten.no_such.default'))

A table or a decorator may name an operator that came or went with a version: an absent one equals
no target of a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Absent", "aten", "export", "higher_order", "prims", "quantized_decomposed"]


@dataclass(frozen=True)
class Absent:
    """An operator, or an overload of one, that this torch does not have.

    Attributes:
        name: as torch would print it, ``aten.qr.default``.
    """

    name: str

    def __getattr__(self, overload: str) -> Absent:
        return Absent(f"{self.name}.{overload}")

    def __str__(self) -> str:
        return self.name


class _Packet:
    """The overloads of one operator. It equals torch's own packet."""

    def __init__(self, packet: Any) -> None:
        self._packet = packet

    def __getattr__(self, overload: str) -> Any:
        found = getattr(self._packet, overload, None)
        # An attribute is read once: the next time Python finds it without asking here.
        found = Absent(f"{self._packet}.{overload}") if found is None else found
        vars(self)[overload] = found
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._packet(*args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return self._packet is getattr(other, "_packet", other)

    def __hash__(self) -> int:
        return hash(self._packet)


class _Namespace:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(getattr(torch.ops, self._name), name, None)
        if found is None:
            return Absent(f"{self._name}.{name}")  # not kept: a library may yet define it
        if hasattr(found, "overloads"):
            found = _Packet(found)
        vars(self)[name] = found
        return found


aten: Any = _Namespace("aten")
export: Any = _Namespace("export")
prims: Any = _Namespace("prims")
higher_order: Any = _Namespace("higher_order")
quantized_decomposed: Any = _Namespace("quantized_decomposed")
