"""Convolutions and transposed convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.network.matrix import product
from torchferry.converter.ops.network.windows import batched, per_axis, unbatched, windows
from torchferry.seams.operators import aten

__all__: list[str] = []

Sizes = Sequence[int]

# onnxruntime's kernels; others are composed of windows and matrix products, which is exact.
_KERNELS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def _convolved(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Any,
    padding: str | Any,
    dilation: Any,
    groups: Any,
) -> ir.Value:
    rank = len(weight.shape or ()) - 2
    x, alone = batched(b, x, rank)
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pads = _pads(weight, padding, dilations)
    # ONNX fixes the number of groups.
    if x.dtype not in _KERNELS or isinstance(groups, ir.Value):
        return unbatched(b, _composed(b, x, weight, bias, strides, pads, dilations, groups), alone)
    result = b.Conv(
        x, weight, bias,
        strides=_unless(strides, 1), pads=_unless(pads, 0), dilations=_unless(dilations, 1),
        group=None if groups == 1 else groups,
    )  # fmt: skip
    return unbatched(b, result, alone)


def _unless(values: list[int], default: int) -> list[int] | None:
    return None if all(value == default for value in values) else values


def _pads(weight: ir.Value, padding: str | Any, dilations: list[int]) -> list[int]:
    """ONNX's pads: those at the start of each axis, then those at its end."""
    rank = len(dilations)
    if padding == "valid":
        return [0] * 2 * rank
    if padding == "same":
        kernel = _kernel(weight)
        total = [d * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
        return [*(t // 2 for t in total), *(t - t // 2 for t in total)]
    return per_axis(padding, rank, "padding") * 2


def _kernel(weight: ir.Value) -> list[int]:
    sizes = list(weight.shape or ())[2:]
    if not all(isinstance(size, int) for size in sizes):
        raise ValueError("the size of its kernel depends on the inputs' sizes, fix it")
    return [int(size) for size in sizes]  # type: ignore[arg-type]  # checked above


def _composed(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    strides: list[int],
    pads: list[int],
    dilations: list[int],
    groups: int | ir.Value,
) -> ir.Value:
    """[N, G, out, C/G·kernel] @ [G, C/G·kernel, O/G], in the dtype's own arithmetic."""
    kernel, rank = _kernel(weight), len(strides)
    dtype, wide = x.dtype, ir.DataType.INT64
    if dtype not in (ir.DataType.DOUBLE, wide, *_KERNELS):
        x, weight = b.cast(x, wide), b.cast(weight, wide)
        bias = None if bias is None else b.cast(bias, wide)
    if any(pads):
        x = b.Pad(x, b.constant([0, 0, *pads[:rank], 0, 0, *pads[rank:]]))
    seen = windows(b, x, kernel, strides, dilations)
    channels, made = b.dim(weight, 1), b.dim(weight, 0)
    if isinstance(channels, ir.Value):
        raise ValueError("its number of channels depends on the inputs' sizes, fix it")
    if isinstance(made, ir.Value) or isinstance(groups, ir.Value):
        each: int | ir.Value = b.Div(made, groups)
    else:
        each = made // groups
    out = [b.dim(seen, 2 + axis) for axis in range(rank)]
    size = channels * prod(kernel)
    split = b.Reshape(seen, b.vector([0, groups, channels, *out, *kernel]))
    order = [0, 1, *range(3, 3 + rank), 2, *range(3 + rank, 3 + 2 * rank)]
    rows = b.Reshape(b.Transpose(split, perm=order), b.vector([0, groups, -1, size]))
    columns = b.Transpose(b.Reshape(weight, b.vector([groups, each, size])), perm=[0, 2, 1])
    result = b.Transpose(product(b, rows, columns), perm=[0, 1, 3, 2])
    result = b.Reshape(result, b.vector([0, made, *out]))
    if bias is not None:
        result = b.Add(result, b.Reshape(bias, b.constant([-1, *[1] * rank])))
    return b.cast(result, dtype) if dtype is not None else result


def _transposed(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> ir.Value:
    rank = len(weight.shape or ()) - 2
    x, alone = batched(b, x, rank)
    strides, dilations = per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
    pads, extra = per_axis(padding, rank, "padding"), per_axis(output_padding, rank)
    far = any(e >= step for e, step in zip(extra, strides, strict=True))
    if x.dtype not in _KERNELS or far:  # which onnxruntime has no ConvTranspose for
        spread = _spread(b, x, weight, strides, pads, extra, dilations)
        turned = _turned(b, weight, rank, groups)
        result = _convolved(b, spread, turned, bias, [1], [0], dilations, groups)
        return unbatched(b, result, alone)
    result = b.ConvTranspose(
        x, weight, bias,
        strides=_unless(strides, 1), pads=_unless(pads * 2, 0), dilations=_unless(dilations, 1),
        output_padding=_unless(extra, 0), group=None if groups == 1 else groups,
    )  # fmt: skip
    return unbatched(b, result, alone)


def _spread(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    strides: list[int],
    pads: list[int],
    extra: list[int],
    dilations: list[int],
) -> ir.Value:
    """``x`` with zeros between and around its elements: what a plain convolution then reads."""
    for place, step in enumerate(strides):
        axis = 2 + place
        if step > 1:
            sizes = [b.dim(x, a) for a in range(len(x.shape or ()))]
            wide = b.Pad(
                b.Unsqueeze(x, [axis + 1]), b.constant([0, step - 1]), None,
                b.constant([axis + 1]),
            )  # fmt: skip
            size = sizes[axis]
            sizes[axis] = size * step if isinstance(size, int) else b.Mul(size, step)
            x = b.Reshape(wide, b.vector(sizes))
    around = [
        (d * (k - 1) - p, d * (k - 1) - p + e - (step - 1))
        for d, k, p, e, step in zip(dilations, _kernel(weight), pads, extra, strides, strict=True)
    ]
    starts, ends = zip(*around, strict=True)
    if not any(starts) and not any(ends):
        return x
    # what is negative cuts
    return b.Pad(x, b.constant([0, 0, *starts, 0, 0, *ends]))


def _turned(b: Block, weight: ir.Value, rank: int, groups: int) -> ir.Value:
    """[C, O/G, *kernel] as [O, C/G, *kernel], the kernel read backwards."""
    taken, made = b.dim(weight, 0), b.dim(weight, 1)
    if isinstance(taken, ir.Value) or isinstance(made, ir.Value):
        raise ValueError("its number of channels depends on the inputs' sizes, fix it")
    kernel = _kernel(weight)
    split = b.Reshape(weight, b.constant([groups, taken // groups, made, *kernel]))
    swapped = b.Transpose(split, perm=[0, 2, 1, *range(3, 3 + rank)])
    joined = b.Reshape(swapped, b.constant([groups * made, taken // groups, *kernel]))
    axes = np.arange(2, 2 + rank)
    return b.Slice(
        joined, b.constant([-1] * rank), b.constant([np.iinfo(np.int64).min] * rank),
        b.constant(axes), b.constant([-1] * rank),
    )  # fmt: skip


# Overloads -----------------------------------------------------------------------------------


@lowers(
    aten.conv1d.default, aten.conv2d.default, aten.conv3d.default,
    aten.conv1d.padding, aten.conv2d.padding, aten.conv3d.padding,
)  # fmt: skip
def conv(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Sizes = (1,),
    padding: Sizes | str = (0,),
    dilation: Sizes = (1,),
    groups: int = 1,
) -> ir.Value:
    return _convolved(b, x, weight, bias, stride, padding, dilation, groups)


@lowers(aten.conv_transpose1d.default, aten.conv_transpose2d.input, aten.conv_transpose3d.input)
def conv_transpose(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    output_padding: Sizes = (0,),
    groups: int = 1,
    dilation: Sizes = (1,),
) -> ir.Value:
    return _transposed(b, x, weight, bias, stride, padding, output_padding, groups, dilation)


@lowers(aten.convolution.default)
def convolution(
    b: Block,
    x: ir.Value,
    weight: ir.Value,
    bias: ir.Value | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> ir.Value:
    if transposed:
        return _transposed(b, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _convolved(b, x, weight, bias, stride, padding, dilation, groups)
