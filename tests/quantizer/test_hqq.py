"""Zero points that suit the weights: a smaller error of most, and the same product in a graph."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import run, save_model, value, weight
from torchferry.quantizer import RECIPES, quantize_file, round_to_grid
from torchferry.quantizer.hqq import fit_zeros


def error(grid, matrix):
    return float((np.abs(grid.values() - matrix) ** 0.7).sum())


@pytest.mark.parametrize("shape", [(24, 64), (1, 32)])
def test_most_errors_become_smaller(rng, shape):
    matrix = (rng.standard_normal(shape) + 0.3).astype(np.float32)
    grid = fit_zeros(matrix, 4)
    assert (grid.values().shape, grid.zeros.dtype) == (shape, np.float32)
    assert grid.codes.max(initial=0) <= 15
    if len(matrix) > 1:
        assert error(grid, matrix) < 0.95 * error(round_to_grid(matrix, 4), matrix)
        again = fit_zeros(grid.values(), 4)
        assert np.abs(again.values() - grid.values()).max() < 0.02 * np.abs(matrix).max()


def test_constants_and_zeros_are_kept():
    for number in (0.0, 0.37, -2.5):
        matrix = np.full((4, 64), number, np.float32)
        assert np.abs(fit_zeros(matrix, 4).values() - matrix).max() < 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_graph_computes_it(tmp_path, rng, dtype):
    """Blocks that are not full, and weights of 8 bits, get the nearest grid."""
    whole, odd = (rng.standard_normal((40, n)).astype(dtype) / 8 for n in (64, 72))
    x = value("x", ["n", "m", 64], ir.DataType.from_numpy(np.dtype(dtype)))
    y = value("z", ["n", "m", 72], x.dtype)
    weights = [weight(f"w{i}", m.T.copy()) for i, m in enumerate((whole, odd, whole))]
    inputs = (x, y, x)
    products = [ir.node("MatMul", [given, w]) for given, w in zip(inputs, weights, strict=True)]
    joined = ir.node("Concat", [node.outputs[0] for node in products], {"axis": -1})
    cast = ir.node("Cast", [joined.outputs[0]], {"to": ir.DataType.FLOAT})
    source = save_model(tmp_path / "m.onnx", [x, y], [*products, joined, cast], weights)
    recipe = replace(RECIPES["int4-hqq"], accuracy=0)
    done = quantize_file(source, tmp_path / "q.onnx", recipe)
    assert done.bits == {"w0": 4, "w1": 4, "w2": 8}
    first = fit_zeros(whole.astype(np.float32), 4).values()
    second = round_to_grid(odd.astype(np.float32), 4).values()
    for sizes in ((1, 1), (3, 5), (0, 2)):
        a, b = (rng.standard_normal((*sizes, n)).astype(dtype) for n in (64, 72))
        ours = run(done.path, x=a, z=b)[..., :80]
        exact = [a.astype(np.float32) @ first.T, b.astype(np.float32) @ second.T]
        exact = np.concatenate(exact, -1)
        assert np.abs(ours - exact).max(initial=0) < (1e-4 if dtype == np.float32 else 0.02)
