"""``to_onnx``: what it takes, what it gives, what it refuses."""

import pytest
import torch

import torchferry as tf


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def forward(self, x, scale=2.0):
        return {"y": self.layer(x) * scale}


NAMES = {"x": {0: "rows"}}


def names_of(program):
    return [str(size) for size in program.model.graph.inputs[0].shape]


@pytest.mark.parametrize("shapes", [NAMES, ({0: "rows"},), {"x": {0: torch.export.Dim("rows")}}])
def test_a_module_with_names_for_its_dimensions(shapes):
    model = Network()
    converted = tf.to_onnx(model, (torch.randn(2, 3),), dynamic_shapes=shapes)
    assert names_of(converted) == ["rows", "3"]
    for rows in (1, 5, 0):
        x = torch.randn(rows, 3)
        assert tf.max_diff(model(x), converted(x)).abs <= 1e-6


def test_a_graph_module_a_program_and_a_file(tmp_path):
    model, x = Network(), torch.randn(2, 3)
    program = torch.export.export(model, (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    for given in (program, tmp_path / "model.pt2", str(tmp_path / "model.pt2")):
        assert tf.max_diff(model(x), tf.to_onnx(given)(x)).abs <= 1e-6
    traced = torch.fx.symbolic_trace(model)
    assert tf.max_diff(model(x), tf.to_onnx(traced, (x,))(x)).abs <= 1e-6


def test_a_size_expression_is_a_name_too():
    converted = tf.to_onnx(
        torch.nn.ReLU(), (torch.randn(4, 3),), dynamic_shapes=({0: "past + sequence"},)
    )
    assert names_of(converted) == ["past + sequence", "3"]


def test_a_program_takes_no_more_arguments():
    program = torch.export.export(Network(), (torch.randn(2, 3),))
    with pytest.raises(tf.UsageError, match="a ExportedProgram is exported already"):
        tf.to_onnx(program, (torch.randn(2, 3),))


def test_a_failing_capture_is_told_in_short():
    class Decides(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    with pytest.raises(tf.CaptureError, match=r"torch\.export failed: .*torchferry\.capture") as e:
        tf.to_onnx(Decides(), (torch.ones(2),))
    assert len(str(e.value).splitlines()) <= 12


def test_classes_of_modules_become_functions():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x):
            return torch.relu(self.linear(x)) + x

    model = torch.nn.Sequential(Layer(), Layer(), torch.nn.Linear(4, 2))
    converted = tf.to_onnx(
        model, (torch.randn(2, 3, 4),), dynamic_shapes=({0: "batch"},), functions=("Layer",)
    )
    assert len(converted.model.functions) == 1
    calls = [node.op_type for node in converted.model.graph if node.domain]
    assert len(calls) == 2
    x = torch.randn(5, 3, 4)
    assert tf.max_diff(model(x), converted(x)).abs <= 1e-6


def test_arguments_without_names_may_be_one_row():
    class Several(torch.nn.Module):
        def forward(self, *tensors):
            return tensors[0] * 2 + tensors[1]

    rows = {0: torch.export.Dim.DYNAMIC}
    given = torch.randn(3, 4), torch.randn(3, 4)
    program = tf.to_onnx(Several(), given, dynamic_shapes=[(rows, rows)])
    for n in (1, 5):
        inputs = torch.randn(n, 4), torch.randn(n, 4)
        torch.testing.assert_close(program(*inputs), Several()(*inputs))
