"""Ifs that return: both sides with what follows, so that each ends with a return."""

from __future__ import annotations

import ast
import copy
from collections.abc import Sequence

__all__ = ["are_alike", "may_return", "returning_sides", "without_returns"]


def _returns(body: Sequence[ast.stmt]) -> bool:
    """Whether statements always end with a return of a value."""
    match body[-1] if body else None:
        case ast.Return(value=value):
            return value is not None
        case ast.If(body=then, orelse=other):
            return _returns(then) and _returns(other)
    return False


def returning_sides(statement: ast.If, rest: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Both sides of an if that returns somewhere, with what follows; none if one may not return.

    ``if a: return b`` and the statements after it are the two sides.
    """
    if not may_return(statement):
        return []
    sides = [
        side if _returns(side) else [*side, *copy.deepcopy(list(rest))]
        for side in (statement.body, statement.orelse)
    ]
    return sides if all(map(_returns, sides)) else []


def may_return(statement: ast.stmt) -> bool:
    """Whether it is a return, or an if that has one."""
    match statement:
        case ast.Return():
            return True
        case ast.If(body=then, orelse=other):
            return any(map(may_return, [*then, *other]))
    return False


def without_returns(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements whose returns, but for those within loops, are expressions."""
    result: list[ast.stmt] = []
    for statement in body:
        match statement:
            case ast.Return(value=value):
                result.append(ast.Expr(value or ast.Constant(None)))
            case ast.If(test, then, other):
                sides = [*without_returns(then), *without_returns(other)]
                result += [ast.Expr(test), *sides]
            case _:
                result.append(statement)
    return result


def are_alike(sides: Sequence[Sequence[ast.stmt]]) -> bool:
    """Whether the sides return as many values, as far as one can read."""
    values = [side[-1].value for side in sides if isinstance(side[-1], ast.Return)]
    counts = {len(value.elts) if isinstance(value, ast.Tuple) else None for value in values}
    return len(counts) < 2
