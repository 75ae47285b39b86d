"""Targets decide how many weights get 8 bits; a written graph tells nothing of its code."""

import shutil

import pytest
import torch

from torchferry.deployer import deploy
from torchferry.deployer.write.build import Built, Wanted, choose_grids, lighten
from torchferry.errors import UsageError
from torchferry.exporter.steps import Steps
from torchferry.graph import io
from torchferry.quantizer import RECIPES, quantize_file
from torchferry.quantizer.linears import find_linears
from torchferry.sources.source import load_source


@pytest.fixture(scope="module")
def source():
    return load_source("zoo:llama", dtype="fp32")


def build(source, deployed, folder, **wanted):
    """The weights with 8 bits, the written file, and the table."""
    base, path, recipe = deployed[0] / "onnx/model.onnx", folder / "model_q4.onnx", RECIPES["int4"]
    built, asked = Built(), Wanted([torch.arange(3, 60)[None]], **wanted)
    wide, grids = choose_grids(
        source, [*find_linears(io.load(base).graph)],
        lambda least: quantize_file(base, path, least).nbytes, recipe,
        wanted=asked, built=built, steps=Steps(False),
    )  # fmt: skip
    return wide, quantize_file(base, path, recipe, wide=wide, grids=grids), built


def test_a_size_is_kept_and_used(source, deployed, tmp_path):
    wide, _, built = build(source, deployed, tmp_path, loss=10.0)
    assert not wide
    assert built.fitted == len(built.units)
    base = deployed[0] / "onnx/model.onnx"
    least = quantize_file(base, tmp_path / "least.onnx", RECIPES["int4"])
    for room in (2_000, 40_000):  # the second has room to scale inputs too
        wide, more, _ = build(source, deployed, tmp_path, size=float(least.nbytes + room))
        assert wide
        assert least.nbytes < more.nbytes <= least.nbytes + room
    with pytest.raises(UsageError, match=r"--target-size 10 B is too small: int4 takes .* KiB"):
        build(source, deployed, tmp_path, size=10.0)


def test_a_loss_that_is_small_asks_for_eight_bits_everywhere(source, deployed, tmp_path):
    wide, done, built = build(source, deployed, tmp_path, loss=1e-9)
    assert wide == {name for unit in built.units for name in unit.weights if unit.cost > 0}
    assert set(done.bits.values()) == {8}


def test_without_texts_every_weight_gets_the_nearest_grid(source):
    built = Built()
    assert choose_grids(
        source, [], lambda _: 1 // 0, RECIPES["int4"], wanted=Wanted(), built=built,
        steps=Steps(False),
    ) == (frozenset(), {})  # fmt: skip


def test_what_is_removed_are_notes_alone(deployed, tmp_path):
    for part in (deployed[0] / "onnx").glob("model.onnx*"):
        shutil.copy(part, tmp_path)
    path = tmp_path / "model.onnx"
    model = io.load(path)
    next(iter(model.graph)).metadata_props["x"] = "/home/somebody"
    model.metadata_props["pkg.torchferry.conditions"] = "n != 1  # /home/somebody"
    io.save(model, path)
    lighten(path)
    assert b"somebody" not in path.read_bytes()
    light = io.load(path)
    assert "pkg.torchferry.signature" in light.metadata_props
    assert [n.op_type for n in light.graph] == [n.op_type for n in model.graph]


def test_images_are_float32_in_a_float16_graph(tmp_path):
    """As processors make them: transformers.js casts nothing."""
    import numpy as np
    import onnx_ir as ir
    import onnxruntime

    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float16[n] pixel_values, float16[n] states) => (float16[n] y) {
      h = Add(pixel_values, states)
      y = Mul(h, pixel_values)
    }"""
    path = tmp_path / "model.onnx"
    ir.save(ir.from_onnx_text(text), path)
    lighten(path)
    session = onnxruntime.InferenceSession(path)
    kinds = {value.name: value.type for value in session.get_inputs()}
    assert kinds == {"pixel_values": "tensor(float)", "states": "tensor(float16)"}
    x = np.array([1, -2, 3], "f4")
    (y,) = session.run(None, {"pixel_values": x, "states": np.ones(3, "f2")})
    assert y.tolist() == [2, 2, 12]


def test_without_texts_zero_points_may_suit_the_weights(llama_folder, tmp_path):
    report = deploy(llama_folder, tmp_path / "out", precisions="int4", calibrate="hqq")
    assert report.ok, report.problems
    assert (report.data["fitted"], report.data["sensitivity"]) == (0, [])
    nodes = [node.op_type for node in io.load(tmp_path / "out/onnx/model_q4.onnx").graph]
    assert nodes.count("ReduceSum") > 0  # of the thin product beside the kernel
