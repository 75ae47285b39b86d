"""A matrix whose rows lie on grids of few bits, one scale and zero point for each block."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

__all__ = ["Array", "Grid", "padded", "ranges", "round_to_grid"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Grid:
    """A matrix of N rows and K columns: ``(code - zero) * scale * factor``.

    Attributes:
        codes: uint8, (N, blocks * block): the columns past K are padding and stand for 0.
        scales: float32, (N, blocks).
        zeros: (N, blocks), uint8; float32 where they are no whole numbers.
        bits: 4 or 8.
        columns: K.
        factors: float32, (K,): what inputs are multiplied by first; ``None`` for nothing.
    """

    codes: Array
    scales: Array
    zeros: Array
    bits: int
    columns: int
    factors: Array | None = None

    @property
    def block(self) -> int:
        """Columns that share a scale."""
        return int(self.codes.shape[1] // self.scales.shape[1])

    def values(self) -> Array:
        """The matrix, float32, (N, K)."""
        rows, blocks = self.scales.shape
        codes = self.codes.reshape(rows, blocks, -1).astype(np.float32)
        values = (codes - self.zeros[..., None]) * self.scales[..., None]
        matrix = values.reshape(rows, -1)[:, : self.columns]
        return np.ascontiguousarray(matrix if self.factors is None else matrix * self.factors)

    def divided(self) -> tuple[Grid, Array]:
        """A grid with whole zero points, and what all elements of a block have beside it.

        Returns:
            The grid; float32, (N, blocks), all 0 if it is this one.
        """
        whole = np.clip(np.round(self.zeros), 0, 2**self.bits - 1).astype(np.uint8)
        rests = (whole - self.zeros.astype(np.float32)) * self.scales
        return replace(self, zeros=whole), rests

    def packed(self) -> tuple[Array, Array]:
        """Codes (N, blocks, block * bits / 8) and zero points as MatMulNBits reads them.

        See https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md: the code
        of the even column stands in the low half of a byte.
        """
        rows, blocks = self.scales.shape
        if self.bits == 8:
            return self.codes.reshape(rows, blocks, -1), self.zeros
        codes = _halves(self.codes).reshape(rows, blocks, -1)
        zeros = np.pad(self.zeros, ((0, 0), (0, blocks % 2)))
        return codes, _halves(zeros)


def _halves(codes: Array) -> Array:
    packed: Array = codes[:, 0::2] | codes[:, 1::2] << 4
    return packed


def padded(matrix: Array, block: int) -> Array:
    """A float32 matrix (N, K) as (N, blocks, block), filled with zeros."""
    rows, columns = matrix.shape
    matrix = np.pad(matrix, ((0, 0), (0, -columns % block)))
    return matrix.reshape(rows, -1, block)


def ranges(low: Array, high: Array, bits: int) -> tuple[Array, Array]:
    """Scales and zero points (as floats) of grids that hold ``low``, 0 and ``high``."""
    low, high = np.minimum(low, 0), np.maximum(high, 0)
    levels = 2**bits - 1
    scales = ((high - low) / np.float32(levels)).astype(np.float32)
    # Of a block of zeros, or of numbers so small that the quotient is none.
    scales[scales < np.finfo(np.float32).tiny] = 1
    return scales, np.clip(np.round(-low / scales), 0, levels)


def round_to_grid(matrix: Array, bits: int, block: int = 32) -> Grid:
    """The nearest point of a grid for every element; each grid spans its block and 0.

    Args:
        matrix: (N, K), of any floating dtype that numpy can cast.
        bits: 4 or 8.
        block: columns that share a scale.
    """
    blocks = padded(np.asarray(matrix, np.float32), block)
    scales, zeros = ranges(blocks.min(-1), blocks.max(-1), bits)
    codes = np.round(blocks / scales[..., None]) + zeros[..., None]
    codes = np.clip(codes, 0, 2**bits - 1).astype(np.uint8)
    rows = len(matrix)
    return Grid(codes.reshape(rows, -1), scales, zeros.astype(np.uint8), bits, matrix.shape[1])
