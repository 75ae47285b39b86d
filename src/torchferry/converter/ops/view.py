"""The same elements in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers

__all__ = ["reshaped"]

aten = torch.ops.aten
Size = int | ir.Value


def reshaped(b: Block, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """``x`` in the shape ``sizes`` (ints, -1 among them, and int64 values of shape [1]).

    A symbolic size that ``x`` has at the same axis is written 0, which copies it, so that most
    shapes are constants. -1 is written for what is left only where the others cannot be zero:
    onnxruntime refuses to infer a size beside an empty axis.
    """
    known = [
        0
        if isinstance(size, ir.Value) and x.shape is not None and i < len(x.shape)
        and b.dim(x, i) is size
        else size
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    empty = any(size == 0 and known[i] is size for i, size in enumerate(sizes))
    if empty:  # a size that is zero and not copied
        return b.Reshape(x, b.vector(sizes), allowzero=1)
    values = [i for i, size in enumerate(known) if isinstance(size, ir.Value)]
    if len(values) == 1 and all(isinstance(k, ir.Value) or k > 0 for k in known):
        known[values[0]] = -1
    return b.Reshape(x, b.vector(known))


@lowers(aten.view.default, aten.reshape.default, aten._unsafe_view.default)
def view(b: Block, x: ir.Value, size: Sequence[Size]) -> ir.Value:
    return reshaped(b, x, size)


@lowers(aten.transpose.int)
def transpose(b: Block, x: ir.Value, dim0: int, dim1: int) -> ir.Value:
    order = list(range(len(x.shape or ())))
    if not order:
        return x
    order[dim0], order[dim1] = order[dim1], order[dim0]
    return b.Transpose(x, perm=order)


@lowers(aten.unsqueeze.default)
def unsqueeze(b: Block, x: ir.Value, dim: int) -> ir.Value:
    return b.Unsqueeze(x, [dim])


@lowers(aten.slice.Tensor)
def slice(
    b: Block,
    x: ir.Value,
    dim: int = 0,
    start: Size | None = None,
    end: Size | None = None,
    step: Size = 1,
) -> ir.Value:
    first: Any = 0 if start is None else start
    last: Any = 2**63 - 1 if end is None else end
    if _zero(first) and isinstance(last, int) and last >= 2**63 - 1 and step == 1:
        return x
    return b.Slice(x, *([v] if isinstance(v, int) else v for v in (first, last, dim, step)))


@lowers(aten.expand.default)
def expand(b: Block, x: ir.Value, size: Sequence[Size], implicit: bool = False) -> ir.Value:
    # -1 keeps a size, and so does 1 in ONNX, whose Expand broadcasts both ways
    sizes = [1 if isinstance(s, int) and s == -1 else s for s in size]
    return b.Expand(x, b.vector(sizes))


@lowers(aten.cat.default)
def cat(b: Block, tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    return tensors[0] if len(tensors) == 1 else b.Concat(*tensors, axis=dim)


def _zero(size: Size) -> bool:
    return isinstance(size, int) and size == 0


@lowers(aten.contiguous.default, aten.clone.default)
def contiguous(b: Block, x: ir.Value, memory_format: Any = None) -> ir.Value:
    return x
