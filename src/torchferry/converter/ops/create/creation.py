"""Tensors made of sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.write.promote import onnx_dtype
from torchferry.seams.operators import aten

__all__ = ["filled", "indices"]

Size = int | ir.Value
DType = torch.dtype | None
INT64, DOUBLE = ir.DataType.INT64, ir.DataType.DOUBLE
_INLINE = 1024  # elements; a longer sequence is computed as the model runs


def filled(b: Block, shape: ir.Value, value: Any, dtype: torch.dtype | ir.DataType) -> ir.Value:
    """One number in every place.

    Args:
        b: where nodes go.
        shape: int64 of shape [rank].
        value: a number, or a value of one element.
        dtype: of the result.
    """
    element = onnx_dtype(dtype) if isinstance(dtype, torch.dtype) else dtype
    if isinstance(value, ir.Value):
        number = b.cast(value, element)
        if number.shape is None or len(number.shape):
            number = b.Reshape(number, b.constant(np.zeros(0, np.int64)))
        return b.Expand(number, shape)
    content = np.array([value]).astype(element.numpy())
    made: ir.Value = b.ConstantOfShape(shape, value=ir.Tensor(content, dtype=element))
    sizes = _constant_sizes(shape)
    if sizes is not None:
        made.shape = ir.Shape(sizes)
    return made


def _constant_sizes(shape: ir.Value) -> list[int] | None:
    if shape.const_value is None:
        return None
    return [int(size) for size in shape.const_value.numpy()]


def _floating(dtype: DType) -> torch.dtype:
    return dtype or torch.get_default_dtype()


# A shape given by its sizes ------------------------------------------------------------------


@lowers(aten.zeros.default, aten.empty.memory_format)
def zeros(b: Block, size: Sequence[Size], dtype: DType = None, *_layout: Any) -> ir.Value:
    return filled(b, b.vector(size), 0, _floating(dtype))


@lowers(aten.ones.default)
def ones(b: Block, size: Sequence[Size], dtype: DType = None, *_layout: Any) -> ir.Value:
    return filled(b, b.vector(size), 1, _floating(dtype))


@lowers(aten.full.default)
def full(
    b: Block, size: Sequence[Size], fill_value: Any, dtype: DType = None, *_layout: Any
) -> ir.Value:
    if dtype is None:
        dtype = _dtype_of(fill_value)
    return filled(b, b.vector(size), fill_value, dtype)


def _dtype_of(number: Any) -> torch.dtype:
    if isinstance(number, ir.Value):
        real = number.dtype is not None and number.dtype.is_floating_point()
        return torch.get_default_dtype() if real else torch.int64
    if isinstance(number, bool):
        return torch.bool
    return torch.int64 if isinstance(number, int) else torch.get_default_dtype()


@lowers(aten.empty_strided.default, aten.empty_permuted.default)
def empty_strided(
    b: Block, size: Sequence[Size], stride: Any, dtype: DType = None, *_layout: Any
) -> ir.Value:
    return filled(b, b.vector(size), 0, _floating(dtype))


# In the dtype of another tensor, or in its shape too -----------------------------------------


@lowers(aten.new_zeros.default, aten.new_empty.default)
def new_zeros(
    b: Block, x: ir.Value, size: Sequence[Size], dtype: DType = None, *_layout: Any
) -> ir.Value:
    return filled(b, b.vector(size), 0, dtype or _element(x))


@lowers(aten.new_ones.default)
def new_ones(
    b: Block, x: ir.Value, size: Sequence[Size], dtype: DType = None, *_layout: Any
) -> ir.Value:
    return filled(b, b.vector(size), 1, dtype or _element(x))


@lowers(aten.new_full.default)
def new_full(
    b: Block, x: ir.Value, size: Sequence[Size], fill_value: Any, dtype: DType = None,
    *_layout: Any,
) -> ir.Value:  # fmt: skip
    return filled(b, b.vector(size), fill_value, dtype or _element(x))


@lowers(aten.new_empty_strided.default)
def new_empty_strided(
    b: Block, x: ir.Value, size: Sequence[Size], stride: Any, dtype: DType = None,
    *_layout: Any,
) -> ir.Value:  # fmt: skip
    return filled(b, b.vector(size), 0, dtype or _element(x))


@lowers(aten.zeros_like.default, aten.empty_like.default)
def zeros_like(b: Block, x: ir.Value, dtype: DType = None, *_layout: Any) -> ir.Value:
    return filled(b, b.shape(x), 0, dtype or _element(x))


@lowers(aten.ones_like.default)
def ones_like(b: Block, x: ir.Value, dtype: DType = None, *_layout: Any) -> ir.Value:
    return filled(b, b.shape(x), 1, dtype or _element(x))


@lowers(aten.full_like.default)
def full_like(
    b: Block, x: ir.Value, fill_value: Any, dtype: DType = None, *_layout: Any
) -> ir.Value:
    return filled(b, b.shape(x), fill_value, dtype or _element(x))


@lowers(aten.fill.Scalar, aten.fill.Tensor)
def fill(b: Block, x: ir.Value, value: Any) -> ir.Value:
    return filled(b, b.shape(x), value, _element(x))


@lowers(aten.zero.default)
def zero(b: Block, x: ir.Value) -> ir.Value:
    return filled(b, b.shape(x), 0, _element(x))


def _element(x: ir.Value) -> ir.DataType:
    if x.dtype is None:
        raise ValueError("the dtype of the tensor to be like is not known")
    return x.dtype


@lowers(aten.scalar_tensor.default)
def scalar_tensor(b: Block, s: Any, dtype: DType = None, *_layout: Any) -> ir.Value:
    if dtype is None:
        dtype = _floating(None)
    if not isinstance(s, ir.Value):
        return b.constant(s, dtype)
    # a tensor from here on, which counts as one in type promotion
    return b.Identity(s) if s.dtype == onnx_dtype(dtype) else b.cast(s, dtype)


# Sequences -----------------------------------------------------------------------------------


def indices(b: Block, count: Size) -> ir.Value:
    """``0, 1, … count - 1``, int64 of shape [count]."""
    if isinstance(count, int) and count <= _INLINE:
        return b.constant(np.arange(count, dtype=np.int64))
    made: ir.Value = b.Range(b.constant(0), b.scalar(count), b.constant(1))
    made.shape = ir.Shape([count if isinstance(count, int) else None])
    return made


# Up to 2.13 torch makes the bounds of int64 whole before it counts.
_WHOLE_BOUNDS = len(torch.arange(0.5, dtype=torch.int64)) == 0


@lowers(aten.arange.default)
def arange(b: Block, end: Any, dtype: DType = None, *_layout: Any) -> ir.Value:
    return arange_step(b, 0, end, 1, dtype)


@lowers(aten.arange.start)
def arange_start(b: Block, start: Any, end: Any, dtype: DType = None, *_layout: Any) -> ir.Value:
    return arange_step(b, start, end, 1, dtype)


@lowers(aten.arange.start_step)
def arange_step(
    b: Block, start: Any, end: Any, step: Any = 1, dtype: DType = None, *_layout: Any
) -> ir.Value:
    """Counted in whole numbers or in float64, as PyTorch does it.

    Of integers the count is that of the bounds as they are, and each number has a whole start and
    a whole step.
    """
    bounds: tuple[Any, ...] = (start, end, step)
    if dtype is torch.int64 and _WHOLE_BOUNDS:
        bounds = tuple(b.cast(v, INT64) if isinstance(v, ir.Value) else int(v) for v in bounds)
    if not any(isinstance(v, ir.Value) for v in bounds):
        values = torch.arange(*bounds, dtype=dtype)
        if len(values) <= _INLINE:
            return _constant(b, values)
    if not any(_is_real(v) for v in bounds):
        return b.Range(*(b.scalar(v) for v in bounds))
    start, end, step = (b.cast(v, DOUBLE) for v in bounds)
    count = b.cast(b.Ceil(b.Div(b.Sub(end, start), step)), INT64)
    places = b.cast(b.Range(b.constant(0), b.Max(count, 0), b.constant(1)), DOUBLE)
    if dtype is not None and not dtype.is_floating_point:
        start, step = (b.cast(b.cast(v, INT64), DOUBLE) for v in (start, step))
    return _cast(b, b.Add(b.Mul(places, step), start), dtype)


def _is_real(number: Any) -> bool:
    if isinstance(number, ir.Value):
        return number.dtype is not None and number.dtype.is_floating_point()
    return isinstance(number, float)


def _constant(b: Block, values: torch.Tensor) -> ir.Value:
    """A tensor that PyTorch made."""
    dtype = values.dtype
    wide = values.float() if dtype in (torch.bfloat16, torch.float16) else values
    return b.constant(wide.numpy(), dtype)


def _cast(b: Block, x: ir.Value, dtype: DType) -> ir.Value:
    return b.cast(x, _floating(dtype))


@lowers(aten.linspace.default, aten.linspace.Tensor_Tensor, aten.linspace.Tensor_Scalar,
        aten.linspace.Scalar_Tensor)  # fmt: skip
def linspace(
    b: Block, start: Any, end: Any, steps: Size, dtype: DType = None, *_layout: Any
) -> ir.Value:
    dtype = _floating(dtype)
    if isinstance(steps, int) and steps <= _INLINE and _plain(start, end):
        return _constant(b, torch.linspace(start, end, steps, dtype=dtype))
    if not dtype.is_floating_point:
        start, end = (b.cast(b.cast(v, dtype), DOUBLE) for v in (start, end))
    return _cast(b, _spaced(b, start, end, steps), dtype)


@lowers(aten.logspace.default, aten.logspace.Tensor_Tensor, aten.logspace.Tensor_Scalar,
        aten.logspace.Scalar_Tensor)  # fmt: skip
def logspace(
    b: Block, start: Any, end: Any, steps: Size, base: float = 10.0, dtype: DType = None,
    *_layout: Any,
) -> ir.Value:  # fmt: skip
    dtype = _floating(dtype)
    if isinstance(steps, int) and steps <= _INLINE and _plain(start, end):
        return _constant(b, torch.logspace(start, end, steps, base, dtype=dtype))
    return _cast(b, b.Pow(b.constant(base, DOUBLE), _spaced(b, start, end, steps)), dtype)


def _plain(*numbers: Any) -> bool:
    return not any(isinstance(number, ir.Value) for number in numbers)


def _spaced(b: Block, start: Any, end: Any, steps: Size) -> ir.Value:
    """Evenly spaced in float64, both ends exact."""
    start, end = (b.cast(v, DOUBLE) for v in (start, end))
    places = b.cast(indices(b, steps), DOUBLE)
    last = max(steps - 1, 1) if isinstance(steps, int) else b.Max(b.Sub(b.scalar(steps), 1), 1)
    share = b.Div(places, b.cast(last, DOUBLE))
    return b.Add(b.Mul(start, b.Sub(1.0, share)), b.Mul(end, share))


def _integer(dtype: Any) -> torch.dtype:
    """The dtype given; the schema's default is a number."""
    return dtype if isinstance(dtype, torch.dtype) else torch.int64


# Matrices ------------------------------------------------------------------------------------


@lowers(aten.eye.default)
def eye(b: Block, n: Size, dtype: DType = None, *_layout: Any) -> ir.Value:
    return eye_m(b, n, n, dtype)


@lowers(aten.eye.m)
def eye_m(b: Block, n: Size, m: Size, dtype: DType = None, *_layout: Any) -> ir.Value:
    rows, columns = b.Unsqueeze(indices(b, n), [1]), b.Unsqueeze(indices(b, m), [0])
    return _cast(b, b.Equal(rows, columns), dtype)


@lowers(aten.tril_indices.default)
def tril_indices(
    b: Block, row: int, col: int, offset: int = 0, dtype: DType = torch.int64, *_layout: Any
) -> ir.Value:
    return _constant(b, torch.tril_indices(row, col, offset, dtype=_integer(dtype)))


@lowers(aten.triu_indices.default)
def triu_indices(
    b: Block, row: int, col: int, offset: int = 0, dtype: DType = torch.int64, *_layout: Any
) -> ir.Value:
    return _constant(b, torch.triu_indices(row, col, offset, dtype=_integer(dtype)))
