"""Which weights get 8 bits: the ones whose 4 bits cost most for the bytes they save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchferry.errors import UsageError

__all__ = ["Unit", "choose_for_loss", "choose_for_size", "curve"]


@dataclass(frozen=True)
class Unit:
    """Weights that get the same number of bits.

    Attributes:
        name: of the weight, or of its role in every layer.
        weights: names.
        cost: KL divergence, in nats, of 4 bits here alone.
        extra: bytes that 8 bits take more.
        elements: of the weights.
    """

    name: str
    weights: tuple[str, ...]
    cost: float
    extra: int
    elements: int


def _by_worth(units: Sequence[Unit]) -> list[Unit]:
    """The units that are worth most for their bytes first."""
    return sorted(units, key=lambda unit: -unit.cost / max(unit.extra, 1))


def choose_for_size(units: Sequence[Unit], extra: float) -> list[Unit]:
    """The units for 8 bits that cost most in 4, within a number of extra bytes."""
    chosen, left = [], extra
    for unit in _by_worth(units):
        if unit.cost > 0 and unit.extra <= left:
            chosen.append(unit)
            left -= unit.extra
    return chosen


def choose_for_loss(units: Sequence[Unit], loss: float) -> list[Unit]:
    """The fewest bytes in 8 bits that leave no more than a loss, if losses add up.

    Raises:
        UsageError: the loss is not a positive number.
    """
    if not loss > 0:
        raise UsageError(f"--target-loss {loss:g} cannot be reached: give a positive number")
    chosen: list[Unit] = []
    left = sum(max(unit.cost, 0.0) for unit in units)
    for unit in _by_worth(units):
        if left <= loss:
            break
        chosen.append(unit)
        left -= max(unit.cost, 0.0)
    return chosen


def curve(units: Sequence[Unit], size: int) -> list[tuple[int, float]]:
    """Bytes and estimated loss as one unit after the other gets 8 bits.

    Args:
        units: of a model.
        size: in bytes, with all units in 4 bits.
    """
    left = sum(max(unit.cost, 0.0) for unit in units)
    points = [(size, left)]
    for unit in _by_worth(units):
        size, left = size + unit.extra, left - max(unit.cost, 0.0)
        points.append((size, max(left, 0.0)))
    return points
