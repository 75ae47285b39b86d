"""Values in another dtype, and values as they are under another name."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import expanded, sizes_of
from torchferry.converter.write.promote import onnx_dtype
from torchferry.seams.operators import aten

__all__: list[str] = []

# Integers of one size, whose bits are the same when one is cast to the other.
_SAME_BITS = [
    {ir.DataType.INT8, ir.DataType.UINT8}, {ir.DataType.INT16, ir.DataType.UINT16},
    {ir.DataType.INT32, ir.DataType.UINT32}, {ir.DataType.INT64, ir.DataType.UINT64},
]  # fmt: skip


@lowers(
    aten.alias.default, aten.alias_copy.default, aten.detach.default, aten.detach_copy.default,
    aten.lift_fresh_copy.default, aten.lift_fresh.default, aten.lift.default,
    aten.resolve_conj.default, aten.resolve_neg.default, aten.conj.default,
    aten._conj.default, aten.conj_physical.default, aten._conj_physical.default,
    aten.real.default,
)  # fmt: skip
def alias(b: Block, x: ir.Value) -> ir.Value:
    return x


@lowers(aten.clone.default, aten.contiguous.default)
def clone(b: Block, x: ir.Value, memory_format: Any = None) -> ir.Value:
    return x


@lowers(aten.to.dtype)
def to_dtype(
    b: Block, x: ir.Value, dtype: torch.dtype, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None,
) -> ir.Value:  # fmt: skip
    return b.cast(x, dtype)


@lowers(aten.to.device)
def to_device(
    b: Block, x: ir.Value, device: Any, dtype: torch.dtype, non_blocking: bool = False,
    copy: bool = False, memory_format: Any = None,
) -> ir.Value:  # fmt: skip
    return b.cast(x, dtype)


@lowers(aten.to.other)
def to_other(
    b: Block, x: ir.Value, other: ir.Value, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None,
) -> ir.Value:  # fmt: skip
    return b.cast(x, other)


@lowers(aten.to.dtype_layout, aten._to_copy.default, aten.to.prim_Device, aten.to.prim_dtype)
def to_copy(b: Block, x: ir.Value, *_options: Any) -> ir.Value:
    dtype = next((item for item in _options if isinstance(item, torch.dtype)), None)
    return x if dtype is None else b.cast(x, dtype)


@lowers(aten.type_as.default)
def type_as(b: Block, x: ir.Value, other: ir.Value) -> ir.Value:
    return b.cast(x, other)


@lowers(aten.copy.default)
def copy(b: Block, x: ir.Value, src: ir.Value, non_blocking: bool = False) -> ir.Value:
    """What ``x`` holds once another tensor is written over it: dtype and shape stay."""
    return expanded(b, b.cast(src, x), sizes_of(b, x))


@lowers(torch.ops.prims.convert_element_type.default)
def convert_element_type(b: Block, a: ir.Value, dtype: torch.dtype) -> ir.Value:
    return b.cast(a, dtype)


@lowers(aten.view.dtype, aten.view_copy.dtype)
def view_dtype(b: Block, x: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The same bits, which ONNX can say of integers only."""
    wanted = onnx_dtype(dtype)
    if x.dtype == wanted:
        return x
    if {x.dtype, wanted} in _SAME_BITS or (x.dtype, wanted) == (
        ir.DataType.BOOL,
        ir.DataType.UINT8,
    ):
        return b.cast(x, wanted)
    raise ValueError(
        f"ONNX cannot read the bits of {x.dtype and x.dtype.name.lower()} as "
        f"{wanted.name.lower()}: convert the values with .to({dtype}), or do it outside the model"
    )


@lowers(aten.item.default, aten._local_scalar_dense.default)
def item(b: Block, x: ir.Value) -> ir.Value:
    """The only element, as the value of a symbolic size: of shape [1], int64, double or bool."""
    if x.dtype == ir.DataType.BOOL:
        dtype = ir.DataType.BOOL
    else:
        real = x.dtype is not None and x.dtype.is_floating_point()
        dtype = ir.DataType.DOUBLE if real else ir.DataType.INT64
    return b.Reshape(b.cast(x, dtype), [1])
