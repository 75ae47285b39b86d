"""Arithmetic with constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import constant, number
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]

_INTEGERS = (ir.DataType.INT64, ir.DataType.INT32)
_MOST = 2**31


def _number(content: np.ndarray[Any, Any]) -> bool:
    return content.size == 1 and content.ndim <= 1


class MulMul(Rule):
    """x * a * b  →  x * (a * b), for numbers that are not extreme and both shrink, or both enlarge

    Where one shrinks and one enlarges, x * a may be infinite and x * (a * b) is not. Of
    half-precision numbers nothing is put together: the product could leave their range.
    """

    def pattern(self, p: Ops, x: Var) -> Any:
        inner = p.Mul(x, p.constant(_number, "first"))
        return p.Mul(inner, p.constant(_number, "second"))

    def check(self, x: ir.Value, first: ir.Value, second: ir.Value) -> None:
        require(x.dtype in (*_INTEGERS, ir.DataType.FLOAT), "x is neither float32 nor an integer")
        require(constant(x) is None, "x is constant too")
        together = number(first) * number(second)
        if x.dtype in _INTEGERS:
            require(abs(together) < _MOST, "the product is large")
        else:
            sizes = [abs(item) for item in (number(first), number(second), together)]
            plain = all(1e-20 < size < 1e20 for size in sizes)
            require(plain, "the numbers are extreme")
            one_way = max(sizes[:2]) <= 1 or min(sizes[:2]) >= 1
            require(one_way, "one number enlarges and the other shrinks")

    def rewrite(self, b: Block, x: ir.Value, first: ir.Value, second: ir.Value) -> Any:
        return b.Mul(x, _wider(b, first, second, number(first) * number(second)))


class AddAdd(Rule):
    """n + a + b  →  n + (a + b), for integers"""

    def pattern(self, p: Ops, x: Var) -> Any:
        inner = p.Add(x, p.constant(_number, "first"))
        return p.Add(inner, p.constant(_number, "second"))

    def check(self, x: ir.Value, first: ir.Value, second: ir.Value) -> None:
        require(x.dtype in _INTEGERS, "x is no integer")
        require(constant(x) is None, "x is constant too")
        require(abs(number(first) + number(second)) < _MOST, "the sum is large")

    def rewrite(self, b: Block, x: ir.Value, first: ir.Value, second: ir.Value) -> Any:
        return b.Add(x, _wider(b, first, second, number(first) + number(second)))


def _wider(b: Block, first: ir.Value, second: ir.Value, content: Any) -> ir.Value:
    """A number with as many axes as the one of two that has more."""
    axes = max(len(item.shape or ()) for item in (first, second))
    return b.constant(np.full((1,) * axes, content), first)


RULES: tuple[Rule, ...] = (MulMul(), AddAdd())
