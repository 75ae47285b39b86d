"""Grids: what they hold, how near they are, and the layout that the kernel reads."""

import numpy as np
import pytest

from torchferry.quantizer.grid import Grid, padded, ranges, round_to_grid


@pytest.mark.parametrize("bits", [4, 8])
def test_every_element_is_within_half_a_step(rng, bits):
    matrix = rng.standard_normal((5, 64)).astype(np.float32)
    grid = round_to_grid(matrix, bits, 32)
    steps = np.repeat(grid.scales, 32, axis=1)
    # Rounding the zero point moves the ends of the range by half a step more.
    assert (np.abs(grid.values() - matrix) <= steps * 1.001).all()
    assert (np.abs(grid.values() - matrix) <= steps * 0.501).mean() > 0.9
    assert grid.block == 32


@pytest.mark.parametrize("bits", [4, 8])
def test_a_matrix_on_a_grid_stays_as_it_is(bits, rng):
    levels = 2**bits - 1
    codes = rng.integers(0, levels + 1, (3, 32)).astype(np.uint8)
    codes[:, :2] = 0, levels  # both ends of the range occur
    grid = Grid(codes, np.full((3, 1), 0.5, np.float32), np.full((3, 1), 5, np.uint8), bits, 32)
    again = round_to_grid(grid.values(), bits, 32)
    assert (again.values() == grid.values()).all()
    assert (again.codes == codes).all()


def test_zero_stays_zero_and_columns_that_fill_up_are_cut():
    matrix = np.zeros((2, 40), np.float32)
    matrix[0, 3], matrix[1, 39] = 7, -1e-38
    values = round_to_grid(matrix, 4, 32).values()
    assert values.shape == (2, 40)
    assert values[0, 3] == 7
    assert not values[1].any()
    assert (values[matrix == 0] == 0).all()


def test_blocks_are_filled_with_zeros():
    blocks = padded(np.ones((2, 40), np.float32), 32)
    assert blocks.shape == (2, 2, 32)
    assert blocks.sum() == 80


def test_a_range_of_one_sign_reaches_to_zero():
    scales, zeros = ranges(np.array([3.0, -4.0]), np.array([6.0, -2.0]), 4)
    assert zeros.tolist() == [0, 15]
    assert np.allclose(scales, [6 / 15, 4 / 15])


def test_four_bits_are_packed_two_to_a_byte_low_half_first():
    codes = np.arange(32, dtype=np.uint8)[None] % 16
    grid = Grid(
        np.concatenate([codes, codes], 1)[:, :32],
        np.ones((1, 1)),
        np.array([[9]], np.uint8),
        4,
        32,
    )
    packed, zeros = grid.packed()
    assert packed.shape == (1, 1, 16)
    assert packed[0, 0, 0] == 0 | 1 << 4
    assert zeros.tolist() == [[9]]
