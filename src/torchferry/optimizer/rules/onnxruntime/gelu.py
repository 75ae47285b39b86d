"""Gelu in its spellings, and its relatives."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import number, rank, same_size
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]

_MS = "com.microsoft"
_OWN_OPSET = 20
"""From here on ONNX has Gelu."""


_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
"""What the kernels take; of half-precise numbers they round once, and not after every step."""


def _float(x: ir.Value) -> None:
    require(x.dtype in _TYPES, "x is neither float32 nor float16")


def _halved(p: Ops, x: Any, one_and: Any) -> Any:
    """Half of x times one_and, in every order."""
    half = p.constant(0.5)
    return p.any_of(
        p.Mul(p.Mul(x, one_and), half),
        p.Mul(p.Mul(x, half), one_and),
        p.Mul(x, p.Mul(one_and, half)),
        p.Div(p.Mul(x, one_and), p.constant(2)),
    )


class GeluErf(Rule):
    """x * (1 + Erf(x / √2)) / 2  →  Gelu(x); before opset 20, com.microsoft.Gelu(x)"""

    def pattern(self, p: Ops, x: Var) -> Any:
        scaled = p.any_of(p.Div(x, p.constant(math.sqrt(2))), p.Mul(x, p.constant(math.sqrt(0.5))))
        return _halved(p, x, p.Add(p.Erf(scaled), p.constant(1)))

    def check(self, x: ir.Value) -> None:
        _float(x)

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return b.Gelu(x, domain="" if b.opset >= _OWN_OPSET else _MS, like=x)


class GeluTanh(Rule):
    """x * (1 + Tanh(√(2/π) * (x + 0.044715 * x³))) / 2  →  com.microsoft.FastGelu(x)"""

    def pattern(self, p: Ops, x: Var) -> Any:
        cube = p.any_of(p.Pow(x, p.constant(3)), p.Mul(p.Mul(x, x), x))
        inner = p.Add(x, p.Mul(cube, p.constant(0.044715)))
        tanh = p.Tanh(p.Mul(inner, p.constant(math.sqrt(2 / math.pi))))
        return _halved(p, x, p.Add(tanh, p.constant(1)))

    def check(self, x: ir.Value) -> None:
        _float(x)

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return b.FastGelu(x, domain=_MS, like=x)


class FastGelu(Rule):
    """Gelu(x, approximate=tanh)  →  com.microsoft.FastGelu(x); the exact Gelu stays exact"""

    since = _OWN_OPSET

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Gelu(x, approximate="tanh")

    def check(self, x: ir.Value) -> None:
        _float(x)

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return b.FastGelu(x, domain=_MS, like=x)


class BiasGelu(Rule):
    """Gelu(x + bias)  →  com.microsoft.BiasGelu(x, bias); FastGelu has an input for it"""

    def pattern(self, p: Ops, x: Var, bias: Var) -> Any:
        biased = p.Add(x, bias)
        return p.any_of(
            p.Gelu(biased, approximate="none", name="gelu"),
            p.Gelu(biased, domain=_MS, name="gelu"),
            p.FastGelu(biased, domain=_MS, name="gelu"),
        )

    def check(self, x: ir.Value, bias: ir.Value) -> None:
        _float(x)
        require(rank(bias) == 1 and rank(x) > 1, "the bias is no vector, or x is none")
        require(same_size(bias, 0, x, -1), "the bias is no row of x")

    def rewrite(self, b: Block, x: ir.Value, bias: ir.Value, gelu: ir.Node) -> Any:
        name = "FastGelu" if gelu.op_type == "FastGelu" else "BiasGelu"
        return b.op(name, x, bias, domain=_MS, like=x)


class QuickGelu(Rule):
    """x * Sigmoid(alpha * x)  →  com.microsoft.QuickGelu(x, alpha)"""

    def pattern(self, p: Ops, x: Var) -> Any:
        alpha = p.constant(lambda content: content.size == 1 and content.ndim == 0, "alpha")
        return p.any_of(p.Mul(x, p.Sigmoid(x)), p.Mul(x, p.Sigmoid(p.Mul(x, alpha))))

    def check(self, x: ir.Value) -> None:
        _float(x)

    def rewrite(self, b: Block, x: ir.Value, alpha: ir.Value | None) -> Any:
        factor = 1.0 if alpha is None else float(number(alpha))
        return b.QuickGelu(x, domain=_MS, like=x, alpha=factor)


RULES: tuple[Rule, ...] = (GeluErf(), GeluTanh(), FastGelu(), BiasGelu(), QuickGelu())
