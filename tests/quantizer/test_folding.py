"""Factors of inputs move into norms and other weights, and the graph computes the same."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import run, save_model, value, weight
from torchferry.graph import io
from torchferry.quantizer import RECIPES, quantize_file, round_to_grid
from torchferry.quantizer.folding import find_free
from torchferry.quantizer.linears import find_linears

SIZE, INNER = 64, 96
EXACT = replace(RECIPES["int4"], accuracy=0)  # so that only the grids round


def save_block(path, rng, *, norm="RMSNormalization", extra=None, bias=False):
    """A norm, two products of it, one times the activation of the other, a product, a head."""
    x = value("x", ["batch", SIZE])
    wide = (SIZE, INNER)
    shapes = {"gate": wide, "up": wide, "down": (INNER, SIZE), "head": (SIZE, 40)}
    ws = {n: weight(n, rng.standard_normal(s).astype(np.float32)) for n, s in shapes.items()}
    row = weight("row", rng.uniform(0.5, 2, SIZE).astype(np.float32))
    more = [weight("shift", rng.standard_normal(SIZE).astype(np.float32))]
    more = more if norm == "LayerNormalization" else []
    scaled = ir.node(norm, [x, row, *more])
    y = scaled.outputs[0]
    y.shape, y.type = ir.Shape(["batch", SIZE]), x.type
    gate = ir.node("MatMul", [y, ws["gate"]])
    if bias:
        more.append(weight("bias", rng.standard_normal(INNER).astype(np.float32)))
        up = ir.node("Gemm", [y, ws["up"], more[-1]])
    else:
        up = ir.node("MatMul", [y, ws["up"]])
    act = ir.node("Sigmoid", [gate.outputs[0]])
    product = ir.node("Mul", [act.outputs[0], up.outputs[0]])
    down = ir.node("MatMul", [product.outputs[0], ws["down"]])
    total = ir.node("Add", [down.outputs[0], y if extra == "residual" else x])
    head = ir.node("MatMul", [total.outputs[0], ws["head"]])
    nodes = [scaled, gate, up, act, product, down, total, head]
    return save_model(path, [x], nodes, [*ws.values(), row, *more], opset=23)


def scaled_grids(linears, rng, wide=()):
    """Grids with factors, the same for the products of one operand."""
    factors = {n: rng.uniform(0.2, 5, n).astype(np.float32) for n in (SIZE, INNER)}
    grids = {}
    for one in linears[:-1]:
        if one.name not in wide:
            shared = factors[one.shape[1]]
            matrix = one.rows(0, one.shape[0]) / shared
            grids[one.name] = replace(round_to_grid(matrix, 4), factors=shared)
    return grids


def reference(source, grids, done, path):
    """The float graph with the values of the grids."""
    model = io.load(source)
    for one in find_linears(model.graph):
        matrix = one.rows(0, one.shape[0])
        grid = grids.get(one.name) or round_to_grid(matrix, done.bits[one.name])
        known = [grids[n].factors for n in ("gate", "up") if n in grids]
        if one.name in ("gate", "up") and done.bits[one.name] == 8 and known:
            divided = round_to_grid(matrix / known[0], 8)
            grid = replace(divided, factors=known[0])
        one.weight.const_value = ir.tensor(np.ascontiguousarray(grid.values().T))
    io.save(model, path)
    return path


def multiplications(path):
    return sum(node.op_type == "Mul" for node in io.load(path).graph)


@pytest.mark.parametrize("norm", ["RMSNormalization", "LayerNormalization"])
@pytest.mark.parametrize("wide", [(), ("up",), ("gate", "down")])
def test_factors_cost_no_node(tmp_path, rng, norm, wide):
    source = save_block(tmp_path / "m.onnx", rng, norm=norm)
    linears = list(find_linears(io.load(source).graph))
    assert find_free(linears) == {"gate", "up", "down"}
    grids = scaled_grids(linears, rng, wide)
    done = quantize_file(source, tmp_path / "q.onnx", EXACT, wide=wide, grids=grids)
    assert multiplications(done.path) == 1
    same = reference(source, grids, done, tmp_path / "same.onnx")
    for rows in (1, 3):
        x = rng.standard_normal((rows, SIZE)).astype(np.float32)
        wanted, ours = run(same, x=x), run(done.path, x=x)
        assert np.abs(ours - wanted).max() < 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("made", "kept", "free"),
    [({"extra": "residual"}, (), {"down"}), ({"bias": True}, (), {"gate", "up"}),
     ({}, ("up",), {"down"}), ({}, ("down",), {"gate", "up"})],
)  # fmt: skip
def test_where_factors_would_change_something_else_they_take_a_node(
    tmp_path, rng, made, kept, free
):
    source = save_block(tmp_path / "m.onnx", rng, **made)
    linears = list(find_linears(io.load(source).graph))
    assert find_free(linears, kept) == free
    grids = scaled_grids(linears, rng, wide=kept)
    done = quantize_file(source, tmp_path / "q.onnx", EXACT, grids=grids)
    factors = len({id(g.factors) for n, g in grids.items() if n not in free})
    assert multiplications(done.path) == 1 + factors
    same = reference(source, grids, done, tmp_path / "same.onnx")
    for rows in (1, 3):
        x = rng.standard_normal((rows, SIZE)).astype(np.float32)
        wanted, ours = run(same, x=x), run(done.path, x=x)
        assert np.abs(ours - wanted).max() < 1e-4 * np.abs(wanted).max()


def test_factors_that_half_precision_cannot_hold_take_a_node(tmp_path, rng):
    x, row = value("x", ["n", SIZE], ir.DataType.FLOAT16), np.full(SIZE, 1000, np.float16)
    ws = [weight(n, rng.standard_normal((SIZE, SIZE)).astype(np.float16)) for n in ("a", "b")]
    rows = weight("row", row)
    norm = ir.node("RMSNormalization", [x, rows])
    norm.outputs[0].shape, norm.outputs[0].type = x.shape, x.type
    first = ir.node("MatMul", [norm.outputs[0], ws[0]])
    last = ir.node("MatMul", [first.outputs[0], ws[1]])
    cast = ir.node("Cast", [last.outputs[0]], {"to": ir.DataType.FLOAT})
    source = save_model(tmp_path / "m.onnx", [x], [norm, first, last, cast], [*ws, rows], opset=23)
    linears = list(find_linears(io.load(source).graph))
    for factor, nodes in ((100.0, 1), (2.0, 0)):
        matrix = linears[0].rows(0, SIZE) / np.float32(factor)
        grid = replace(round_to_grid(matrix, 4), factors=np.full(SIZE, factor, np.float32))
        path = tmp_path / f"{nodes}.onnx"
        done = quantize_file(source, path, RECIPES["int4"], grids={"a": grid})
        assert multiplications(done.path) == nodes
