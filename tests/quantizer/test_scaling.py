"""Scaled inputs: less of an error where a few are large, and the same product in a graph."""

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import run, save_model, value, weight
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.quantizer.gptq import fit_grid
from torchferry.quantizer.scaling import fit_together


def large_in_a_few(rng, rows, columns):
    """Inputs of which every sixteenth is ten times as large."""
    sizes = np.where(np.arange(columns) % 16 == 3, 10.0, 1.0)
    return (rng.standard_normal((rows, columns)) * sizes).astype(np.float32)


def missed(matrices, grids, inputs):
    errors = [inputs @ (g.values() - m).T for m, g in zip(matrices, grids, strict=True)]
    return sum(float(np.square(error).sum()) for error in errors)


@pytest.mark.parametrize("columns", [64, 72])
def test_large_inputs_are_rounded_least(rng, columns):
    matrices = [rng.standard_normal((n, columns)).astype(np.float32) for n in (24, 8)]
    seen, unseen = large_in_a_few(rng, 500, columns), large_in_a_few(rng, 200, columns)
    moments = seen.T @ seen
    grids = fit_together(matrices, moments, 4)
    plain = [fit_grid(matrix, moments, 4) for matrix in matrices]
    assert grids[0].factors is grids[1].factors
    assert grids[0].factors.shape == (columns,)
    assert grids[0].factors[3] < grids[0].factors[4]
    assert missed(matrices, grids, unseen) < 0.9 * missed(matrices, plain, unseen)


def test_inputs_of_one_size_are_left_alone(rng):
    matrix = rng.standard_normal((24, 64)).astype(np.float32)
    (grid,) = fit_together([matrix], np.eye(64, dtype=np.float32) * 500, 4)
    assert grid.factors is None
    (nothing,) = fit_together([matrix], np.zeros((64, 64), np.float32), 4)
    assert nothing.factors is None
    assert np.isfinite(nothing.values()).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_graph_computes_the_scaled_product(tmp_path, rng, dtype):
    """Two products share the scaled operand; others, not fitted, read the plain one."""
    matrices = [rng.standard_normal((n, 64)).astype(dtype) / 8 for n in (24, 16, 20, 40)]
    seen = large_in_a_few(rng, 500, 64)
    fitted = fit_together([m.astype(np.float32) for m in matrices[:2]], seen.T @ seen, 4)
    grids = {f"w{i}": grid for i, grid in enumerate(fitted)}
    x = value("x", ["n", "m", 64], ir.DataType.from_numpy(np.dtype(dtype)))
    weights = [weight(f"w{i}", matrix.T.copy()) for i, matrix in enumerate(matrices)]
    products = [ir.node("MatMul", [x, w]) for w in weights]
    joined = ir.node("Concat", [node.outputs[0] for node in products], {"axis": -1})
    cast = ir.node("Cast", [joined.outputs[0]], {"to": ir.DataType.FLOAT})
    source = save_model(tmp_path / "m.onnx", [x], [*products, joined, cast], weights)
    path = quantize_file(source, tmp_path / "q.onnx", RECIPES["int4"], grids=grids).path
    nodes = [node.op_type for node in ir.load(path).graph]
    assert (nodes.count("Mul"), nodes.count("MatMulNBits")) == (1, 3)
    for sizes in ((1, 1), (3, 5), (0, 2)):
        inputs = large_in_a_few(rng, int(np.prod(sizes)), 64).reshape(*sizes, 64).astype(dtype)
        ours = run(path, x=inputs)[..., :40]
        exact = inputs.astype(np.float32) @ np.concatenate([g.values() for g in fitted]).T
        # What rounding the scaled operand to 8 bits costs.
        limit = 0.02 * np.abs(exact).max(initial=1)
        assert np.abs(ours - exact).max(initial=0) < limit
