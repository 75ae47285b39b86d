"""Comparisons and logic: what makes bools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.kernel import is_floating, widened
from torchferry.seams.operators import aten

__all__ = ["signbit"]

BOOL = ir.DataType.BOOL
_INFINITY = float("inf")
_COMPARED = {"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less",
             "le": "LessOrEqual"}  # fmt: skip
_LOGICAL = {"and": "And", "or": "Or", "xor": "Xor"}


def _comparison(op_type: str) -> Callable[..., ir.Value]:
    def write(b: Block, x: Any, other: Any) -> ir.Value:
        return widened(b, op_type, x, other)

    return write


for _name, _op_type in _COMPARED.items():
    _packet = getattr(aten, _name)
    lowers(_packet.Tensor, _packet.Scalar, promote="default")(_comparison(_op_type))


@lowers(aten.ne.Tensor, aten.ne.Scalar, aten.not_equal.Tensor, promote="default")
def ne(b: Block, x: Any, other: Any) -> ir.Value:
    return b.Not(b.Equal(x, other))


def _logical(op_type: str) -> Callable[..., ir.Value]:
    def write(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
        return b.add(op_type, (b.cast(x, BOOL), b.cast(other, BOOL)))

    return write


for _name, _op_type in _LOGICAL.items():
    lowers(getattr(aten, f"logical_{_name}").default)(_logical(_op_type))


@lowers(aten.logical_not.default)
def logical_not(b: Block, x: ir.Value) -> ir.Value:
    return b.Not(b.cast(x, BOOL))


# What kind of number it is -------------------------------------------------------------------


def _everywhere(b: Block, x: ir.Value, value: bool) -> ir.Value:
    """One bool in the shape of x."""
    return b.Expand(b.constant(value), b.shape(x))


@lowers(aten.isnan.default)
def isnan(b: Block, x: ir.Value) -> ir.Value:
    return b.IsNaN(x) if is_floating(x) else _everywhere(b, x, False)


@lowers(aten.isinf.default)
def isinf(b: Block, x: ir.Value) -> ir.Value:
    return b.Equal(b.Abs(x), _INFINITY) if is_floating(x) else _everywhere(b, x, False)


@lowers(aten.isposinf.default)
def isposinf(b: Block, x: ir.Value) -> ir.Value:
    return b.Equal(x, _INFINITY) if is_floating(x) else _everywhere(b, x, False)


@lowers(aten.isneginf.default)
def isneginf(b: Block, x: ir.Value) -> ir.Value:
    return b.Equal(x, -_INFINITY) if is_floating(x) else _everywhere(b, x, False)


@lowers(aten.isfinite.default)
def isfinite(b: Block, x: ir.Value) -> ir.Value:
    return b.Less(b.Abs(x), _INFINITY) if is_floating(x) else _everywhere(b, x, True)


@lowers(aten.isreal.default)
def isreal(b: Block, x: ir.Value) -> ir.Value:
    return _everywhere(b, x, True)


@lowers(aten.signbit.default)
def signbit(b: Block, x: ir.Value) -> ir.Value:
    """Negative numbers, and the zero that is; a NaN has no sign here."""
    if x.dtype == BOOL:
        return _everywhere(b, x, False)
    negative = b.Less(x, b.constant(0, x))
    return b.Or(negative, b.Less(b.Reciprocal(x), 0)) if is_floating(x) else negative


@lowers(aten.isclose.default)
def isclose(
    b: Block, x: ir.Value, other: ir.Value, rtol: float = 1e-5, atol: float = 1e-8,
    equal_nan: bool = False,
) -> ir.Value:  # fmt: skip
    close = b.Equal(x, other)
    missing = b.And(b.IsNaN(x), b.IsNaN(other)) if equal_nan and is_floating(x) else None
    if not is_floating(x):
        x, other = (b.cast(v, torch.get_default_dtype()) for v in (x, other))
    if rtol or atol:
        gap = b.Abs(b.Sub(x, other))
        allowed = b.Add(b.Abs(b.Mul(other, rtol)), atol)
        near = b.And(b.Less(gap, _INFINITY), b.LessOrEqual(gap, allowed))
        close = b.Or(close, near)
    return close if missing is None else b.Or(close, missing)
