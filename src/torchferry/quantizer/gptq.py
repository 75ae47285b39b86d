"""Grids whose rounding errors make up for one another on the inputs that a weight sees.

Frantar et al., GPTQ, https://arxiv.org/abs/2210.17323: columns are rounded one after the other,
and the error of each is carried to those that are not rounded yet, by the inverse of the inputs'
second moments.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchferry.quantizer.grid import Array, Grid, padded, ranges

__all__ = ["fit_grid"]

_DAMPING = 0.01  # of the mean second moment, so that the matrix can be inverted
_SHRINKS = np.linspace(1.0, 0.525, 20)  # ranges that are tried: outliers are worth less than most
_CENTRED = np.array([8 / 7, 15 / 14, *np.linspace(1.0, 0.7, 7)])  # the same, of both signs


def fit_grid(
    matrix: Array, moments: Array, bits: int, block: int = 32, *, symmetric: bool = False
) -> Grid:
    """Codes and scales for a matrix that multiplies inputs with known second moments.

    Args:
        matrix: float32, (N, K).
        moments: ``inputs.T @ inputs``, (K, K), of the inputs that calibration saw.
        bits: 4 or 8.
        block: columns that share a scale.
        symmetric: whether zero points are all the middle code, so that none are stored.
    """
    rows, columns = matrix.shape
    blocks = padded(matrix, block)
    left = np.ascontiguousarray(blocks.reshape(rows, -1).T)  # (K, N): a column lies together
    weight, carry = _prepare(moments, len(left))
    left[weight == 0] = 0  # inputs that calibration never saw
    codes = np.empty(left.shape, np.uint8)
    scales = np.empty((len(left) // block, rows), np.float32)
    zeros = np.empty_like(scales)
    for number, start in enumerate(range(0, len(left), block)):
        stop = start + block
        part = left[start:stop]
        scale, zero = _best_range(part, weight[start:stop], bits, symmetric=symmetric)
        scales[number], zeros[number] = scale, zero
        errors = np.empty_like(part)
        for place in range(block):
            column, row = start + place, carry[start + place]
            code = np.clip(np.round(part[place] / scale) + zero, 0, 2**bits - 1)
            codes[column] = code
            errors[place] = (part[place] - (code - zero) * scale) / row[column]
            part[place + 1 :] -= row[column + 1 : stop, None] * errors[place]
        left[stop:] -= carry[start:stop, stop:].T @ errors
    return Grid(
        np.ascontiguousarray(codes.T),
        np.ascontiguousarray(scales.T),
        np.ascontiguousarray(zeros.T).astype(np.uint8),
        bits,
        columns,
    )


def _prepare(moments: Array, size: int) -> tuple[Array, Array]:
    """The weight of each column's error, and the factors by which errors are carried on."""
    full = np.zeros((size, size))
    full[: len(moments), : len(moments)] = moments
    weight = full.diagonal().copy()
    mean = float(weight.mean()) or 1.0
    full[np.diag_indices(size)] = np.where(weight == 0, mean, weight) + _DAMPING * mean
    inverse = np.linalg.inv(full)
    upper = np.linalg.cholesky((inverse + inverse.T) / 2).T
    return weight.astype(np.float32), upper.astype(np.float32)


def _best_range(part: Array, weight: Array, bits: int, *, symmetric: bool) -> tuple[Array, Array]:
    """Scale and zero point of a block (block, N) with the least weighted error, by trial."""
    low, high = part.min(0), part.max(0)
    best, scale, zero = np.full(len(low), np.inf), low, low
    tried = _centred(low, high, bits) if symmetric else _spanned(low, high, bits)
    for scales, zeros in tried:
        codes = np.clip(np.round(part / scales) + zeros, 0, 2**bits - 1)
        error = weight @ ((codes - zeros) * scales - part) ** 2
        better = error < best
        best, scale = np.where(better, error, best), np.where(better, scales, scale)
        zero = np.where(better, zeros, zero)
    return scale.astype(np.float32), zero.astype(np.float32)


def _spanned(low: Array, high: Array, bits: int) -> Iterator[tuple[Array, Array]]:
    for shrink in _SHRINKS.astype(np.float32):
        yield ranges(low * shrink, high * shrink, bits)


def _centred(low: Array, high: Array, bits: int) -> Iterator[tuple[Array, Array]]:
    """The middle code is 0; a scale may be negative, as codes have one step more below than above.

    The first turns the largest value into the lowest code, the last into more than the highest.
    """
    middle = np.float32(2 ** (bits - 1))
    steps = np.where(high > -low, high, low) / -middle
    steps = np.where(np.abs(steps) < np.finfo(np.float32).tiny, np.float32(1), steps)
    zeros = np.full_like(steps, middle)
    for shrink in _CENTRED.astype(np.float32):
        yield steps * shrink, zeros
        yield -steps * shrink, zeros
