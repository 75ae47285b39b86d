"""Casts that change nothing, and what they choose."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from torchferry.optimizer.block import Block
from torchferry.optimizer.facts import FLOATS, attribute
from torchferry.optimizer.pattern import Ops, Var
from torchferry.optimizer.rule import Rule, require

__all__ = ["RULES"]

_T = ir.DataType
_WIDER: dict[ir.DataType, frozenset[ir.DataType]] = {
    _T.FLOAT16: frozenset({_T.FLOAT, _T.DOUBLE}),
    _T.BFLOAT16: frozenset({_T.FLOAT, _T.DOUBLE}),
    _T.FLOAT: frozenset({_T.DOUBLE}),
    _T.INT32: frozenset({_T.INT64, _T.DOUBLE}),
    _T.BOOL: frozenset(
        {_T.INT8, _T.UINT8, _T.INT32, _T.INT64, _T.FLOAT16, _T.BFLOAT16, _T.FLOAT, _T.DOUBLE}
    ),
}  # fmt: skip
"""Types that hold every value of a type."""


class Cast(Rule):
    """Cast(x, to=the type of x)  →  x"""

    since = 1

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Cast(x, name="cast")

    def check(self, x: ir.Value, cast: ir.Node) -> None:
        require(x.dtype is not None and attribute(cast, "to") == x.dtype, "the type changes")

    def rewrite(self, b: Block, x: ir.Value) -> Any:
        return x


class CastCast(Rule):
    """Cast(Cast(x, to=wider), to=T)  →  Cast(x, to=T)"""

    keeps_interior = True

    def pattern(self, p: Ops, x: Var) -> Any:
        return p.Cast(p.Cast(x, name="inner"), name="outer")

    def check(self, x: ir.Value, inner: ir.Node) -> None:
        lossless = _WIDER.get(x.dtype or ir.DataType.UNDEFINED, ())
        require(attribute(inner, "to") in lossless, "the inner cast may round")

    def rewrite(self, b: Block, x: ir.Value, outer: ir.Node) -> Any:
        return b.again(outer, [x])


class CastLike(Rule):
    """CastLike(x, y)  →  Cast(x, to=the type of y)"""

    since = 19  # Cast and CastLike of one opset have the same attributes

    def pattern(self, p: Ops, x: Var, y: Var) -> Any:
        return p.CastLike(x, y, name="cast")

    def check(self, y: ir.Value) -> None:
        require(y.dtype is not None, "the type of y is not known")

    def rewrite(self, b: Block, x: ir.Value, y: ir.Value, cast: ir.Node) -> Any:
        return b.Cast(x, to=y.dtype, saturate=attribute(cast, "saturate"))


class WhereNotZero(Rule):
    """Where(Cast(x, to=bool), y, x)  →  Where(Cast(x, to=bool), y, 0)

    As masks that hide are made: what is chosen is a number then, whatever ``x`` is.
    """

    keeps_interior = True

    def pattern(self, p: Ops, x: Var, y: Var) -> Any:
        return p.Where(p.Cast(x, to=int(_T.BOOL), name="cast"), y, x)

    def check(self, x: ir.Value) -> None:
        require(x.dtype in FLOATS, "it is no float")

    def rewrite(self, b: Block, x: ir.Value, y: ir.Value, cast: ir.Node) -> Any:
        return b.Where(cast.outputs[0], y, b.constant(0, x))


RULES: tuple[Rule, ...] = (Cast(), CastCast(), CastLike(), WhereNotZero())
