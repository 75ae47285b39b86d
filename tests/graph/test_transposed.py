from __future__ import annotations

import io

import ml_dtypes
import numpy as np
import pytest

from torchferry.graph import transposed
from torchferry.graph.transposed import is_transposed, write_transposed

DTYPES = [np.float32, np.float64, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33, 50), (2, 700), (700, 2), (64, 64), (17, 2)])
@pytest.mark.parametrize("block", [1, 5000, 2**23])
def test_the_bytes_are_those_of_the_rows(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dtype: type, block: int
) -> None:
    monkeypatch.setattr(transposed, "_BLOCK", block)
    array = np.random.default_rng(0).normal(size=shape).astype(dtype).T
    assert is_transposed(array)
    stream = io.BytesIO()
    write_transposed(array, stream)
    assert stream.getvalue() == array.tobytes()


@pytest.mark.parametrize(
    "array",
    [np.ones((3, 4)), np.ones(3), np.ones((3, 4, 5)).T, np.ones((6, 8))[::2].T,
     np.ones((3, 4), np.complex128).T, np.ones((0, 4)).T],
    ids=["rows", "vector", "three axes", "gaps", "16 bytes", "empty"],
)  # fmt: skip
def test_anything_else_is_left_to_others(array: np.ndarray) -> None:
    assert not is_transposed(array)
