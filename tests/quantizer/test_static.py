"""Convolutions in eight bits: what onnxruntime computes, and which kernels it makes of them."""

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

from quantizer_graphs import run, save_model, value, weight
from torchferry.graph import io
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.quantizer.static import Range, find_convolutions

RECIPE = RECIPES["int8-dynamic"]


def save_block(path, rng):
    """A convolution with a bias and a Relu, a depthwise one, and the sum with what came in."""
    x = value("x", ["n", 16, "h", "w"])
    ws = [weight(name, (rng.standard_normal(shape) / 12).astype(np.float32))
          for name, shape in (("w0", (16, 16, 3, 3)), ("w1", (16, 16, 2, 2)))]  # fmt: skip
    ws[1].const_value.numpy()[3] *= 4  # each output has a scale of its own
    bias = weight("b", rng.standard_normal(16).astype(np.float32))
    first = ir.node("Conv", [x, ws[0], bias], {"pads": [1, 1, 1, 1]}, name="first")
    relu = ir.node("Relu", [first.outputs[0]])
    second = ir.node("Conv", [relu.outputs[0], ws[1]], {"pads": [0, 0, 1, 1]}, name="second")
    total = ir.node("Add", [second.outputs[0], x])
    last = ir.node("Tanh", [total.outputs[0]])
    for node, name in ((first, "f"), (relu, "r"), (second, "s"), (total, "t")):
        node.outputs[0].name = name
        node.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
    return save_model(path, [x], [first, relu, second, total, last], [*ws, bias])


def record(source, feeds):
    """Ranges by onnxruntime, of the values between too."""
    model = io.load(source)
    for node in list(model.graph)[:3]:
        model.graph.outputs.append(node.outputs[0])
    path = source.with_name("all.onnx")
    io.save(model, path)
    session = onnxruntime.InferenceSession(str(path))
    results = session.run(["f", "r", "s"], {"x": feeds})
    named = dict(zip(("f", "r", "s"), results, strict=True)) | {"x": feeds}
    return {n: Range(float(a.min()), float(a.max()), float((a**2).mean()))
            for n, a in named.items()}  # fmt: skip


def test_outputs_are_near_and_kernels_are_of_integers(tmp_path, rng):
    source = save_block(tmp_path / "m.onnx", rng)
    feeds = rng.standard_normal((4, 16, 9, 7)).astype(np.float32)
    seen = record(source, feeds)
    (first, second) = find_convolutions(io.load(source).graph)
    assert (first.values, second.values) == (("x", "r"), ("r", "s"))
    assert 0 < first.noise(seen) < second.noise(seen) < 0.01
    done = quantize_file(source, tmp_path / "q.onnx", RECIPE, seen=seen)
    assert done.bits == {"w0": 8, "w1": 8}
    assert {*io.load(done.path).graph.initializers} & {"w0", "w1", "b"} == set()
    for batch in (feeds, feeds[:1, :, :5], feeds[:2]):
        wanted, ours = run(source, x=batch), run(done.path, x=batch)
        assert np.corrcoef(wanted.ravel(), ours.ravel())[0, 1] > 0.999
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    onnxruntime.InferenceSession(str(done.path), options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in ir.load(tmp_path / "optimized.onnx").graph]
    assert kinds.count("QLinearConv") == 2
    assert not {"Conv", "Relu", "FusedConv"} & {*kinds}


@pytest.mark.parametrize("floats", [("w0",), ("w0", "w1")])
def test_what_is_named_stays_as_it_is(tmp_path, rng, floats):
    source = save_block(tmp_path / "m.onnx", rng)
    feeds = rng.standard_normal((2, 16, 6, 6)).astype(np.float32)
    seen = record(source, feeds)
    if len(floats) == 2:
        with pytest.raises(Exception, match="no product with a constant matrix"):
            quantize_file(source, tmp_path / "q.onnx", RECIPE, seen=seen, floats=floats)
        return
    done = quantize_file(source, tmp_path / "q.onnx", RECIPE, seen=seen, floats=floats)
    assert done.bits == {"w1": 8}
    assert "w0" in io.load(done.path).graph.initializers
    assert np.abs(run(done.path, x=feeds) - run(source, x=feeds)).max() < 0.1


def test_a_weight_of_two_convolutions_and_a_small_one_are_left_alone(tmp_path, rng):
    x = value("x", ["n", 16, 8, 8])
    w = weight("w", rng.standard_normal((16, 16, 3, 3)).astype(np.float32))
    small = weight("small", rng.standard_normal((4, 16, 1, 1)).astype(np.float32))
    nodes = [ir.node("Conv", [x, w])]
    nodes.append(ir.node("Conv", [nodes[0].outputs[0], w]))
    nodes.append(ir.node("Conv", [nodes[1].outputs[0], small]))
    source = save_model(tmp_path / "m.onnx", [x], nodes, [w, small])
    assert list(find_convolutions(io.load(source).graph)) == []


def test_a_normalization_behind_becomes_part_of_the_weight(tmp_path, rng):
    x = value("x", ["n", 16, 8, 8])
    w = weight("w", (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32))
    rows = [weight(f"p{i}", (rng.random(16) + 0.5).astype(np.float32)) for i in range(4)]
    conv = ir.node("Conv", [x, w], {"strides": [2, 1]})
    norm = ir.node("BatchNormalization", [conv.outputs[0], *rows], {"epsilon": 0.1})
    relu = ir.node("Relu", [norm.outputs[0]])
    last = ir.node("Neg", [relu.outputs[0]])
    relu.outputs[0].name = "r"
    source = save_model(tmp_path / "m.onnx", [x], [conv, norm, relu, last], [w, *rows])
    feeds = rng.standard_normal((4, 16, 8, 8)).astype(np.float32)
    wanted = run(source, x=feeds)
    seen = {n: Range(float(a.min()), float(a.max()), float((a**2).mean()))
            for n, a in (("x", feeds), ("r", -wanted))}  # fmt: skip
    done = quantize_file(source, tmp_path / "q.onnx", RECIPE, seen=seen)
    model = io.load(done.path)
    assert not any(node.op_type == "BatchNormalization" for node in model.graph)
    assert done.bits == {"w": 8}
    for batch in (1, 4):
        assert np.abs(run(done.path, x=feeds[:batch]) - wanted[:batch]).max() < 0.1
