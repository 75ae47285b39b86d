"""Families of cases: the fast suite runs each mechanism once, `make test-slow` runs all members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import pytest

__all__ = ["in_turn", "slow_among"]


def in_turn(rows: Iterable[Any], columns: Iterable[Any], name: Callable[[Any], str]) -> list[Any]:
    """All pairs, for ``parametrize``; fast is one of each row, and the columns take turns."""
    columns = list(columns)
    return [
        pytest.param(
            row, column, id=f"{name(row)}-{name(column)}",
            marks=[pytest.mark.slow] * (place % len(columns) != turn),
        )
        for place, row in enumerate(rows)
        for turn, column in enumerate(columns)
    ]  # fmt: skip


def slow_among(members: Iterable[str], slow: Collection[str]) -> list[Any]:
    """Members for ``parametrize``, some of them slow: they take the same way as one that is not."""
    members = list(members)
    assert set(slow) <= set(members), set(slow) - set(members)
    return [pytest.param(one, marks=[pytest.mark.slow] * (one in slow)) for one in members]
