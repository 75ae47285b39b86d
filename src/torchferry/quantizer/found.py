"""Grids that weights lie on already, as those of a checkpoint that was quantized before.

GGUF, GPTQ, AWQ and torchao store codes and scales, and give float weights back. Where every block
of a weight is ``scale * (code - zero)`` to its last bits, rounding it anew would lose accuracy for
nothing: the codes are found again instead. Chance does not make such blocks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from torchferry.quantizer.grid import Array, Grid
from torchferry.quantizer.linears import Linear

__all__ = ["find_grid", "lies_on_grid"]

_SAMPLE = 8  # rows that are looked at first
_FEWEST = 16  # elements of a block: fewer may lie on a grid by chance
_CHUNK = 2**23  # elements that are looked at together


def find_grid(
    matrix: Array, bits: int, block: int = 32, rounding: float = 2.0**-21
) -> Grid | None:
    """The grid that every element of a matrix lies on, or ``None``.

    Zero points are whole numbers if they can be. Those of 4 bits may be any number (GGUF's Q4_1
    stores the least element of a block); they are float32 then. Grids of fewer bits are found
    among those of more.

    Args:
        matrix: (N, K), float32.
        bits: 4 or 8.
        block: columns that share a scale.
        rounding: by how much of the largest element of its block each may miss the grid.
    """
    if matrix.shape[1] % block or block < _FEWEST:
        return None
    for whole in (True, False) if bits == 4 else (True,):
        if _fit(matrix[:_SAMPLE], bits, block, rounding, whole=whole) is not None:
            grid = _fit(matrix, bits, block, rounding, whole=whole)
            if grid is not None:
                return grid
    return None


def lies_on_grid(linear: Linear, bits: int, block: int = 32) -> bool:
    """Whether `find_grid` finds one for a weight, which is read a few rows at a time."""
    rows, columns = linear.shape
    step = max(_SAMPLE, _CHUNK // columns)
    return all(
        find_grid(linear.rows(start, start + step), bits, block, linear.rounding) is not None
        for start in range(0, rows, step)
    )


def _fit(matrix: Array, bits: int, block: int, rounding: float, *, whole: bool) -> Grid | None:
    """The grid of a matrix whose zero points are whole numbers, or any."""
    rows, columns = matrix.shape
    blocks = matrix.reshape(-1, block)
    low, high = blocks.min(1), blocks.max(1)
    slack = np.float32(rounding) * np.maximum(-low, high)
    scales, base = np.ones_like(low), np.zeros_like(low)
    left = np.arange(len(blocks))
    gaps = _gaps(blocks, 2 * slack) if bits == 8 else slack
    for step, start in _steps(low, high, gaps, bits, whole):
        part, size, begin = blocks[left], step[left], start[left]
        missed = (part - begin[:, None]) / size[:, None]
        missed -= np.round(missed)
        fits = np.abs(missed).max(1) * size <= slack[left]
        fits &= (high[left] - begin) / size < 2**bits - 0.5  # of a step that is a fraction of one
        scales[left[fits]], base[left[fits]] = size[fits], begin[fits]
        left = left[~fits]
        if not len(left):
            break
    else:
        return None
    zeros = -base / scales
    codes = np.round((blocks - base[:, None]) / scales[:, None]).astype(np.uint8)
    shape = rows, columns // block
    return Grid(
        codes.reshape(rows, columns),
        scales.reshape(shape),
        (np.round(zeros).astype(np.uint8) if whole else zeros).reshape(shape),
        bits,
        columns,
    )


def _steps(
    low: Array, high: Array, gaps: Array, bits: int, whole: bool
) -> Iterator[tuple[Array, Array]]:
    """Steps that a grid may have, and the element whose code is 0; the likeliest first."""
    if bits == 8:
        for levels in (127, 128):
            step = _positive(np.maximum(-low, high) / np.float32(levels))
            yield step, -128 * step
    if whole:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    if bits == 8:  # of so many levels that some two elements of a block are a step or two apart
        for count in (1, 2, 3):
            number = np.maximum(np.round((high - low) / gaps * np.float32(count)), 1)
            step = np.where(number < 256, _positive((high - low) / number), np.float32(np.nan))
            yield step, np.round(low / step) * step
        return
    for levels in range(15, 0, -1):
        step = _positive((high - low) / np.float32(levels))
        yield step, np.round(low / step) * step if whole else low


def _gaps(blocks: Array, slack: Array) -> Array:
    """The least distance of two elements of each block that are not one number."""
    gaps = np.diff(np.sort(blocks, axis=1), axis=1)
    gaps[gaps <= slack[:, None]] = np.inf
    return np.asarray(gaps.min(1))


def _positive(step: Array) -> Array:
    return np.where(step < np.finfo(np.float32).tiny, np.float32(1), step)
