"""Weights that lie on a grid keep it, in the graph too."""

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import run, save_model, value, weight
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.quantizer.found import find_grid

HALF = {np.dtype(np.float16): 2.0**-10}


def on_grid(rng, zeros, *, rows=24, columns=96, levels=16, block=32):
    """A matrix as checkpoints give it back: half scales times whole numbers, in float32."""
    shape = rows, columns // block
    scales = rng.uniform(0.002, 0.01, shape).astype(np.float16).astype(np.float32)
    codes = rng.integers(0, levels, (rows, columns))
    zeros = np.broadcast_to(zeros, shape).astype(np.float32)
    both = (np.repeat(array, block, 1) for array in (scales, scales * zeros))
    wide, moved = both
    return (codes * wide - moved).astype(np.float32)


@pytest.mark.parametrize("zero", [0, 8, 15])
@pytest.mark.parametrize("levels", [16, 8, 3])
def test_whole_zero_points_are_found(rng, zero, levels):
    matrix = on_grid(rng, zero if levels == 16 else min(zero, levels), levels=levels)
    grid = find_grid(matrix, 4)
    assert grid.zeros.dtype == np.uint8
    assert np.abs(grid.values() - matrix).max() < 1e-7


def test_blocks_that_share_a_scale_are_found(rng):
    """GPTQ and AWQ share a scale among 128 columns."""
    matrix = on_grid(rng, 7, columns=256, block=128)
    assert np.abs(find_grid(matrix, 4).values() - matrix).max() < 1e-7


@pytest.mark.parametrize("low", [-3.37, 2.21, -40.7])
def test_zero_points_may_be_any_number(rng, low):
    """GGUF's Q4_1 stores the least element of a block, which may be anywhere."""
    matrix = on_grid(rng, -low)
    grid = find_grid(matrix, 4)
    assert grid.zeros.dtype == np.float32
    whole, rests = grid.divided()
    assert whole.zeros.dtype == np.uint8
    both = whole.values() + np.repeat(rests, 32, 1)
    assert np.abs(both - matrix).max() < 1e-6


def test_eight_bits_are_those_of_q8_0(rng):
    codes = rng.integers(-127, 128, (16, 64)).astype(np.float32)
    codes[:, ::32] = -127
    scales = rng.uniform(0.001, 0.01, (16, 2)).astype(np.float16).astype(np.float32)
    matrix = codes * np.repeat(scales, 32, 1)
    assert np.abs(find_grid(matrix, 8).values() - matrix).max() < 1e-7
    assert find_grid(matrix, 4) is None


@pytest.mark.parametrize("change", ["one element", "drawn", "no whole blocks", "small blocks"])
def test_others_lie_on_none(rng, change):
    matrix = on_grid(rng, 8)
    if change == "one element":
        matrix[-1, -1] *= 1.001
    elif change == "drawn":
        matrix = rng.standard_normal(matrix.shape).astype(np.float32)
    elif change == "no whole blocks":
        matrix = matrix[:, :-1]
    assert find_grid(matrix, 4, 8 if change == "small blocks" else 32) is None
    assert find_grid(rng.standard_normal((16, 64)).astype(np.float32), 8) is None


def test_zeros_and_constants_lie_on_one():
    for number in (0.0, 0.37):
        matrix = np.full((40, 64), number, np.float32)
        assert np.abs(find_grid(matrix, 4).values() - matrix).max() < 1e-7


def quantized(folder, matrices, rank=2):
    """A graph whose products have one operand, and a head; it in float32 and in 4 bits."""
    columns = matrices[0].shape[1]
    head = np.random.default_rng(1).standard_normal((40, columns)).astype(matrices[0].dtype)
    x = value("x", ["n", "m", columns][-rank:], ir.DataType.from_numpy(head.dtype))
    weights = [weight(f"w{i}", matrix.T.copy()) for i, matrix in enumerate([*matrices, head])]
    products = [ir.node("MatMul", [x, w]) for w in weights]
    joined = ir.node("Concat", [node.outputs[0] for node in products], {"axis": -1})
    cast = ir.node("Cast", [joined.outputs[0]], {"to": ir.DataType.FLOAT})
    source = save_model(folder / "m.onnx", [x], [*products, joined, cast], weights)
    return source, quantize_file(source, folder / "q.onnx", RECIPES["int4"]).path


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("zero", [8, 3.37, -40.7])
@pytest.mark.parametrize("rank", [2, 3])
def test_a_quantized_graph_computes_what_it_did(tmp_path, rng, zero, rank, dtype):
    matrix = on_grid(rng, zero, rows=64).astype(dtype)
    source, path = quantized(tmp_path, [matrix], rank)
    for sizes in ((1, 1), (3, 5), (0, 2)):
        inputs = rng.standard_normal((*sizes[: rank - 1], 96)).astype(dtype)
        ours, wanted = run(path, x=inputs)[..., :64], run(source, x=inputs)[..., :64]
        assert ours.shape == wanted.shape
        # What rounding the operand to 8 bits costs; rounding the weight anew costs far more.
        limit = float(np.abs(inputs).max(initial=0) / 128 * np.linalg.norm(matrix, axis=1).max())
        assert np.abs(ours - wanted).max(initial=0) <= limit
    nodes = {node.op_type for node in ir.load(path).graph}
    assert ("ReduceSum" in nodes) == (zero != 8)


def test_products_of_one_operand_keep_theirs(tmp_path, rng):
    """One with whole zero points, one with others, one that was drawn, as one matrix."""
    drawn = rng.standard_normal((24, 96)).astype(np.float32) / 30
    source, path = quantized(tmp_path, [on_grid(rng, 8), on_grid(rng, 3.37), drawn])
    inputs = rng.standard_normal((3, 96)).astype(np.float32)
    missed = np.abs(run(path, x=inputs) - run(source, x=inputs)).max(0)
    assert missed[:48].max() < 0.01
    assert 0.01 < missed[48:72].max() < 0.1


@pytest.mark.parametrize("levels", [3, 16, 256])
@pytest.mark.parametrize("block", [32, 128])
def test_eight_bits_hold_grids_of_as_many_and_fewer(rng, levels, block):
    """GPTQ in 8 bits, or in 4 and stored in 8: whole zero points that lie anywhere."""
    codes = rng.normal(levels / 2, levels / 6, (24, 256)).round().clip(0, levels - 1)
    scales = rng.uniform(0.001, 0.01, (24, 256 // block)).astype(np.float16).astype(np.float32)
    zeros = rng.integers(0, levels, scales.shape)
    both = (np.repeat(array, block, 1) for array in (scales, zeros))
    wide, moved = both
    matrix = ((codes - moved) * wide).astype(np.float32)
    grid = find_grid(matrix, 8)
    assert np.abs(grid.values() - matrix).max() <= 2**-20 * np.abs(matrix).max()


def test_the_largest_number_of_a_block_is_no_code_too_large():
    """Elements that are eighths of the largest lie between -128 and 128 steps of it."""
    matrix = np.tile(np.arange(-7, 9, dtype=np.float32) / 64, (16, 4))
    assert np.abs(find_grid(matrix, 8).values() - matrix).max() < 1e-7
