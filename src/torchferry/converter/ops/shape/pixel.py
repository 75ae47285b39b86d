"""Channels and pixels: shuffles, and windows as columns."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.converter.ops.shape.axes import Size, plus, rank, sizes_of, steps, times
from torchferry.converter.ops.shape.permute import permuted
from torchferry.converter.ops.shape.view import reshaped
from torchferry.seams.operators import aten

__all__: list[str] = []


def _over(b: Block, size: Size, divisor: int) -> Size:
    return size // divisor if isinstance(size, int) else b.Div(size, [divisor])


@lowers(aten.pixel_shuffle.default)
def pixel_shuffle(b: Block, x: ir.Value, upscale_factor: int) -> ir.Value:
    factor = upscale_factor
    if rank(x) == 4 and x.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        return b.DepthToSpace(x, blocksize=factor, mode="CRD")
    *batch, channels, height, width = sizes_of(b, x)
    count, fewer = len(batch), _over(b, channels, factor * factor)
    blocks = reshaped(b, x, [*batch, fewer, factor, factor, height, width])
    order = [*range(count + 1), *(count + place for place in (3, 1, 4, 2))]
    wide = permuted(b, blocks, order)
    return reshaped(b, wide, [*batch, fewer, times(b, height, factor), times(b, width, factor)])


@lowers(aten.pixel_unshuffle.default)
def pixel_unshuffle(b: Block, x: ir.Value, downscale_factor: int) -> ir.Value:
    factor = downscale_factor
    *batch, channels, height, width = sizes_of(b, x)
    count, rows, columns = len(batch), _over(b, height, factor), _over(b, width, factor)
    blocks = reshaped(b, x, [*batch, channels, rows, factor, columns, factor])
    order = [*range(count + 1), *(count + place for place in (2, 4, 1, 3))]
    deep = permuted(b, blocks, order)
    return reshaped(b, deep, [*batch, times(b, channels, factor * factor), rows, columns])


@lowers(aten.channel_shuffle.default, aten.native_channel_shuffle.default)
def channel_shuffle(b: Block, x: ir.Value, groups: int) -> ir.Value:
    batch, channels, *rest = sizes_of(b, x)
    grouped = reshaped(b, x, [batch, groups, _over(b, channels, groups), *rest])
    order = [0, 2, 1, *range(3, 3 + len(rest))]
    return reshaped(b, permuted(b, grouped, order), [batch, channels, *rest])


# Windows as columns --------------------------------------------------------------------------


@lowers(aten.im2col.default)
def im2col(
    b: Block,
    x: ir.Value,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> ir.Value:
    """[N, C, H, W] as [N, C * kernel, windows]."""
    batch = rank(x) == 4
    if not batch:
        x = b.Unsqueeze(x, [0])
    if any(padding):
        x = b.Pad(x, [*padding, *padding], None, [2, 3])
    count, channels = b.dim(x, 0), b.dim(x, 1)
    windows: list[Size] = []
    for place, axis in enumerate((2, 4)):  # [N, C, kernel, out, …] one axis after the other
        reach = dilation[place] * (kernel_size[place] - 1)
        starts = steps(b, 0, plus(b, b.dim(x, axis), -reach), stride[place])
        offsets = steps(b, 0, dilation[place] * kernel_size[place], dilation[place])
        places = b.Add(b.Unsqueeze(offsets, [1]), starts)
        windows.append(b.dim(starts, 0))
        x = b.Gather(x, places, axis=axis)
    columns = b.Transpose(x, perm=[0, 1, 2, 4, 3, 5])
    rows = times(b, channels, kernel_size[0] * kernel_size[1])
    result = reshaped(b, columns, [count, rows, times(b, *windows)])
    return result if batch else b.Squeeze(result, [0])


@lowers(aten.col2im.default)
def col2im(
    b: Block,
    x: ir.Value,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> ir.Value:
    """[N, C * kernel, windows], summed where windows overlap, as [N, C, H, W]."""
    if x.dtype == ir.DataType.DOUBLE:
        raise ValueError("onnxruntime sums windows in float32 only: fold a float32 tensor")
    batch = rank(x) == 3
    columns = b.cast(x if batch else b.Unsqueeze(x, [0]), ir.DataType.FLOAT)
    result = b.Col2Im(
        columns, b.vector(output_size), list(kernel_size), dilations=list(dilation),
        pads=[*padding, *padding], strides=list(stride),
    )  # fmt: skip
    return result if batch else b.Squeeze(result, [0])
