"""Families of cases: the fast suite runs some members, `make test-slow` runs the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

__all__ = ["in_turn", "slow_among"]


def in_turn(rows: Iterable[Any], columns: Iterable[Any]) -> list[Any]:
    """All pairs, for ``parametrize``; fast is one of each row, and the columns take turns.

    A row or column that is a tuple stands for several arguments.
    """
    columns = list(columns)
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            *(column if isinstance(column, tuple) else (column,)),
            marks=[pytest.mark.slow] * (place % len(columns) != turn),
        )
        for place, row in enumerate(rows)
        for turn, column in enumerate(columns)
    ]


def slow_among(members: Iterable[Any], slow: Collection[Any]) -> list[Any]:
    """Members for ``parametrize``; those that take the same way as another one are slow.

    A member that is a tuple stands for several arguments.
    """
    members = list(members)
    unknown = [one for one in slow if one not in members]
    assert not unknown, unknown
    return [
        pytest.param(
            *(one if isinstance(one, tuple) else (one,)), marks=[pytest.mark.slow] * (one in slow)
        )
        for one in members
    ]
