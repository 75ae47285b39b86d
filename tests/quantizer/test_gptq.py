"""Fitted grids make less of an error on the inputs that they were fitted to, and on like ones."""

import numpy as np
import pytest

from torchferry.quantizer.gptq import fit_grid
from torchferry.quantizer.grid import round_to_grid


def correlated(rng, rows, columns):
    """Inputs that a few hidden values decide, as those of a language model."""
    mixing = np.random.default_rng(7).standard_normal((8, columns))
    return rng.standard_normal((rows, 8)) @ mixing + 0.1 * rng.standard_normal((rows, columns))


@pytest.mark.parametrize("columns", [64, 72])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_error_on_like_inputs_is_smaller_than_that_of_the_nearest_grid(
    rng, columns, symmetric
):
    matrix = rng.standard_normal((24, columns)).astype(np.float32)
    seen, unseen = correlated(rng, 500, columns), correlated(rng, 200, columns)
    fitted = fit_grid(matrix, seen.T @ seen, 4, symmetric=symmetric)
    assert (fitted.zeros == 8).all() == symmetric
    nearest = round_to_grid(matrix, 4)

    def error(grid):
        return np.abs(unseen @ (grid.values() - matrix).T).mean()

    assert fitted.values().shape == matrix.shape
    assert error(fitted) < 0.6 * error(nearest)
    assert fitted.packed()[0].shape == nearest.packed()[0].shape


def test_inputs_that_were_never_seen_do_no_harm(rng):
    matrix = rng.standard_normal((8, 32)).astype(np.float32)
    inputs = rng.standard_normal((100, 32))
    inputs[:, 5] = 0
    grid = fit_grid(matrix, inputs.T @ inputs, 4)
    assert np.isfinite(grid.values()).all()
    assert not grid.values()[:, 5].any()
    nothing = fit_grid(matrix, np.zeros((32, 32)), 4)
    assert np.isfinite(nothing.values()).all()


def test_a_matrix_on_its_grid_is_kept(rng):
    grid = round_to_grid(rng.standard_normal((8, 64)).astype(np.float32), 4)
    inputs = rng.standard_normal((300, 64))
    again = fit_grid(grid.values(), inputs.T @ inputs, 4)
    assert np.abs(again.values() - grid.values()).max() < 1e-5


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_number_of_a_block_may_be_of_either_sign(rng, sign):
    """Sixteen codes have eight steps below the middle and seven above."""
    matrix = (sign * np.arange(-8, 8, dtype=np.float32).repeat(2))[None] / 3
    inputs = rng.standard_normal((300, 32))
    grid = fit_grid(matrix, inputs.T @ inputs, 4, symmetric=True)
    assert np.abs(grid.values() - matrix).max() < 1e-5


def test_blocks_of_zeros_stay_zeros(rng):
    inputs = rng.standard_normal((300, 64))
    grid = fit_grid(np.zeros((4, 64), np.float32), inputs.T @ inputs, 4, symmetric=True)
    assert not grid.values().any()
