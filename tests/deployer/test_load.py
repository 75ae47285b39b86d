"""What load gives of each folder."""

import pytest
import torch
from typer.testing import CliRunner

import torchferry as tf
from torchferry.cli.main import app
from torchferry.deployer.load import find_graph
from torchferry.deployer.manifest import read_manifest
from torchferry.errors import UsageError


def test_an_export_is_loaded_as_before(tmp_path):
    program = tf.export(torch.nn.Linear(3, 2), [(torch.rand(2, 3),), (torch.rand(4, 3),)])
    program.save(tmp_path / "model.onnx")
    assert isinstance(tf.load(tmp_path), tf.OnnxProgram)
    assert isinstance(tf.load(tmp_path / "model.onnx"), tf.OnnxProgram)


def test_a_graph_that_is_not_there_is_said(deployed, tmp_path):
    out, _ = deployed
    with pytest.raises(UsageError, match=r"no model at .*model_q2\.onnx"):
        tf.load(out, graph="onnx/model_q2.onnx")
    with pytest.raises(UsageError):
        tf.load(tmp_path)
    # One graph is an export like any other: it says how its inputs are nested.
    assert isinstance(tf.load(out / "onnx/model.onnx"), tf.OnnxProgram)


def test_a_precision_is_chosen_by_its_name(deployed, deployed_bart, tmp_path):
    out, _ = deployed
    names = {"fp32": "", "fp16": "_fp16", "int8": "_quantized", "int4": "_q4"}
    manifest = read_manifest(out)
    for name, end in {**names, "int4+fp16": "_q4f16"}.items():
        assert find_graph(out, manifest, name) == out / f"onnx/model{end}.onnx"
    assert find_graph(out, manifest) == out / "onnx/model.onnx"
    ids = torch.tensor([[5, 6, 7]])
    by_name, by_file = tf.load(out, precision="int4"), tf.load(out, graph="onnx/model_q4.onnx")
    assert torch.equal(by_name(ids).logits, by_file(ids).logits)
    assert not torch.equal(by_name(ids).logits, tf.load(out)(ids).logits)
    with pytest.raises(UsageError, match=r"no fp16 graph: choose from fp32, int8, int4, or dep"):
        tf.load(deployed_bart[0], precision="fp16")
    with pytest.raises(UsageError, match="both choose a graph"):
        tf.load(out, precision="int4", graph="onnx/model_q4.onnx")
    with pytest.raises(UsageError, match="is no folder that torchferry deploy wrote"):
        tf.load(out / "onnx/model.onnx", precision="int4")


@pytest.mark.slow
def test_compare_finds_a_deployed_decoder_equal(deployed, llama_folder):
    done = CliRunner().invoke(app, ["compare", str(llama_folder), str(deployed[0])])
    assert done.exit_code == 0, done.output
