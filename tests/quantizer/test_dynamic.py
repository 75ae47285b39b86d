"""Symmetric rows in eight bits."""

import numpy as np

from torchferry.quantizer.dynamic import round_rows


def test_rows_are_symmetric_and_rows_of_zeros_stay(rng):
    matrix = rng.standard_normal((3, 16)).astype(np.float32)
    matrix[1] = 0
    codes, scales = round_rows(matrix)
    assert codes.dtype == np.uint8
    codes = codes.astype(int) - 128
    assert np.abs(codes[0]).max() == 127
    assert not codes[1].any()
    assert np.abs(codes * scales[:, None] - matrix).max() <= scales.max() / 2 * 1.001
