"""Sliding windows over spatial axes, for what onnxruntime has no pooling kernel for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block

__all__ = ["arange", "batched", "lowest", "max_pool", "per_axis", "unbatched", "windows"]

Size = int | ir.Value

_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE}
_MOVES = {  # their results hold numbers of their arguments
    "Cast", "Concat", "Expand", "Identity", "Max", "Min", "Pad", "Reshape", "Slice", "Squeeze",
    "Transpose", "Unsqueeze", "Where",
}  # fmt: skip


def per_axis(sizes: Any, rank: int, what: str = "size") -> list[int]:
    """One int for each spatial axis, of a list that holds one of them or one for all.

    Raises:
        ValueError: one of them is symbolic; ONNX has them as attributes.
    """
    listed = list(sizes) if isinstance(sizes, (list, tuple)) else [sizes]
    if any(isinstance(size, ir.Value) for size in listed):
        raise ValueError(f"its {what} depends on the inputs' sizes, and ONNX wants a constant")
    return [int(size) for size in listed] * (rank if len(listed) == 1 else 1)


def batched(b: Block, x: ir.Value, spatial: int) -> tuple[ir.Value, bool]:
    """``x`` with a batch axis, and whether it had none."""
    if len(x.shape or ()) == spatial + 2:
        return x, False
    return b.Unsqueeze(x, [0]), True


def unbatched(b: Block, x: ir.Value, alone: bool) -> ir.Value:
    """``x`` without the batch axis that `batched` gave it."""
    return b.Squeeze(x, [0]) if alone else x


def arange(b: Block, size: Size) -> ir.Value:
    """0, 1, … as int64 of shape [size]."""
    if isinstance(size, int):
        return b.constant(np.arange(size))
    return b.Range(0, b.scalar(size), 1)


def max_pool(
    b: Block,
    x: ir.Value,
    kernel_shape: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None,
    ceil_mode: int | None = None,
) -> ir.Value:
    """MaxPool, over one axis as over two.

    onnxruntime begins at the least finite number over one axis and three, and over two that it
    pads or pools as a whole: a window of -inf is wrong. That is put right where the model fills
    in -inf.
    """
    alone = len(kernel_shape) == 1
    pads = [] if pads is None else pads
    found = b.MaxPool(
        b.Unsqueeze(x, [2]) if alone else x,
        kernel_shape=[1, *kernel_shape] if alone else kernel_shape,
        strides=[1, *strides] if alone else strides,
        pads=[0, pads[0], 0, pads[1]] if alone and pads else pads or None,
        dilations=[1, *dilations] if alone and dilations else dilations,
        ceil_mode=ceil_mode,
    )
    if _is_filled(x):
        least = b.constant(np.finfo(np.float32).min, x)
        found = b.Where(b.LessOrEqual(found, least), b.constant(-np.inf, x), found)
    return b.Squeeze(found, [2]) if alone else found


def _is_filled(x: ir.Value) -> bool:
    """Whether -inf is among the numbers that are chosen or moved to become ``x``."""
    left, seen = [x], {x}
    while left:
        value = left.pop()
        known = value.const_value
        is_number = known is not None and known.size == 1 and known.dtype in _FLOATS
        if known is not None and is_number and float(known.numpy().item()) == -np.inf:
            return True
        node = value.producer()
        if node is not None and node.op_type in _MOVES:
            fresh = [one for one in node.inputs if one is not None and one not in seen]
            seen.update(fresh)
            left += fresh
    return False


def lowest(dtype: ir.DataType | None) -> Any:
    """The number that no number of a dtype is below."""
    kind = (dtype or ir.DataType.FLOAT).numpy()
    return np.iinfo(kind).min if np.issubdtype(kind, np.integer) else -np.inf


def windows(
    b: Block,
    x: ir.Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> ir.Value:
    """Every whole window of ``x`` [N, C, *spatial], as [N, C, *out, *kernel]."""
    count = len(kernel)
    for place in reversed(range(count)):
        axis = 2 + place
        reach = dilation[place] * (kernel[place] - 1) + 1
        size = b.dim(x, axis)
        if isinstance(size, int):
            starts: Any = np.arange(0, size - reach + 1, stride[place])
            indices = b.constant(starts[:, None] + dilation[place] * np.arange(kernel[place]))
        else:
            last = b.Sub(size, reach - 1)
            starts = b.Range(0, b.scalar(last), stride[place])
            steps = b.constant(dilation[place] * np.arange(kernel[place]))
            indices = b.Add(b.Unsqueeze(starts, [1]), steps)
        x = b.Gather(x, indices, axis=axis)
    order = [0, 1, *range(2, 2 + 2 * count, 2), *range(3, 3 + 2 * count, 2)]
    return x if count == 1 else b.Transpose(x, perm=order)
