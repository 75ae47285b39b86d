"""Products in MatMulNBits and look-ups in standard operators."""

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import run, save_language_model, save_model, value, weight
from torchferry.graph import io
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.quantizer.blocks import look_up, store_rows
from torchferry.quantizer.gptq import fit_grid
from torchferry.quantizer.grid import round_to_grid
from torchferry.quantizer.linears import find_linears, find_tables
from torchferry.quantizer.scratch import Scratch


def test_a_bias_is_added_behind_the_kernel(tmp_path, rng):
    w = weight("w", rng.standard_normal((40, 32)).astype(np.float32))
    bias = weight("b", np.arange(40, dtype=np.float32))
    x = value("x", ["n", 32])
    node = ir.node("Gemm", [x, w, bias], {"transB": 1})
    source = save_model(tmp_path / "m.onnx", [x], [node], [w, bias])
    for name in ("int8", "int8-dynamic"):
        done = quantize_file(source, tmp_path / f"{name}.onnx", RECIPES[name])
        for rows in (1, 3):
            inputs = rng.standard_normal((rows, 32)).astype(np.float32)
            assert np.abs(run(done.path, x=inputs) - run(source, x=inputs)).max() < 0.3


def test_rows_are_looked_up_by_operators_that_webassembly_has(tmp_path, rng):
    """onnxruntime-web has no kernel for GatherBlockQuantized."""
    model = io.load(save_language_model(tmp_path / "m.onnx", rng, columns=72))
    (table,) = find_tables(model.graph)
    with Scratch(tmp_path / "scratch") as scratch:
        for bits, row in ((8, 96 + 3 * 4 + 3), (4, 48 + 3 * 4 + 2)):  # of three blocks of 32
            stored = store_rows(table, RECIPES["int4"], bits, scratch)
            nodes = look_up(table, stored)
            assert stored.bits == bits
            assert stored.nbytes == 99 * row  # codes, scales, zeros
            assert {node.domain for node in nodes} == {""}
            assert nodes[-1].op_type == "Slice"  # 72 columns are no whole number of blocks


@pytest.mark.parametrize("ids", [np.array(3), np.array([4, 5]), np.zeros((0, 2), np.int64)])
def test_ids_have_any_number_of_dimensions(tmp_path, rng, ids):
    table = weight("t", rng.standard_normal((99, 64)).astype(np.float32))
    w = weight("w", rng.standard_normal((64, 64)).astype(np.float32))
    places = value("ids", [*ids.shape], ir.DataType.INT64)
    row = ir.node("Gather", [table, places], {"axis": 0})
    product = ir.node("MatMul", [row.outputs[0], w])
    source = save_model(tmp_path / "m.onnx", [places], [row, product], [table, w])
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES["int8"])
    assert set(done.bits.values()) == {8}
    wanted, ours = run(source, ids=ids), run(done.path, ids=ids)
    assert ours.shape == wanted.shape
    assert np.abs(ours - wanted).max(initial=0) < 0.6


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("columns", [64, 72])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_tied_head_in_four_bits_is_looked_up_by_its_grid(
    tmp_path, rng, symmetric, columns, dtype
):
    source = save_language_model(tmp_path / "m.onnx", rng, columns=columns, dtype=dtype)
    linears = list(find_linears(io.load(source).graph))
    head = linears[-1]
    matrix, moments = head.rows(0, head.shape[0]), np.eye(columns)
    grid = fit_grid(matrix, moments, 4, symmetric=symmetric)
    done = quantize_file(source, tmp_path / "q.onnx", RECIPES["int4"], grids={head.name: grid})
    assert set(done.bits.values()) == {4}
    names = io.load(done.path).graph.initializers
    assert ("embed.weight.zeros" in names) != symmetric
    up, down = (
        round_to_grid(one.rows(0, one.shape[0]), 4).values().astype(np.float64)
        for one in linears[:2]
    )
    rows = grid.values().astype(np.float64)
    for ids in (np.array([[5]]), np.array([[1, 2, 3], [98, 0, 7]])):
        wanted = rows[ids] @ up.T @ down.T @ rows.T
        assert np.abs(run(done.path, ids=ids) - wanted).max() < 0.02 * np.abs(wanted).max()
