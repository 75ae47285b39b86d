"""Views of memory: as_strided."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.ops.index.scatter import scattered
from torchferry.converter.ops.shape.axes import Size, moves, sizes_of, steps
from torchferry.converter.ops.shape.view import flat, reshaped
from torchferry.converter.weight import Weight
from torchferry.seams.operators import aten

__all__: list[str] = []


def _check_contiguous(x: ir.Value) -> None:
    """A tensor in ONNX has no strides: only one that lies in memory as it reads can be viewed.

    Raises:
        ValueError: it does not, or nothing says so.
    """
    if isinstance(x.const_value, Weight):
        kept = bool(x.const_value.raw.is_contiguous())
    else:
        example = x.meta.get("example")
        kept = (
            example.is_contiguous() and example.storage_offset() == 0
            if isinstance(example, torch.Tensor)
            else x.producer() is None
        )
    if not kept:
        raise ValueError(
            "as_strided reads memory, and its input does not lie there in the order of its "
            "elements: call .contiguous() before, or write it with slices"
        )


def _places(
    b: Block, size: Sequence[Size], stride: Sequence[Size], storage_offset: Size | None
) -> ir.Value:
    """Where in memory every element is, int64 of shape ``size``."""
    places = b.scalar(storage_offset or 0)
    for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
        line = b.Mul(steps(b, 0, count), b.scalar(step))
        behind = len(size) - 1 - axis
        places = b.Add(places, b.Unsqueeze(line, list(range(1, 1 + behind))) if behind else line)
    return places


@moves(aten.as_strided.default, aten.as_strided_copy.default)
def as_strided(
    b: Block,
    x: ir.Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> ir.Value:
    _check_contiguous(x)
    return b.Gather(flat(b, x), _places(b, size, stride, storage_offset), axis=0)


@moves(aten.as_strided_scatter.default)
def as_strided_scatter(
    b: Block,
    x: ir.Value,
    src: ir.Value,
    size: Sequence[Size],
    stride: Sequence[Size],
    storage_offset: Size | None = None,
) -> ir.Value:
    _check_contiguous(x)
    places = flat(b, _places(b, size, stride, storage_offset))
    return reshaped(b, scattered(b, flat(b, x), places, flat(b, src), 0), sizes_of(b, x))
