"""Ranges of recorded inputs, and convolutions that cost too much."""

import numpy as np
import onnx_ir as ir
import pytest
import torch

from quantizer_graphs import run, save_model, value, weight
from torchferry.deployer.fit import ranges
from torchferry.deployer.fit.ranges import quantize_image_model, record_ranges
from torchferry.errors import UsageError
from torchferry.graph import io
from torchferry.quantizer import RECIPES
from torchferry.quantizer.static import find_convolutions


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def save_chain(path, rng, *, spread):
    """Convolutions one after the other; channels of the first are as different as asked."""
    x = value("x", ["n", 16, 8, 8])
    ws = [(rng.standard_normal((16, 16, 2, 2)) / 8).astype(np.float32) for _ in range(3)]
    ws[0] *= np.geomspace(1 / spread, spread, 16).astype(np.float32)[:, None, None, None]
    ws[1] /= np.geomspace(1 / spread, spread, 16).astype(np.float32)[None, :, None, None]
    names = [weight(f"w{i}", w) for i, w in enumerate(ws)]
    nodes, last = [], x
    for w in names:
        nodes.append(ir.node("Conv", [last, w]))
        last = nodes[-1].outputs[0]
        last.name, last.type = f"y{len(nodes)}", ir.TensorType(ir.DataType.FLOAT)
    relu = ir.node("Relu", [last])
    relu.outputs[0].name, relu.outputs[0].type = "r", ir.TensorType(ir.DataType.FLOAT)
    one = weight("one", np.ones(1, np.float32))  # else cosines would be of zeros
    return save_model(
        path, [x], [*nodes, relu, ir.node("Add", [relu.outputs[0], one])], [*names, one]
    )


def feeds(rng):
    return [{"x": torch.from_numpy(rng.standard_normal((n, 16, 8, 8)).astype(np.float32))}
            for n in (1, 3)]  # fmt: skip


def test_ranges_are_those_of_all_inputs(tmp_path, rng):
    source = save_chain(tmp_path / "m.onnx", rng, spread=1)
    given = feeds(rng)
    found = list(find_convolutions(io.load(source).graph))
    seen = record_ranges(source, found, given)
    assert {*seen} == {"x", "y1", "y2", "r"}
    both = torch.cat([fed["x"] for fed in given])
    assert (seen["x"].low, seen["x"].high) == (float(both.min()), float(both.max()))
    outputs = [run(source, x=fed["x"].numpy()) for fed in given]
    assert seen["r"].high == pytest.approx(max(float(y.max()) for y in outputs) - 1, rel=1e-5)
    assert seen["r"].low == 0  # behind the Relu


def test_what_costs_most_stays_in_floats(tmp_path, rng):
    """A channel much larger than the others takes the whole grid of the value between."""
    for spread, left in ((1, 0), (3000, 2)):
        source = save_chain(tmp_path / "m.onnx", rng, spread=spread)
        done, count = quantize_image_model(
            source, tmp_path / "q.onnx", RECIPES["int8-dynamic"], feeds(rng)
        )
        assert (count, len(done.bits)) == (left, 3 - left)
        fed = feeds(rng)[1]["x"].numpy()
        wanted, ours = run(source, x=fed), run(done.path, x=fed)
        assert np.corrcoef(wanted.ravel(), ours.ravel())[0, 1] > 0.98


def test_what_an_output_hardly_reads_may_be_wrong(tmp_path, rng):
    """Of two convolutions the noisier one is scaled down behind it: the other stays in floats."""
    x = value("x", ["n", 16, 8, 8])
    ws = [(rng.standard_normal((16, 16, 2, 2)) / 8).astype(np.float32) for _ in range(2)]
    for number, spread in enumerate((30, 3000)):
        ws[number] *= np.geomspace(1 / spread, spread, 16).astype(np.float32)[:, None, None, None]
    nodes, small = [], []
    for number, w in enumerate(ws):
        conv = ir.node("Conv", [x, weight(f"w{number}", w)])
        conv.outputs[0].name, conv.outputs[0].type = f"y{number}", x.type
        nodes.append(conv)
        factor = np.abs(w).sum((1, 2, 3)).reshape(16, 1, 1) * (1, 1e5)[number]
        small.append(weight(f"f{number}", factor.astype(np.float32)))
        nodes.append(ir.node("Div", [conv.outputs[0], small[-1]]))
    nodes.append(ir.node("Add", [nodes[1].outputs[0], nodes[3].outputs[0]]))
    weights = [node.inputs[1] for node in nodes[:4:2]] + small
    source = save_model(tmp_path / "m.onnx", [x], nodes, weights)
    given = feeds(rng)
    seen = record_ranges(source, list(find_convolutions(io.load(source).graph)), given)
    first, second = (one.noise(seen) for one in find_convolutions(io.load(source).graph))
    assert second > 2 * first
    done, count = quantize_image_model(source, tmp_path / "q.onnx", RECIPES["int8-dynamic"], given)
    assert (count, {*done.bits}) == (1, {"w1"})


def test_a_model_that_eight_bits_destroy_is_refused(tmp_path, rng, monkeypatch):
    source = save_chain(tmp_path / "m.onnx", rng, spread=1)
    monkeypatch.setattr(ranges, "_ENOUGH", 2.0)
    with pytest.raises(UsageError, match=r"8 bits cost m.onnx too much in every convolution"):
        quantize_image_model(source, tmp_path / "q.onnx", RECIPES["int8-dynamic"], feeds(rng))
