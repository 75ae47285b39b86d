"""The greater, the lesser, and what lies between bounds."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.kernel import is_floating, widened
from torchferry.converter.write.promote import torch_dtype
from torchferry.seams.operators import aten

__all__: list[str] = []

_LOGICAL = {"Max": "Or", "Min": "And"}


def _extremum(b: Block, op_type: str, x: ir.Value, other: Any) -> ir.Value:
    if x.dtype == ir.DataType.BOOL:
        return b.add(_LOGICAL[op_type], (x, other))
    return widened(b, op_type, x, other)


@lowers(aten.maximum.default, aten.max.other, promote="default")
def maximum(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return _extremum(b, "Max", x, other)


@lowers(aten.minimum.default, aten.min.other, promote="default")
def minimum(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return _extremum(b, "Min", x, other)


def _without_nan(op_type: str) -> Any:
    """The extremum of two numbers, one of which may be NaN."""

    def write(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
        if is_floating(x):
            x, other = b.Where(b.IsNaN(x), other, x), b.Where(b.IsNaN(other), x, other)
        return _extremum(b, op_type, x, other)

    return write


lowers(aten.fmax.default, promote="default")(_without_nan("Max"))
lowers(aten.fmin.default, promote="default")(_without_nan("Min"))


@lowers(aten.clamp.default, aten.clip.default, promote="default")
def clamp(b: Block, x: ir.Value, min: Any = None, max: Any = None) -> ir.Value:
    if x.dtype != ir.DataType.BOOL and min is not None and max is not None:
        return widened(b, "Clip", x, b.cast(min, x), b.cast(max, x))
    return clamp_tensor(b, x, min, max)


@lowers(aten.clamp.Tensor, aten.clip.Tensor, promote="default")
def clamp_tensor(b: Block, x: ir.Value, min: Any = None, max: Any = None) -> ir.Value:
    # One-sided, Clip would make the greatest number of an infinity.
    low = x if min is None else _extremum(b, "Max", x, b.cast(min, x))
    return low if max is None else _extremum(b, "Min", low, b.cast(max, x))


@lowers(aten.clamp_min.default, aten.clamp_min.Tensor, promote="default")
def clamp_min(b: Block, x: ir.Value, min: Any) -> ir.Value:
    return clamp_tensor(b, x, min)


@lowers(aten.clamp_max.default, aten.clamp_max.Tensor, promote="default")
def clamp_max(b: Block, x: ir.Value, max: Any) -> ir.Value:
    return clamp_tensor(b, x, None, max)


@lowers(aten.nan_to_num.default)
def nan_to_num(
    b: Block, x: ir.Value, nan: float | None = None, posinf: float | None = None,
    neginf: float | None = None,
) -> ir.Value:  # fmt: skip
    if not is_floating(x):
        return x
    limits = torch.finfo(torch_dtype(x.dtype))
    x = b.Where(b.IsNaN(x), nan or 0.0, x)
    infinity = float("inf")
    if posinf is None and neginf is None:
        return b.Clip(x, limits.min, limits.max)
    x = b.Where(b.Equal(x, infinity), limits.max if posinf is None else posinf, x)
    return b.Where(b.Equal(x, -infinity), limits.min if neginf is None else neginf, x)
