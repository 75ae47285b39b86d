"""Grids for weights of which no inputs are known: zero points that make most errors small.

Badri and Shaji, Half-Quadratic Quantization, https://mobiusml.github.io/hqq_blog: the sum of the
errors' absolute values to the power of 0.7 forgives a few large ones, and is made less in turns:
errors are shrunk, and zero points become the mean of what is left. They need not be whole numbers.
"""

from __future__ import annotations

import numpy as np

from torchferry.quantizer.grid import Array, Grid

__all__ = ["fit_zeros"]

_POWER = 0.7
_ROUNDS = 20
_SHRINKING, _GROWTH = 10.0, 1.01  # as in the authors' code
_TINY = float(np.finfo(np.float32).tiny)


def fit_zeros(matrix: Array, bits: int, block: int = 32) -> Grid:
    """The grid of each block, with the step of its range and the zero point that suits best.

    Args:
        matrix: float32, (N, K), with K a multiple of ``block``.
        bits: 4 or 8.
        block: columns that share a scale.
    """
    rows, columns = matrix.shape
    blocks = matrix.reshape(-1, block)
    low = blocks.min(1, keepdims=True)
    scales = (blocks.max(1, keepdims=True) - low) / np.float32(2**bits - 1)
    scales[scales < _TINY] = 1
    zeros = -low / scales
    best, kept = np.full(zeros.shape, np.inf, np.float32), zeros
    shrinking = _SHRINKING
    for _ in range(_ROUNDS):
        codes = _round(blocks, scales, zeros, bits)
        errors = blocks - (codes - zeros) * scales
        sizes = np.abs(errors)
        loss = sizes.mean(1, keepdims=True)
        kept, best = np.where(loss < best, zeros, kept), np.minimum(loss, best)
        less = sizes - np.maximum(sizes, _TINY) ** np.float32(_POWER - 1) / np.float32(shrinking)
        large = np.sign(errors) * np.maximum(less, 0)
        zeros = (codes - (blocks - large) / scales).mean(1, keepdims=True, dtype=np.float32)
        shrinking *= _GROWTH
    shape = rows, columns // block
    return Grid(
        _round(blocks, scales, kept, bits).astype(np.uint8).reshape(rows, columns),
        scales.reshape(shape),
        kept.reshape(shape),
        bits,
        columns,
    )


def _round(blocks: Array, scales: Array, zeros: Array, bits: int) -> Array:
    return np.clip(np.round(blocks / scales + zeros), 0, 2**bits - 1)
