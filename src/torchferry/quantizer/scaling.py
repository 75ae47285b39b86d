"""Grids for weights whose inputs are scaled, so that columns of large inputs are rounded least.

Lin et al., AWQ, https://arxiv.org/abs/2306.00978: a column is multiplied by a power of the size of
its input, and the input divided by it. Which power is best is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from torchferry.quantizer.gptq import fit_grid
from torchferry.quantizer.grid import Array, Grid, round_to_grid

__all__ = ["fit_together"]

_POWERS = (0.15, 0.3, 0.45, 0.6)
_SMALLEST = 1e-4  # of the largest input: smaller ones are scaled as if they were this large


def fit_together(
    matrices: Sequence[Array],
    moments: Array,
    bits: int,
    block: int = 32,
    *,
    scaled: bool = True,
    symmetric: bool = False,
) -> list[Grid]:
    """Codes and scales for matrices that multiply the same inputs, which they may share scaled.

    Args:
        matrices: float32, (N, K) each, with any N.
        moments: ``inputs.T @ inputs``, (K, K), of the inputs that calibration saw.
        bits: 4 or 8.
        block: columns that share a scale.
        scaled: whether inputs may be scaled.
        symmetric: see `fit_grid`.

    Returns:
        A grid for each matrix, by GPTQ; all with the same ``factors``, or all without.
    """
    fit = partial(fit_grid, bits=bits, block=block, symmetric=symmetric)
    plain = [fit(matrix, moments) for matrix in matrices]
    if not scaled:
        return plain
    nearest = [round_to_grid(matrix, bits, block) for matrix in matrices]
    least, best = _loss(matrices, nearest, moments), None
    for factors in _factors(moments):
        rounded = [_scaled(round_to_grid(x / factors, bits, block), factors) for x in matrices]
        if (loss := _loss(matrices, rounded, moments)) < least:
            least, best = loss, factors
    if best is None:
        return plain
    inner = moments * np.outer(best, best)
    fitted = [_scaled(fit(x / best, inner), best) for x in matrices]
    better = _loss(matrices, fitted, moments) < _loss(matrices, plain, moments)
    return fitted if better else plain


def _factors(moments: Array) -> list[Array]:
    """The factors to try for the inputs, float32, (K,)."""
    sizes = np.sqrt(np.maximum(moments.diagonal(), 0)).astype(np.float64)
    if not sizes.max(initial=0) > 0:
        return []
    sizes = np.maximum(sizes, _SMALLEST * sizes.max())
    middle = np.sqrt(sizes.max() * sizes.min())
    return [((middle / sizes) ** power).astype(np.float32) for power in _POWERS]


def _scaled(grid: Grid, factors: Array) -> Grid:
    return replace(grid, factors=factors)


def _loss(matrices: Sequence[Array], grids: Sequence[Grid], moments: Array) -> float:
    """The square error of the products, over the inputs that calibration saw."""
    errors = [grid.values() - matrix for matrix, grid in zip(matrices, grids, strict=True)]
    kind = moments.astype(np.float32)
    return float(sum(((error @ kind) * error).sum(dtype=np.float64) for error in errors))
