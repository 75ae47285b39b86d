"""Arithmetic and comparisons as text, computed without executing it."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["value_of"]

_LARGEST = 2**31  # exponents and sizes beyond are no sizes; a file may say anything
_PLACES = 62  # bits that a number may be shifted by


def _power(base: Any, power: Any) -> Any:
    if abs(power) > 8 or abs(base) > _LARGEST:
        raise OverflowError
    if base < 0 and power != int(power):
        raise ArithmeticError  # the root of a negative number is complex
    return base**power


def _shifted(number: int, places: int) -> int:
    if places > _PLACES:
        raise OverflowError
    return number << places


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: _shifted, ast.RShift: operator.rshift, ast.Pow: _power,
    ast.USub: operator.neg, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda one, several: one in several,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "math.trunc": math.trunc, "math.floor": math.floor, "math.ceil": math.ceil,
    "math.sqrt": math.sqrt, "torch.sym_float": float, "torch.sym_max": max, "torch.sym_min": min,
    "torch.sym_not": operator.not_, "max": max, "min": min, "float": float, "int": int,
    "round": round, "bool": bool, "abs": abs,
}  # fmt: skip


def value_of(node: ast.expr, known: Mapping[str, int]) -> Any:
    """What an expression or a comparison of numbers and names gives.

    Raises:
        SyntaxError: there is something else in it.
        ArithmeticError: it divides by zero, or a power is too large or no real number.

    >>> value_of(ast.parse("n0 % 4 == 2", mode="eval").body, {"n0": 6})
    True
    """
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](value_of(operand, known))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](value_of(left, known), value_of(right, known))
        case ast.BoolOp(op=op, values=values):
            return (all if isinstance(op, ast.And) else any)([value_of(v, known) for v in values])
        case ast.Compare(left=left, ops=ops, comparators=others) if _OPERATORS.keys() >= {
            type(op) for op in ops
        }:
            terms = [_term(term, known) for term in (left, *others)]
            triples = zip(ops, terms, terms[1:], strict=False)
            return all(_OPERATORS[type(op)](a, b) for op, a, b in triples)
        case ast.Call(func=function, args=args, keywords=[]):
            known_function = _FUNCTIONS.get(ast.unparse(function))
            if known_function is not None:
                return known_function(*(value_of(arg, known) for arg in args))
    raise SyntaxError


def _term(node: ast.expr, known: Mapping[str, int]) -> Any:
    """A side of a comparison, which may be several numbers: ``n0 in (2, 3)``."""
    if isinstance(node, ast.Tuple):
        return [value_of(item, known) for item in node.elts]
    return value_of(node, known)
