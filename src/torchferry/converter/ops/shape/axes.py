"""Axes and sizes of values, where a size may be known only when the model runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers

__all__ = [
    "Size", "along", "axis_of", "common_sizes", "expanded", "is_complex", "kept_complex", "least",
    "minus", "moves", "plus", "rank", "same_size", "sized", "sizes_of", "steps", "times",
]  # fmt: skip

Size = int | ir.Value
Lowered = Callable[..., Any]


def moves(*targets: Any) -> Callable[[Lowered], Lowered]:
    """Register a lowering that only moves elements: it serves complex tensors as well.

    It has to count axes with `rank` and `axis_of`, which leave the last axis of two out.
    """

    def register(write: Lowered) -> Lowered:
        lowers(*targets)(write)
        lowers(*targets, complex=True)(write)
        return write

    return register


def is_complex(x: ir.Value) -> bool:
    """Whether ``x`` holds complex numbers, as a last axis of two."""
    return bool(x.meta.get("complex"))


def kept_complex(x: ir.Value, made: ir.Value) -> ir.Value:
    """What was made of ``x``, marked as complex if ``x`` is."""
    if is_complex(x):
        made.meta["complex"] = True
    return made


def rank(x: ir.Value) -> int:
    """How many axes PyTorch says that ``x`` has.

    Raises:
        ValueError: it is not known.
    """
    if x.shape is None:
        raise ValueError("the rank of an operand is not known")
    return len(x.shape) - is_complex(x)


def axis_of(x: ir.Value, dim: int) -> int:
    """An axis counted from 0; a tensor of rank 0 has the axes 0 and -1."""
    return range(max(rank(x), 1))[dim]


def sizes_of(b: Block, x: ir.Value) -> list[Size]:
    """The size of every axis."""
    return [b.dim(x, axis) for axis in range(rank(x))]


def sized(x: ir.Value, made: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """Record the constant sizes in the shape of ``made``, and return it, complex if ``x`` is.

    Sizes and names that ``made`` has already stay: it may be ``x`` itself, or a model input.
    """
    learnt = [size if isinstance(size, int) and size >= 0 else None for size in sizes]
    learnt += [2] if is_complex(x) else []
    known = made.shape if made.shape is not None and len(made.shape) == len(learnt) else learnt
    made.shape = ir.Shape(
        [new if _is_open(old) else old for old, new in zip(known, learnt, strict=True)]
    )
    return kept_complex(x, made)


def _is_open(size: int | ir.SymbolicDim | None) -> bool:
    return size is None or (isinstance(size, ir.SymbolicDim) and size.value is None)


def same_size(x: Any, y: Any) -> bool:
    """Whether two entries of shapes are known to be equal."""
    if isinstance(x, int) or isinstance(y, int):
        return bool(x == y)
    return x.value is not None and x.value == y.value


# Arithmetic of sizes -------------------------------------------------------------------------


def times(b: Block, *sizes: Size) -> Size:
    """The product of sizes."""
    number = prod(size for size in sizes if isinstance(size, int))
    values = [size for size in sizes if isinstance(size, ir.Value)]
    if number == 0 or not values:
        return number
    result = values[0]
    for value in values[1:]:
        result = b.Mul(result, value)
    return result if number == 1 else b.Mul(result, [number])


def plus(b: Block, x: Size, y: Size) -> Size:
    """The sum of two sizes."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if isinstance(x, int):
        x, y = y, x
    if isinstance(y, int) and y == 0:
        return x
    return b.Add(x, y if isinstance(y, ir.Value) else [y])


def minus(b: Block, x: Size, y: Size) -> Size:
    """The difference of two sizes."""
    if isinstance(y, int):
        return plus(b, x, -y)
    return b.Sub(x if isinstance(x, ir.Value) else [x], y)


def least(b: Block, x: Size, y: Size) -> Size:
    """The lesser of two sizes."""
    if isinstance(x, int) and isinstance(y, int):
        return min(x, y)
    if x is y:
        return x
    return b.Min(*(v if isinstance(v, ir.Value) else b.constant([v]) for v in (x, y)))


def steps(b: Block, start: Size, end: Size, step: int = 1) -> ir.Value:
    """``range(start, end, step)`` as int64 of shape [n]."""
    if isinstance(start, int) and isinstance(end, int):
        return b.constant(np.arange(start, end, step))
    return b.Range(b.scalar(start), b.scalar(end), b.constant(step))


# Broadcasting --------------------------------------------------------------------------------


def common_sizes(b: Block, *values: ir.Value) -> list[Size]:
    """The shape that values broadcast to."""
    length = max(rank(value) for value in values)
    return [_column(b, values, place - length) for place in range(length)]


def _column(b: Block, values: Sequence[ir.Value], place: int) -> Size:
    held = [v for v in values if rank(v) >= -place]
    sizes = [(v, v.shape[place + rank(v)]) for v in held if v.shape is not None]
    others = [(v, size) for v, size in sizes if size != 1]
    constant = next((size for _, size in others if isinstance(size, int)), None)
    if constant is not None or not others:
        return 1 if constant is None else constant
    value = others[0][0]
    return b.dim(value, place + rank(value))


def expanded(b: Block, x: ir.Value, sizes: Sequence[Size]) -> ir.Value:
    """``x`` broadcast to ``sizes``; ``x`` itself if it has them."""
    lead = len(sizes) - rank(x)
    kept = [
        lead <= place and (same is size or (isinstance(size, int) and same == size))
        for place, size in enumerate(sizes)
        for same in [b.dim(x, place - lead) if lead <= place else None]
    ]
    if all(kept):
        return x
    wanted = [1 if keep else size for keep, size in zip(kept, sizes, strict=True)]
    pair = [1] if is_complex(x) else []
    return sized(x, b.Expand(x, b.vector([*wanted, *pair])), sizes)


def along(b: Block, vector: ir.Value, axis: int, axes: int) -> ir.Value:
    """A vector as a tensor of rank ``axes`` that has it along one axis, and 1 elsewhere."""
    others = [place for place in range(axes) if place != axis]
    return b.Unsqueeze(vector, others) if others else vector
