"""Which products and look-ups are found, and how their weights are read."""

import numpy as np
import onnx_ir as ir
import pytest

from quantizer_graphs import save_language_model, save_model, value, weight
from torchferry.graph import io
from torchferry.quantizer.linears import find_linears, find_tables


def test_a_product_and_a_tied_head_are_found(tmp_path, rng):
    graph = io.load(save_language_model(tmp_path / "m.onnx", rng)).graph
    up, down, head = find_linears(graph)
    assert [one.name for one in (up, down, head)] == [
        "layers.0.up.weight", "layers.0.down.weight", "embed.weight",
    ]  # fmt: skip
    assert [one.shape for one in (up, down, head)] == [(48, 64), (64, 48), (99, 64)]
    assert up.as_stored
    assert head.as_stored  # PyTorch's parameters are (outputs, inputs)
    assert [one.weight.name for one in find_tables(graph)] == ["embed.weight"]
    whole = up.weight.const_value.numpy()
    assert (up.rows(3, 7) == whole[:, 3:7].T).all()
    assert (head.rows(0, 99) == head.weight.const_value.numpy()).all()


@pytest.mark.parametrize("swapped", [0, 1])
@pytest.mark.parametrize("alpha", [1.0, 2.0])
def test_a_gemm_is_found_unless_it_has_factors(tmp_path, rng, swapped, alpha):
    content = rng.standard_normal((40, 32)).astype(np.float32)
    w = weight("w", content if swapped else content.T.copy())
    bias = weight("b", np.zeros(40, np.float32))
    x = value("x", ["n", 32])
    node = ir.node("Gemm", [x, w, bias], {"transB": swapped, "alpha": alpha})
    graph = io.load(save_model(tmp_path / "m.onnx", [x], [node], [w, bias])).graph
    linears = list(find_linears(graph))
    assert len(linears) == (alpha == 1)
    for linear in linears:
        assert linear.shape == (40, 32)
        assert (linear.rows(0, 40) == content).all()


def test_small_weights_integers_and_computed_ones_are_left(tmp_path, rng):
    x = value("x", ["n", 32])
    small = weight("small", rng.standard_normal((32, 16)).astype(np.float32))
    node = ir.node("MatMul", [x, small])
    assert not list(
        find_linears(io.load(save_model(tmp_path / "a.onnx", [x], [node], [small])).graph)
    )
    x, y = value("x", ["n", 64]), value("w", [64, 64])
    node = ir.node("MatMul", [x, y])
    assert not list(
        find_linears(io.load(save_model(tmp_path / "b.onnx", [x, y], [node], [])).graph)
    )
