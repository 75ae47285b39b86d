"""What load gives of each folder."""

import pytest
import torch

import torchferry as tf
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
