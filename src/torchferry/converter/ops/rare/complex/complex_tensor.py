"""Complex tensors made, cast, chosen and tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import find_lowering, lowers
from torchferry.converter.ops.create.creation import filled
from torchferry.converter.ops.rare.complex.complex_number import is_complex, pair, parts
from torchferry.converter.ops.shape.axes import Size, expanded, sizes_of
from torchferry.converter.write.promote import torch_dtype
from torchferry.seams.operators import aten

__all__: list[str] = []

BOOL = ir.DataType.BOOL


# Casts ---------------------------------------------------------------------------------------


def _cast(b: Block, x: ir.Value, dtype: torch.dtype | None) -> ir.Value:
    if dtype is None:
        return x
    if dtype.is_complex:
        return pair(b, x, b.constant(0, dtype.to_real()))
    return b.cast(parts(b, x)[0], dtype)


@lowers(aten.to.dtype, complex=True)
def to_dtype(
    b: Block, x: ir.Value, dtype: torch.dtype, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None,
) -> ir.Value:  # fmt: skip
    return _cast(b, x, dtype)


@lowers(aten.to.dtype_layout, aten._to_copy.default, aten.to.device, complex=True)
def to_copy(b: Block, x: ir.Value, *_options: Any) -> ir.Value:
    return _cast(b, x, next((o for o in _options if isinstance(o, torch.dtype)), None))


@lowers(aten.copy.default, complex=True)
def copy(b: Block, x: ir.Value, src: ir.Value, non_blocking: bool = False) -> ir.Value:
    if is_complex(x):
        return expanded(b, pair(b, src, x), sizes_of(b, x))
    return expanded(b, b.cast(parts(b, src)[0], x), sizes_of(b, x))


# Creation ------------------------------------------------------------------------------------


def _filled(b: Block, sizes: Sequence[Size], number: Any, dtype: torch.dtype) -> ir.Value:
    """One number in every place, in a complex dtype or a real one."""
    if not dtype.is_complex:
        return filled(b, b.vector(sizes), number, dtype)
    shape, part = b.vector([*sizes, 2]), dtype.to_real()
    if isinstance(number, (int, float)) and not number:
        return filled(b, shape, 0, part)
    return b.Expand(pair(b, number, b.constant(0, part)), shape)


@lowers(aten.zeros.default, aten.empty.memory_format, complex=True)
def zeros(b: Block, size: Sequence[Any], dtype: Any = None, *_layout: Any) -> ir.Value:
    return _filled(b, size, 0, dtype)


@lowers(aten.ones.default, complex=True)
def ones(b: Block, size: Sequence[Any], dtype: Any = None, *_layout: Any) -> ir.Value:
    return _filled(b, size, 1, dtype)


@lowers(aten.full.default, complex=True)
def full(
    b: Block, size: Sequence[Any], fill_value: Any, dtype: Any = None, *_layout: Any
) -> ir.Value:
    return _filled(b, size, fill_value, dtype or torch.complex64)


def _dtype(x: ir.Value) -> torch.dtype:
    dtype = torch_dtype(x.dtype)
    return dtype.to_complex() if is_complex(x) else dtype


def _like(number: int) -> Any:
    def write(b: Block, x: ir.Value, dtype: Any = None, *_layout: Any) -> ir.Value:
        return full_like(b, x, number, dtype)

    return write


def _new(number: int) -> Any:
    def write(
        b: Block, x: ir.Value, size: Sequence[Size], dtype: Any = None, *_layout: Any
    ) -> ir.Value:
        return new_full(b, x, size, number, dtype)

    return write


lowers(aten.zeros_like.default, aten.empty_like.default, aten.zero.default, complex=True)(_like(0))
lowers(aten.ones_like.default, complex=True)(_like(1))
lowers(aten.new_zeros.default, aten.new_empty.default, complex=True)(_new(0))
lowers(aten.new_ones.default, complex=True)(_new(1))


@lowers(aten.full_like.default, complex=True)
def full_like(
    b: Block, x: ir.Value, fill_value: Any, dtype: Any = None, *_layout: Any
) -> ir.Value:
    return _filled(b, sizes_of(b, x), fill_value, dtype or _dtype(x))


@lowers(aten.new_full.default, complex=True)
def new_full(
    b: Block, x: ir.Value, size: Sequence[Size], fill_value: Any, dtype: Any = None,
    *_layout: Any,
) -> ir.Value:  # fmt: skip
    return _filled(b, size, fill_value, dtype or _dtype(x))


@lowers(aten.fill.Scalar, aten.fill.Tensor, complex=True)
def fill(b: Block, x: ir.Value, value: Any) -> ir.Value:
    return full_like(b, x, value)


# Choices -------------------------------------------------------------------------------------


@lowers(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, promote="default",
        operands=("x", "other"), complex=True)  # fmt: skip
def where(b: Block, condition: ir.Value, x: Any, other: Any) -> ir.Value:
    like = x if is_complex(x) else other
    mask = b.Unsqueeze(b.cast(condition, BOOL), [-1])
    return b.Where(mask, pair(b, x, like), pair(b, other, like))


@lowers(aten.masked_fill.Scalar, aten.masked_fill.Tensor, complex=True)
def masked_fill(b: Block, x: ir.Value, mask: ir.Value, value: Any) -> ir.Value:
    return b.Where(b.Unsqueeze(b.cast(mask, BOOL), [-1]), pair(b, value, x), x)


@lowers(aten.isnan.default, complex=True)
def isnan(b: Block, x: ir.Value) -> ir.Value:
    return b.Or(*parts(b, b.IsNaN(x)))


@lowers(aten.isinf.default, complex=True)
def isinf(b: Block, x: ir.Value) -> ir.Value:
    return b.Or(*parts(b, b.Equal(b.Abs(x), float("inf"))))


@lowers(aten.isfinite.default, complex=True)
def isfinite(b: Block, x: ir.Value) -> ir.Value:
    return b.And(*parts(b, b.Less(b.Abs(x), float("inf"))))


@lowers(aten.isreal.default, complex=True)
def isreal(b: Block, x: ir.Value) -> ir.Value:
    return b.Equal(parts(b, x)[1], 0)


@lowers(aten.constant_pad_nd.default, complex=True)
def constant_pad_nd(b: Block, x: ir.Value, pad: Sequence[Any], value: Any = 0) -> ir.Value:
    lowering = find_lowering(aten.constant_pad_nd.default)
    if lowering is None or value != 0:
        raise ValueError("complex numbers are padded with zeros only: join a tensor to them")
    return lowering.write(b, x, [0, 0, *pad])  # the last axis, of two, is not padded


@lowers(aten.pad.default, complex=True)
def pad(
    b: Block, x: ir.Value, pad: Sequence[Any], mode: str = "constant", value: Any = None
) -> ir.Value:
    if mode != "constant":
        raise ValueError(f"complex numbers are not padded in mode {mode}: pad their parts")
    return constant_pad_nd(b, x, pad, value or 0)
