"""Symbolic sizes as ONNX values: each expression is computed once, where it is first needed."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

import onnx_ir as ir
import torch
from torch import fx

from torchferry.converter.block import Block

__all__ = ["Sizes", "expression"]

# A size is an int64 value of shape [1]; what torch computes from it as a float or a bool is a
# double or bool of shape [1]. The keys are the classes of sympy and torch.utils._sympy.functions.
Build = Callable[..., Any]

_SMALL_POWER = 5  # below it a power is a product
_EXPONENT_BITS = 6  # enough for exponents up to 63: larger powers overflow an int64


def expression(size: Any) -> Any:
    """The sympy expression of a ``SymInt``, ``SymFloat`` or ``SymBool``; numbers as they are."""
    node = getattr(size, "node", None)
    return size if node is None else node.expr


class Sizes:
    """The symbolic sizes of one graph and where each comes from.

    Args:
        names: what a size is called; symbols that get one name are one size.
        outer: the sizes of the graph around this one.
    """

    def __init__(self, names: Callable[[str], str] = str, outer: Sizes | None = None) -> None:
        self._name: Callable[[str], str] = outer._name if outer else names
        self._texts: dict[Any, str] = outer._texts if outer else {}
        self._origins: dict[str, tuple[ir.Value, int, Any]] = dict(outer._origins) if outer else {}

    def text(self, size: Any) -> str:
        """How a symbolic size is written in a shape."""
        expr = expression(size)
        if expr not in self._texts:
            # Names are integers: what is made of a float has other rules, as ``v // 1``.
            floats = any(not one.is_integer for one in getattr(expr, "free_symbols", ()))
            self._texts[expr] = str(expr) if floats else self._name(str(expr))
        return self._texts[expr]

    def axis(self, size: Any) -> int | str:
        """An axis of a shape: an int where the size is constant, else how it is written."""
        expr = expression(size)
        if isinstance(expr, int) or getattr(expr, "is_number", False):
            return int(expr)
        text = self.text(expr)
        return int(text) if text.isdecimal() else text

    def bind(self, value: ir.Value, sizes: Any) -> None:
        """Learn from a tensor's sizes where its symbols come from.

        Args:
            value: the tensor.
            sizes: its shape as torch knows it.
        """
        for axis, size in enumerate(sizes):
            if isinstance(size, torch.SymInt):
                self._origins.setdefault(self._key(size.node.expr), (value, axis, size.node.expr))

    def name(self, b: Block, size: Any, value: ir.Value) -> None:
        """A node computed this size: ``value`` is int64 of shape [1]."""
        b.name_size(self.text(size), value)

    def value(self, b: Block, size: Any) -> Any:
        """A size as an int (float, bool) or as a value of shape [1].

        Raises:
            ValueError: it is computed in a way that ONNX has no operator for.
        """
        expr = expression(size)
        if isinstance(expr, (bool, int, float)):
            return expr
        if getattr(expr, "is_number", False) or not hasattr(expr, "free_symbols"):
            return _number(expr)
        text = self.text(expr)
        known = b.size_named(text)
        if known is None:
            known = self._made(b, expr)
            if not isinstance(known, ir.Value):
                return known
            b.name_size(text, known)
        return known

    def step(self, b: Block, node: fx.Node, resolve: Callable[[Any], Any]) -> Any:
        """Compute one step of the arithmetic on sizes now, if it involves floats.

        torch's expressions have sums and products of floats in another order than the code, which
        rounds otherwise, and ``int`` shows it. Whole numbers are computed from their expression,
        where they are needed.

        Args:
            b: where nodes go.
            node: calls a function of Python on numbers.
            resolve: what an argument of it is: a number, or a value of shape [1].
        """
        size = node.meta["val"]
        numbers = [getattr(one, "meta", {}).get("val", one) for one in (node, *node.args)]
        build = _STEPS.get(node.target)
        if build is None or not any(isinstance(one, torch.SymFloat | float) for one in numbers):
            return size
        try:
            value = build(b, *map(resolve, node.args))
        except ValueError:  # an operand has no ONNX form; perhaps nothing needs it
            return size
        if not isinstance(value, ir.Value):
            return size
        self.name(b, size, value)
        return value

    def _key(self, expr: Any) -> str:
        """The user's name of a symbol; torch's own where that is an expression of other names.

        A mask that is as long as past and sequence together is not asked for their sum: it is
        computed from the two, as the program does.
        """
        text = self.text(expr)
        return text if not expr.is_symbol or text.isidentifier() else str(expr)

    def _made(self, b: Block, expr: Any) -> Any:
        origin = self._origins.get(self._key(expr))
        if origin is not None:
            value, axis, _ = origin
            return b.size_of(value, axis)
        if expr.is_symbol:
            return self._solved(b, expr)
        kind = type(expr).__name__
        if kind == "FloorDiv" and expr.args[0].is_nonnegative and expr.args[1].is_positive:
            kind = "CleanDiv"  # ONNX divides towards zero, which is downwards here
        build = _BUILD.get(kind)
        if build is None:
            raise ValueError(f"the size {expr} is computed with {type(expr).__name__}")
        return build(b, *(self.value(b, argument) for argument in expr.args))

    def _solved(self, b: Block, symbol: Any) -> Any:
        """A symbol that no tensor has for its size, from one whose size is linear in it."""
        for value, axis, expr in self._origins.values():
            if expr.free_symbols == {symbol}:
                rest = expr.subs(symbol, 0)
                factor = expr.subs(symbol, 1) - rest
                if expr.subs(symbol, 2) == 2 * factor + rest and factor != 0:
                    size = b.size_of(value, axis)
                    shifted = b.Sub(size, int(rest)) if rest else size
                    return b.Div(shifted, int(factor)) if factor != 1 else shifted
        raise ValueError(f"nothing in the program has the size {symbol}")


def _number(expr: Any) -> Any:
    name = type(expr).__name__
    if name in ("BooleanTrue", "BooleanFalse"):
        return bool(expr)
    return int(expr) if expr.is_integer else float(expr)


# Builders ------------------------------------------------------------------------------------


def _folding(op_type: str) -> Build:
    """An operator over any number of operands, two at a time."""

    def build(b: Block, *operands: Any) -> Any:
        return reduce(lambda x, y: b.add(op_type, _alike(b, x, y)), operands)

    return build


def _alike(b: Block, *operands: Any) -> list[Any]:
    """Ints and floats together are doubles."""
    dtype = ir.DataType.DOUBLE if any(map(_is_real, operands)) else ir.DataType.INT64
    return [
        b.cast(v, dtype) if isinstance(v, ir.Value) else b.constant([v], dtype) for v in operands
    ]


def _is_real(x: Any) -> bool:
    return x.dtype == ir.DataType.DOUBLE if isinstance(x, ir.Value) else isinstance(x, float)


def _product(b: Block, *operands: Any) -> Any:
    if operands[0] == -1 and len(operands) == 2:
        return b.Neg(operands[1])
    return _folding("Mul")(b, *operands)


def _floor_division(b: Block, x: Any, y: Any) -> Any:
    # ONNX divides integers towards zero, Python downwards: the remainder, which has the sign of
    # the divisor in both, is taken off first.
    x, y = _alike(b, x, y)
    if x.dtype == ir.DataType.DOUBLE:
        return b.Floor(b.Div(x, y))
    return b.Div(b.Sub(x, b.Mod(x, y)), y)


def _remainder(b: Block, x: Any, y: Any) -> Any:
    x, y = _alike(b, x, y)
    if x.dtype != ir.DataType.DOUBLE:
        return b.Mod(x, y)
    rest = b.Mod(x, y, fmod=1)  # of floats ONNX has no other; it has the sign of the dividend
    other_sign = b.Less(b.Mul(b.Sign(rest), b.Sign(y)), 0.0)
    return b.Where(other_sign, b.Add(rest, y), rest)


def _power(b: Block, x: Any, y: Any) -> Any:
    natural = isinstance(y, int) and y > 0
    if natural and (y < _SMALL_POWER or not _is_real(x)):
        return reduce(b.Mul, [x] * y)
    return b.Pow(_real(b, x), _real(b, y))


def _natural_power(b: Block, x: Any, y: Any) -> Any:
    """An integer to the power of one that is not negative: onnxruntime's Pow loses digits."""
    if isinstance(y, int):
        return _power(b, x, y)
    if isinstance(x, int) and abs(x) > 1:  # beyond the table onnxruntime fails, as Python does
        powers = itertools.takewhile(lambda power: abs(power) < 2**63, _powers(x))
        return b.Gather(b.constant([*powers], ir.DataType.INT64), y)
    base, exponent = _alike(b, x, y)
    result = b.constant([1], ir.DataType.INT64)
    for _ in range(_EXPONENT_BITS):
        odd = b.Equal(b.Mod(exponent, 2), 1)
        result = b.Where(odd, b.Mul(result, base), result)
        base, exponent = b.Mul(base, base), b.Div(exponent, 2)
    return result


def _powers(x: int) -> Iterator[int]:
    return (x**power for power in itertools.count())


def _real(b: Block, x: Any) -> Any:
    return (
        b.cast(x, ir.DataType.DOUBLE)
        if isinstance(x, ir.Value)
        else b.constant([x], ir.DataType.DOUBLE)
    )


def _true_division(b: Block, x: Any, y: Any) -> Any:
    return b.Div(_real(b, x), _real(b, y))


def _to_int(rounding: str) -> Build:
    def build(b: Block, x: Any) -> Any:
        if isinstance(x, ir.Value) and x.dtype == ir.DataType.INT64:
            return x
        rounded = b.add(rounding, [x]) if rounding else x
        return b.cast(rounded, ir.DataType.INT64)

    return build


def _truncated(b: Block, x: Any) -> Any:
    return b.cast(x, ir.DataType.INT64)


def _as_it_is(b: Block, x: Any) -> Any:  # noqa: ARG001  (a builder's parameters)
    return x


def _comparison(op_type: str, negated: bool = False) -> Build:
    def build(b: Block, x: Any, y: Any) -> Any:
        result = b.add(op_type, _alike(b, x, y))
        return b.Not(result) if negated else result

    return build


def _logical(op_type: str) -> Build:
    def build(b: Block, *operands: Any) -> Any:
        values = [v if isinstance(v, ir.Value) else b.constant([v]) for v in operands]
        return reduce(lambda x, y: b.add(op_type, (x, y)), values)

    return build


def _modular_indexing(b: Block, x: Any, divisor: Any, modulus: Any) -> Any:
    return _remainder(b, _floor_division(b, x, divisor), modulus)


def _choice(b: Block, condition: Any, x: Any, y: Any) -> Any:
    return b.Where(condition, *_alike(b, x, y))


def _unary(op_type: str) -> Build:
    return lambda b, x: b.add(op_type, [_real(b, x)])


_BUILD: dict[str, Build] = {
    "Add": _folding("Add"), "Mul": _product, "Max": _folding("Max"), "Min": _folding("Min"),
    "FloorDiv": _floor_division, "CleanDiv": lambda b, x, y: b.Div(*_alike(b, x, y)),
    "Mod": _remainder, "PythonMod": _remainder, "ModularIndexing": _modular_indexing,
    "Pow": _power, "PowByNatural": _natural_power, "FloatPow": _power,
    "IntTrueDiv": _true_division, "FloatTrueDiv": _true_division,
    "ToFloat": _real, "TruncToInt": _truncated, "TruncToFloat": _as_it_is,
    "CeilToInt": _to_int("Ceil"), "FloorToInt": _to_int("Floor"), "RoundToInt": _to_int("Round"),
    "ceiling": _to_int("Ceil"), "floor": _to_int("Floor"), "Identity": _as_it_is,
    "Abs": lambda b, x: b.Abs(x), "Where": _choice,
    "Equality": _comparison("Equal"), "Unequality": _comparison("Equal", negated=True),
    "StrictLessThan": _comparison("Less"), "LessThan": _comparison("LessOrEqual"),
    "StrictGreaterThan": _comparison("Greater"), "GreaterThan": _comparison("GreaterOrEqual"),
    "And": _logical("And"), "Or": _logical("Or"), "Not": lambda b, x: b.Not(x),
    "OpaqueUnaryFn_sqrt": _unary("Sqrt"), "OpaqueUnaryFn_exp": _unary("Exp"),
    "OpaqueUnaryFn_log": _unary("Log"), "OpaqueUnaryFn_cos": _unary("Cos"),
    "OpaqueUnaryFn_sin": _unary("Sin"), "OpaqueUnaryFn_tanh": _unary("Tanh"),
}  # fmt: skip

_STEPS: dict[Any, Build] = {
    operator.add: _BUILD["Add"], operator.mul: _BUILD["Mul"], operator.pow: _power,
    operator.sub: lambda b, x, y: b.Sub(*_alike(b, x, y)), operator.neg: lambda b, x: b.Neg(x),
    operator.truediv: _true_division, operator.floordiv: _floor_division,
    operator.mod: _remainder, torch.sym_float: _real, math.trunc: _truncated,
    math.floor: _to_int("Floor"), math.ceil: _to_int("Ceil"),
}  # fmt: skip
