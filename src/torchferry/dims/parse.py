"""Text → size: what users write (``cache+seq``) and what torch prints for a SymInt."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import cast

from torchferry.dims.dim import Dim, Size, maximum, minimum

__all__ = ["parse_size"]

_BINARY: dict[type[ast.operator], Callable[[Size, Size], Size]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}

# The function names sympy prints for torch's symbolic integers (torch.utils._sympy.functions).
_CALLS: dict[str, Callable[..., Size]] = {
    "Max": maximum,
    "max": maximum,
    "Min": minimum,
    "min": minimum,
    "FloorDiv": lambda a, b: a // b,
    "CleanDiv": lambda a, b: a // b,
    "Mod": lambda a, b: a % b,
    "PythonMod": lambda a, b: a % b,
    "ModularIndexing": lambda a, b, c: (a // b) % c,
}


def parse_size(text: str) -> Size:
    """Read a size.

    A text that is no arithmetic (``my dim``, ``u0?``) is one name, spaces and all, so every name
    that ONNX allows is accepted.

    >>> str(parse_size("cache+seq")), parse_size("4"), str(parse_size("Max(1, s0)"))
    ('cache + seq', 4, 'max(s0, 1)')

    Raises:
        ValueError: the text is blank.
    """
    text = text.strip()
    try:
        return _read(ast.parse(text, mode="eval").body)
    except (SyntaxError, ZeroDivisionError, TypeError, _NoArithmeticError):
        return Dim.of(text)


class _NoArithmeticError(Exception):
    """The text is an expression, but not one of sizes."""


def _read(node: ast.expr) -> Size:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return Dim.of(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int() as power)):
            if power >= 0:
                factor, product = _read(left), cast("Size", 1)
                for _ in range(power):
                    product = product * factor
                return product
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_read(left), _read(right))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _CALLS:
            return _CALLS[name](*map(_read, args))
    raise _NoArithmeticError
