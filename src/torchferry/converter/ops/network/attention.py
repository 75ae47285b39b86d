"""Scaled dot product attention.

From opset 23 it is one Attention node where onnxruntime's kernel takes what is given; else the
products and the softmax, the scale folded into the query. Rows that are masked as a whole give
zeros, as PyTorch's kernels do. Grouped heads are not repeated: the queries of a group are more
rows of one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from torchferry.converter.block import Block
from torchferry.converter.lowering import lowers
from torchferry.seams.operators import aten

__all__: list[str] = []

_ATTENTION = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_LARGEST = 4096  # elements of a causal mask that is stored as a constant


@dataclass(frozen=True)
class _Heads:
    """How many heads queries and keys have; equal when they are not grouped."""

    query: int
    key: int


def _heads(query: ir.Value, key: ir.Value, enable_gqa: bool) -> _Heads:
    if not enable_gqa:
        return _Heads(1, 1)
    counts = [list(v.shape or (1, 1, 1))[-3] for v in (query, key)]
    if not all(isinstance(count, int) for count in counts):
        raise ValueError("its number of heads depends on the inputs' sizes, fix it")
    return _Heads(*counts)  # type: ignore[arg-type]  # ints, as checked


def _same(x: Any, y: Any) -> bool:
    return x == y and (isinstance(x, int) or x.value is not None)


def _one_node(
    query: ir.Value, key: ir.Value, mask: ir.Value | None, causal: bool, scale: float | None
) -> bool:
    """Whether onnxruntime's Attention kernel takes the operands: its masks are not broadcast.

    Nor does it take a scale that has no square root. An added mask may hide a row by the least
    number, of which PyTorch makes equal weights and onnxruntime, since 1.28, zeros.
    """
    if query.dtype not in _ATTENTION or len(query.shape or ()) != 4:
        return False
    if scale is not None and scale <= 0:
        return False
    if mask is None:
        return True
    axes, queries, keys = list(mask.shape or ()), list(query.shape or ()), list(key.shape or ())
    return (
        not causal
        and mask.dtype == ir.DataType.BOOL
        and len(axes) in (2, 4)
        and _same(axes[-2], queries[-2])
        and _same(axes[-1], keys[-2])
        and all(_same(a, 1) or _same(a, q) for a, q in zip(axes[:-2], queries, strict=False))
    )


@lowers(aten.scaled_dot_product_attention.default)
def scaled_dot_product_attention(
    b: Block,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    attn_mask: ir.Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ir.Value:
    if dropout_p:
        raise ValueError("its dropout is random, call model.eval() or pass dropout_p=0.0")
    if attn_mask is not None and attn_mask.dtype != ir.DataType.BOOL:
        attn_mask = b.cast(attn_mask, query)
    if b.opset >= 23 and _one_node(query, key, attn_mask, is_causal, scale):
        result = b.Attention(
            query, key, value, attn_mask, scale=scale, is_causal=1 if is_causal else None
        )
        return result if attn_mask is None else _cleared(b, result, attn_mask)
    heads = _heads(query, key, enable_gqa)
    rank = len(key.shape or ())
    order = [*range(rank - 2), rank - 1, rank - 2]
    scaled = b.Mul(query, _factor(b, query, scale))
    scores = b.MatMul(_grouped(b, scaled, heads, rank), b.Transpose(key, perm=order))
    scores = _parted(b, scores, heads, rank)
    if is_causal:
        scores = b.Add(scores, _causal(b, query, key))
    if attn_mask is not None:
        scores = _masked(b, scores, attn_mask)
    weights = _grouped(b, b.Softmax(scores, axis=-1), heads, rank)
    result = _parted(b, b.MatMul(weights, value), heads, rank)
    return result if attn_mask is None else _cleared(b, result, attn_mask)


def _cleared(b: Block, result: ir.Value, mask: ir.Value) -> ir.Value:
    """The result with zeros for queries that see no key, of which runtimes make what they like."""
    return b.Where(_seeing(b, mask), result, b.constant(0, result))


def _factor(b: Block, query: ir.Value, scale: float | None) -> Any:
    """What the query is multiplied by: 1 / sqrt(its last size) unless it is given."""
    if scale is not None:
        return scale
    size = b.dim(query, -1)
    if isinstance(size, int):
        return size**-0.5 if size else 1.0
    return b.Reciprocal(b.Sqrt(b.cast(size, query)))


def _grouped(b: Block, x: ir.Value, heads: _Heads, rank: int) -> ir.Value:
    """[..., query heads, L, n] as [..., key heads, query heads / key heads · L, n]."""
    return x if heads.query == heads.key else _with_heads(b, x, heads.key, rank)


def _parted(b: Block, x: ir.Value, heads: _Heads, rank: int) -> ir.Value:
    return x if heads.query == heads.key else _with_heads(b, x, heads.query, rank)


def _with_heads(b: Block, x: ir.Value, heads: int, rank: int) -> ir.Value:
    return b.Reshape(x, b.constant([*[0] * (rank - 3), heads, -1, 0]))


def _causal(b: Block, query: ir.Value, key: ir.Value) -> ir.Value:
    """0 where a query sees a key, which stands no later than itself; -inf elsewhere."""
    rows, columns = b.dim(query, -2), b.dim(key, -2)
    if isinstance(rows, int) and isinstance(columns, int) and rows * columns <= _LARGEST:
        return b.constant(np.triu(np.full((rows, columns), -np.inf), 1), query)
    # Trilu keeps what is above the diagonal and writes zeros elsewhere
    hidden = b.Expand(b.constant(-np.inf, query), b.vector([rows, columns]))
    return b.Trilu(hidden, 1, upper=1)


def _masked(b: Block, scores: ir.Value, mask: ir.Value) -> ir.Value:
    if mask.dtype == ir.DataType.BOOL:
        return b.Where(mask, scores, b.constant(-np.inf, scores))
    return b.Add(scores, mask)


def _seeing(b: Block, mask: ir.Value) -> ir.Value:
    """Which queries see a key at all, bool [..., L, 1]; made once for a mask."""
    made: tuple[Block, ir.Value] | None = mask.meta.get("seeing")
    if made is not None and made[0] is b:
        return made[1]
    seen = mask if mask.dtype == ir.DataType.BOOL else b.Greater(mask, b.constant(-np.inf, mask))
    if not isinstance(b.dim(mask, -1), int):
        # a sum, as there may be no key at all: onnxruntime has no greatest of nothing
        seeing = b.Greater(b.ReduceSum(b.cast(seen, ir.DataType.FLOAT), [-1]), 0.0)
    elif b.opset >= 20:
        seeing = b.ReduceMax(seen, [-1])
    else:
        seeing = b.cast(b.ReduceMax(b.cast(seen, ir.DataType.INT32), [-1]), ir.DataType.BOOL)
    mask.meta["seeing"] = b, seeing
    return seeing


@lowers(aten._scaled_dot_product_flash_attention_for_cpu.default)
def _flash_attention_for_cpu(
    b: Block,
    query: ir.Value,
    key: ir.Value,
    value: ir.Value,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    attn_mask: ir.Value | None = None,
    scale: float | None = None,
) -> tuple[ir.Value, None]:
    result = scaled_dot_product_attention(
        b, query, key, value, attn_mask, dropout_p, is_causal, scale=scale
    )
    return result, None


@lowers(aten._safe_softmax.default)
def _safe_softmax(b: Block, x: ir.Value, dim: int, dtype: torch.dtype | None = None) -> ir.Value:
    if dtype is not None:
        x = b.cast(x, dtype)
    most = b.ReduceMax(x, b.constant([dim]))
    seeing = b.Greater(most, b.constant(-np.inf, most))
    return b.Where(seeing, b.Softmax(x, axis=dim), b.constant(0, x))
